"""`vlmtui ask --replay`: runs a document again and compares the answers."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vlmtui.cli.ask_engine import AskSetup, allow_adapters, prepare, ready_engine
from vlmtui.cli.inputs import DOCUMENT_BYTES_MAX, read_input
from vlmtui.cli.interrupts import run_interruptible
from vlmtui.cli.output import note, print_json
from vlmtui.cli.results import write_comparison
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.prompt import attachments_of
from vlmtui.errors import bad_input
from vlmtui.inspection.answer_diff import AnswerDiff, answer_diff
from vlmtui.inspection.replay import Comparison, MediaRecord, Side, from_json
from vlmtui.reading import is_file, is_folder
from vlmtui.session.answer_json import answer_json, tokens_json
from vlmtui.session.generation import Answer
from vlmtui.session.lanes import Lane, Lanes, LaneSpec, recorded_specs
from vlmtui.store.media_files import keep, place
from vlmtui.text import one_line, visible


def replay(arguments: argparse.Namespace) -> int:
    """Return 0 if all answers are the same, else 1. Raises VlmtuiError(BAD_INPUT) for a document that cannot be run."""
    comparison = read_comparison(Path(arguments.replay))
    allow_adapters(arguments, [side.adapter for side in comparison.sides])
    setup = prepare(arguments, arguments.model or name_by_document(comparison.model))
    media = setup.application.paths.media
    paths = {item.sha256: str(stored_file(media, item)) for item in comparison.attachments}
    specs = recorded_specs(comparison, paths)
    return run_interruptible(lambda: _replay(setup, comparison, specs, arguments))


async def _replay(
    setup: AskSetup, comparison: Comparison, specs: Sequence[LaneSpec], arguments: argparse.Namespace
) -> int:
    async with ready_engine(setup) as (engine, info, load_s):
        lanes = Lanes([Lane(spec, engine) for spec in specs])
        await lanes.run()
        answers = [lane.answer for lane in lanes]
        for answer in answers:
            if answer.failure is not None:
                raise answer.failure.error()
        if arguments.export is not None:
            again = lanes.document(generation_prompt=setup.model.family.raw.generation_prompt)
            write_comparison(arguments.export, again, lanes.attachments())
    differences = [_difference(side, answer) for side, answer in zip(comparison.sides, answers, strict=True)]
    same = [difference.identical and difference.first_divergence is None for difference in differences]
    if not all(same):
        _tell_other_engine(comparison, info)
    if setup.as_json:
        name = setup.model.spec.name
        found = [
            {
                "label": _title(side),
                "mode": side.mode,
                "same": is_same,
                "prompt_same": _same_prompt(side, answer),
                "first_divergence": difference.first_divergence,
                "stored_answer": side.answer,
                **answer_json(name, answer, load_s),
                **tokens_json(answer),
            }
            for side, answer, difference, is_same in zip(comparison.sides, answers, differences, same, strict=True)
        ]
        print_json({"same": all(same), "answers": found})
    else:
        for side, answer, difference, is_same in zip(comparison.sides, answers, differences, same, strict=True):
            _tell(side, answer, difference, is_same=is_same)
    return 0 if all(same) else 1


def read_comparison(path: Path) -> Comparison:
    """Return a document that can be run again. Raises VlmtuiError(BAD_INPUT)."""
    comparison = from_json(read_input(str(path), bytes_max=DOCUMENT_BYTES_MAX))
    known = {item.sha256 for item in comparison.attachments}
    for side in comparison.sides:
        if side.request is None:
            message = f"{path} does not hold what was asked for, so it cannot be run again."
            raise bad_input(message, hint="`vlmtui ask --export FILE.json` writes one that does.")
        if not known.issuperset(item.sha256 for item in attachments_of(side.request)):
            raise bad_input(f"{path} asks for an attachment that it does not list.")
    return comparison


def name_by_document(name: str) -> str:
    """Return a model's name as a document gives it. Raises VlmtuiError for a folder: no document has one loaded."""
    if Path(name).is_absolute() or name.startswith((".", "~")) or is_folder(Path(name)):
        message = f"The document was made with the model in {one_line(name)}, which it cannot have loaded."
        raise bad_input(message, hint=f"If it is yours, add --model {shlex.quote(one_line(name))}.")
    return name


def stored_file(media: Path, item: MediaRecord) -> Path:
    """Return the attachment's file: written from the document's bytes, or found by its hash in the media store."""
    content = item.content
    if content is not None:
        if (kept := keep(media, item.sha256, content)) is None:
            raise bad_input(f"{visible(item.name)} is no picture, video, sound or document.")
        return kept
    found = place(media, item.sha256)
    if not is_file(found):
        message = f"{visible(item.name)} is neither in the document nor among the files that are kept here."
        raise bad_input(message, detail=f"sha256 {item.sha256}", hint="Attach the same file once, and try again.")
    return found


def _difference(side: Side, answer: Answer) -> AnswerDiff:
    """Compare by text, and by tokens if both are known."""
    known = bool(side.answer_token_ids) and bool(answer.token_ids)
    ids = (side.answer_token_ids, answer.token_ids) if known else (None, None)
    return answer_diff(side.answer, answer.text, *ids)


def _same_prompt(side: Side, answer: Answer) -> bool:
    return answer.prompt is not None and answer.prompt.token_ids == side.prompt_token_ids


def _tell(side: Side, answer: Answer, difference: AnswerDiff, *, is_same: bool) -> None:
    title = visible(_title(side), keep="")
    if is_same:
        print(f"{title}: the same answer, {answer.tokens} tokens")
    else:
        at = "" if difference.first_divergence is None else f", from token {difference.first_divergence} on"
        print(f"{title}: another answer{at}\n  was: {visible(side.answer)}\n  now: {visible(answer.text)}")
    if not _same_prompt(side, answer):
        note(f"{title}: the prompt's tokens are not the same either.")


def _tell_other_engine(comparison: Comparison, info: EngineInfo) -> None:
    """Print how the engine differs from the document's."""
    pairs = (
        ("the engine", _engine_of(comparison), _engine_of(info)),
        ("the weights' revision", comparison.revision, info.revision),
        ("the engine's arguments", comparison.engine_args, info.engine_args),
    )
    for name, then, now in pairs:
        if msgspec.json.encode(then) != msgspec.json.encode(now):
            note(f"note: {name} was {then}, and is {now}.")


def _engine_of(what: Comparison | EngineInfo) -> str:
    return f"{what.engine} {what.engine_version}"


def _title(side: Side) -> str:
    return side.label or side.mode
