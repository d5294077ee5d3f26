"""A comparison as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from vlmtui.domain.parameters import PARAMETERS
from vlmtui.domain.prompt import attachments_of
from vlmtui.inspection.engine_titles import engine_titles, has_several_engines
from vlmtui.inspection.marked_runs import Run, prompt_runs
from vlmtui.inspection.replay import Comparison, Side
from vlmtui.text import visible


def export_markdown(comparison: Comparison) -> str:
    """Return the comparison as a page to read. Hostile text stands in code spans and blocks, so that it cannot
    become markup; control characters are made visible."""
    return "\n".join(_lines(comparison)) + "\n"


def run_facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Return model, engine and settings as names and values; values hostile."""
    sampling = {
        key: value for key, value in msgspec.to_builtins(comparison.sampling).items() if value not in (None, [], {})
    }
    rows = [
        ("model", comparison.model),
        ("revision", comparison.revision or "unknown"),
        (comparison.engine, comparison.engine_version),
        ("sampling", _json(sampling)),
        ("engine arguments", _json(comparison.engine_args)),
    ]
    for item in comparison.attachments:
        rows.append((item.modality, f"{item.name} ({item.media_type}, sha256 {item.sha256})"))
    return rows


def side_facts(side: Side) -> str:
    """Return how the answer ended, tokens and times, in one line; hostile only in the text of a stop token."""
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
    """Return the engine of each side where they have different ones, else empty texts; hostile."""
    if not has_several_engines(comparison):
        return [""] * len(comparison.sides)
    return engine_titles(comparison)


def side_title(side: Side) -> str:
    return side.label or side.mode.capitalize()


def difference_lines(comparison: Comparison) -> list[str]:
    """Return the summary in sentences; hostile only in what they quote. With more than two sides: which of them
    differ from the first."""
    if len(comparison.sides) > 2:
        return [
            _unlike_first(comparison.sides, "prompt", _given),
            _unlike_first(comparison.sides, "answer", lambda side: side.answer),
        ]
    found = comparison.difference
    if found is None:
        return []
    lines = ["The prompts are identical." if found.prompts_identical else "The prompts differ."]
    if found.prompt_first_divergence is not None:
        lines[-1] += f" First at token {found.prompt_first_divergence:,}."
    lines.append("The answers are identical." if found.answers_identical else "The answers differ.")
    if found.answer_first_divergence is not None:
        lines[-1] += f" First at token {found.answer_first_divergence:,}."
    return [*lines, *(finding for finding in found.findings if finding != "no difference")]


def _given(side: Side) -> object:
    """What the model was given: the pictures' tokens are the same whatever they show."""
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
        yield from ("", f"## {_heading(side)}", "", f"{_code(side_facts(side))}", "")
        if engine:
            yield from (f"Answered by {_code(engine)}", "")
        yield from ("Prompt:", "")
        yield _block(_text(runs))
        if side.failure:
            yield from ("", f"Failed: {_code(side.failure)}")
        yield from ("", "Answer:", "", _block(side.answer))


def _heading(side: Side) -> str:
    return _code(side.label) if side.label else side_title(side)


def _text(runs: Iterable[Run]) -> str:
    """Write each image once: `[<|image_pad|> × 1,280 from cat.jpg]`."""
    return "".join(f"[{run.text}]" if run.style == "media" else run.text for run in runs)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _code(text: str) -> str:
    """Return a code span that the text cannot close."""
    text = visible(text, keep="")
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _block(text: str) -> str:
    """Return a fenced block that the text cannot close."""
    text = visible(text)
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}text\n{text}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
