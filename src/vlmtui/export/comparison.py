"""Exports a comparison: as Markdown, a web page, or JSON for `vlmtui check`. Only `export_comparison` writes files."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from vlmtui.domain.conversation import Attachment, attachments_of
from vlmtui.domain.sampling import PARAMETERS
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.export.web_page import figure, render_page
from vlmtui.files import write_numbered
from vlmtui.inspection.answer_diff import answer_diff
from vlmtui.inspection.build import tokens_of
from vlmtui.inspection.prompt_diff import prompt_diff
from vlmtui.inspection.prompt_turns import LOOKS_SPECIAL, Run, text_runs
from vlmtui.inspection.replay import Comparison, EngineFingerprint, MediaRecord, Side, engine_of, to_json
from vlmtui.inspection.sequence_diff import Operation
from vlmtui.inspection.tokens import Piece
from vlmtui.media.content_store import place
from vlmtui.reading import shown_name
from vlmtui.text import token_place, visible

ReadMedia = Callable[[MediaRecord], bytes | None]
"""Returns the bytes of a media file, or None if it is unavailable."""
FORMATS: dict[str, Callable[[Comparison, ReadMedia], bytes]] = {
    ".md": lambda comparison, _: export_markdown(comparison).encode("utf-8", "replace"),
    ".html": lambda comparison, read: export_html(comparison, read).encode("utf-8", "replace"),
    ".json": lambda comparison, read: to_json(with_media(comparison, read)),
}
"""Writers by file suffix."""
SUFFIXES = tuple(FORMATS)
ENDINGS = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"


def engine_titles(comparison: Comparison) -> list[str]:
    """Return the engine of each side, such as `vLLM 0.32.0 · float32 · cpu`, with the model, revision and engine
    arguments in which the sides differ. Hostile text (see `vlmtui.text`)."""
    engines = [engine_of(comparison, side) for side in comparison.sides]
    return [
        " · ".join(filter(None, (_own_model(one, engines), one.facts, _arguments(one, engines)))) for one in engines
    ]


def _own_model(one: EngineFingerprint, engines: list[EngineFingerprint]) -> str:
    """Return the side's model if the sides differ in model or revision, else an empty text. If sides have the same
    model in different revisions, the text includes the revision."""
    if all(other.model == one.model and other.revision == one.revision for other in engines):
        return ""
    is_alone = all(other.revision == one.revision for other in engines if other.model == one.model)
    return one.model if is_alone or one.revision is None else f"{one.model} {one.revision[:8]}"


def _arguments(one: EngineFingerprint, engines: list[EngineFingerprint]) -> str:
    """Return the engine arguments in which this engine differs from others with the same model and facts."""
    alike = [other for other in engines if (other.model, other.facts) == (one.model, one.facts)]
    names = sorted({name for other in alike for name in other.engine_args})
    differing = [name for name in names if any(_value(other, name) != _value(one, name) for other in alike)]
    return ", ".join(f"{name}={_value(one, name)}" for name in differing)


def _value(engine: EngineFingerprint, name: str) -> str:
    return msgspec.json.encode(engine.engine_args[name]).decode() if name in engine.engine_args else "default"


def export_markdown(comparison: Comparison) -> str:
    """Return the comparison as Markdown. Hostile text (see `vlmtui.text`) is in code spans and blocks, so that it
    cannot become markup; control characters are made visible."""
    return "\n".join(_lines(comparison)) + "\n"


def run_facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Return model, engine, settings and attachments as pairs of name and value. The values are hostile text (see
    `vlmtui.text`)."""
    sampling = {
        key: value for key, value in msgspec.to_builtins(comparison.sampling).items() if value not in (None, [], {})
    }
    rows = [
        ("model", comparison.model),
        ("revision", comparison.revision or "unknown"),
        (comparison.engine, comparison.engine_version or "unknown version"),
        ("sampling", _json(sampling)),
        ("engine arguments", _json(comparison.engine_args)),
    ]
    for item in comparison.attachments:
        rows.append((item.modality, f"{item.name} ({item.media_type}, sha256 {item.sha256})"))
    return rows


def side_facts(side: Side) -> str:
    """Return one line with an answer's sampling, token counts and times, and why it ended. Only a stop token in it is
    hostile text (see `vlmtui.text`)."""
    usage, timings = side.usage, side.timings
    if side.used is not None:
        parts = side.used.drawn()
    else:
        parts = [PARAMETERS[name].describe(value) for name, value in side.sampling.items()]
    parts += [f"{usage.prompt_tokens or len(side.prompt_token_ids):,} prompt tokens"]
    if usage.media_text:
        parts.append(f"including {usage.media_text}")
    parts.append(f"{usage.completion_tokens or len(side.answer_token_ids):,} answer tokens")
    if timings.ttft_s is not None:
        parts.append(f"first token after {timings.ttft_s:.2f} s")
    parts.append(f"{timings.total_s:.2f} s total")
    ended = f"ended by {side.finish_reason}" if side.finish_reason else "incomplete"
    return ", ".join(parts) + f"; {ended}" + (f" ({side.stop})" if side.stop else "")


def answered_by(comparison: Comparison) -> list[str]:
    """Return the engine of each side; empty texts if one engine answered all sides. Hostile text (see
    `vlmtui.text`)."""
    if all(side.engine is None for side in comparison.sides):
        return [""] * len(comparison.sides)
    return engine_titles(comparison)


def side_title(side: Side) -> str:
    return side.label or side.mode.capitalize()


def difference_lines(comparison: Comparison) -> list[str]:
    """Return sentences that say whether prompts and answers differ, and where. With more than two sides, they say which
    sides differ from the first. Quotations are hostile text (see `vlmtui.text`)."""
    if len(comparison.sides) > 2:
        return [
            _unlike_first(comparison.sides, "prompt", _prompt_and_images),
            _unlike_first(comparison.sides, "answer", lambda side: side.answer),
        ]
    found = comparison.difference
    if found is None:
        return []
    lines = ["The prompts are identical." if found.prompts_identical else "The prompts differ."]
    if found.prompt_first_divergence is not None:
        lines[-1] += f" First at {token_place(found.prompt_first_divergence)}."
    lines.append("The answers are identical." if found.answers_identical else "The answers differ.")
    if found.answer_first_divergence is not None:
        lines[-1] += f" First at {token_place(found.answer_first_divergence)}."
    return [*lines, *(finding for finding in found.findings if finding != "no difference")]


def _prompt_and_images(side: Side) -> object:
    """Return a side's prompt and the hashes of its images. Both are needed to compare sides, since the placeholder
    tokens are the same for every image."""
    pictures = attachments_of(side.request) if side.request is not None else ()
    return side.prompt_token_ids or side.prompt, tuple(item.sha256 for item in pictures)


def _unlike_first(sides: Sequence[Side], what: str, shown: Callable[[Side], object]) -> str:
    first = shown(sides[0])
    numbers = [str(number) for number, side in enumerate(sides, start=1) if shown(side) != first]
    if not numbers:
        return f"The {what}s of all {len(sides)} are identical."
    same = len(sides) - len(numbers)
    rest = f"{same} of {len(sides)} are identical; " if same > 1 else ""
    which, differ = ("number", "differs") if len(numbers) == 1 else ("numbers", "differ")
    return f"{what.capitalize()}s: {rest}{which} {', '.join(numbers)} {differ} from the first."


def _lines(comparison: Comparison) -> Iterator[str]:
    yield f"# Comparison: {_code(comparison.model)}"
    yield ""
    yield from (f"- {name}: {_code(value)}" for name, value in run_facts(comparison))
    if said := difference_lines(comparison):
        yield from ("", "## Difference", "")
        yield from (f"- {_code(line) if number > 1 else line}" for number, line in enumerate(said))
    engines = answered_by(comparison)
    for side, engine, runs in zip(comparison.sides, engines, prompt_runs(comparison), strict=True):
        title = _code(side.label) if side.label else side_title(side)
        yield from ("", f"## {title}", "", f"{_code(side_facts(side))}", "")
        if engine:
            yield from (f"Answered by {_code(engine)}", "")
        yield from ("Prompt:", "")
        yield _fenced(_plain(runs))
        if side.failure:
            yield from ("", f"Failed: {_code(side.failure)}")
        yield from ("", "Answer:", "", _fenced(side.answer))


def _plain(runs: Iterable[Run]) -> str:
    """Return runs as text. Each image appears as one label: `[<|image_pad|> × 1,280 from cat.jpg]`."""
    return "".join(f"[{run.text}]" if run.style == "media" else run.text for run in runs)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _code(text: str) -> str:
    """Return a Markdown code span. Backticks in the text cannot end it."""
    text = visible(text, keep="")
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _fenced(text: str) -> str:
    """Return a fenced code block in Markdown. Fences in the text cannot end it."""
    text = visible(text)
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}text\n{text}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def export_html(comparison: Comparison, read_media: ReadMedia) -> str:
    """Return the comparison as a web page: the images, the sides next to each other, and the settings of the run.

    `read_media` returns the bytes of an attachment that the document does not embed, or None if they are gone. Media of
    types that browsers can't show appear by name.
    """
    given = [
        figure(
            item.name,
            item.modality,
            item.media_type,
            item.content if item.data is not None else read_media(item),
            gone="no longer available",
        )
        for item in comparison.attachments
    ]
    prompts, answers = prompt_runs(comparison), answer_runs(comparison)
    sides = [
        {
            "title": side_title(side),
            "facts": " · ".join(filter(None, (engine, side_facts(side)))),
            "prompt": _with_shown_space(prompt),
            "failure": side.failure,
            "answer": _with_shown_space(answer),
        }
        for side, engine, prompt, answer in zip(
            comparison.sides, answered_by(comparison), prompts, answers, strict=True
        )
    ]
    return render_page(
        "comparison.html",
        title=f"Comparison: {comparison.model}",
        given=given,
        difference=[line[:1].upper() + line[1:] for line in difference_lines(comparison)],
        sides=sides,
        facts=run_facts(comparison),
    )


def _with_shown_space(runs: Iterable[Run]) -> list[Run]:
    """Make white space visible in differing runs that contain nothing else."""
    return [
        msgspec.structs.replace(run, text=run.text.replace("\n", "↵\n").replace(" ", "·").replace("\t", "⇥"))
        if run.differs and not run.text.strip()
        else run
        for run in runs
    ]


T = TypeVar("T")


def prompt_runs(comparison: Comparison) -> list[list[Run]]:
    """Return every side's prompt as runs, which are pieces of text in one style. If all sides have token texts, the
    pieces are tokens, with one run per image; otherwise they are words.

    If there are two sides, both are marked where they differ. If there are more, each is compared with the first, which
    gets no marks.
    """
    sides = comparison.sides
    if not all(side.prompt_token_texts for side in sides):
        return _by_words([side.prompt for side in sides])
    attachments = _attachments(comparison)
    return _compared_with_first(
        [tokens_of(side, attachments) for side in sides],
        lambda prompt: _joined(_of_pieces(prompt.pieces(), False)),
        lambda left, right: _marked(
            [(one.operation, one.left, one.right) for one in prompt_diff(left, right).spans], _of_pieces
        ),
    )


def answer_runs(comparison: Comparison) -> list[list[Run]]:
    """Return every side's answer as runs, divided into words. Differences are marked as in `prompt_runs`."""
    return _by_words([side.answer for side in comparison.sides])


def _compared_with_first(
    items: Sequence[T], alone: Callable[[T], list[Run]], marked: Callable[[T, T], tuple[list[Run], list[Run]]]
) -> list[list[Run]]:
    first, *others = items
    if len(others) == 1:
        return list(marked(first, others[0]))
    return [alone(first), *(marked(first, other)[1] for other in others)]


def _attachments(comparison: Comparison) -> tuple[Attachment, ...]:
    """Return attachments rebuilt from the document. They have only the fields that are needed to name and compare their
    tokens."""
    return tuple(
        Attachment(
            modality=item.modality, name=item.name, path="", sha256=item.sha256, width=0, height=0, size_bytes=0,
            format="",
        )
        for item in comparison.attachments
    )  # fmt: skip


def _of_pieces(pieces: Sequence[Piece], differs: bool) -> list[Run]:
    return [Run(piece.label if piece.kind == "media" else piece.text, piece.kind, differs) for piece in pieces]


def _by_words(texts: Sequence[str]) -> list[list[Run]]:
    return _compared_with_first(
        texts,
        lambda text: _joined(_of_text(text, False)),
        lambda left, right: _marked(
            [(one.operation, one.left, one.right) for one in answer_diff(left, right).spans], _of_text
        ),
    )


def _marked(
    spans: Sequence[tuple[Operation, T, T]], runs_of: Callable[[T, bool], Iterable[Run]]
) -> tuple[list[Run], list[Run]]:
    """Return the left and the right side of a difference as runs. The runs of spans that are not equal are marked."""
    return (
        _joined([run for operation, left, _ in spans for run in runs_of(left, operation != "equal")]),
        _joined([run for operation, _, right in spans for run in runs_of(right, operation != "equal")]),
    )


def _of_text(text: str, differs: bool) -> list[Run]:
    return [Run(run.text, run.style, differs) for run in text_runs(text, LOOKS_SPECIAL)]


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Merge neighbouring runs of plain text, and drop empty runs. Special tokens and images stay separate, as do marked
    and unmarked text."""
    joined: list[Run] = []
    for run in runs:
        last = joined[-1] if joined else None
        if last and run.style == last.style == "text" and run.differs == last.differs:
            joined[-1] = Run(last.text + run.text, "text", run.differs)
        elif run.text:
            joined.append(run)
    return joined


def export_comparison(comparison: Comparison, target: Path, media: Path) -> Path:
    """Write the comparison to a file, in the format that the name's suffix stands for. If `target` exists, add a number
    to the name. Return the absolute path. Blocking.

    `media` is the folder of the stored media to embed. Raises VlmtuiError for an unknown suffix, and if the file cannot
    be written.
    """
    try:
        target = target.expanduser().absolute()
    except (RuntimeError, ValueError) as error:
        raise bad_input(f"{shown_name(target)} is not a path.", detail=str(error)) from error
    if target.suffix.lower() not in FORMATS:
        raise bad_input(f"{shown_name(target)} has no known ending.", hint=f"The name must end in {ENDINGS}.")
    return write_numbered(target.parent, target.name, comparison_bytes(comparison, target, media))


def with_media(comparison: Comparison, read: ReadMedia) -> Comparison:
    """Return the document with all media embedded for which `read` returns bytes."""

    def filled(record: MediaRecord) -> MediaRecord:
        content = read(record) if record.data is None else None
        return record if content is None else msgspec.structs.replace(record, data=base64.b64encode(content).decode())

    return msgspec.structs.replace(comparison, attachments=tuple(filled(record) for record in comparison.attachments))


def comparison_bytes(comparison: Comparison, target: Path, media: Path) -> bytes:
    """Return the comparison in the format that the target's suffix stands for, with the media of the folder `media`."""

    def read(record: MediaRecord) -> bytes | None:
        try:
            return place(media, record.sha256).read_bytes()
        except (OSError, VlmtuiError):
            return None

    return FORMATS[target.suffix.lower()](comparison, read)
