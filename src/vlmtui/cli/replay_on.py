"""`vlmtui replay`: answers kept comparisons and golden prompts again, on several engines, and tells what differs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vlmtui.bootstrap import Application, build
from vlmtui.cli.ask_engine import AskSetup, open_loaded, with_consent
from vlmtui.cli.golden import golden_prompts
from vlmtui.cli.interrupts import run_interruptible
from vlmtui.cli.lane_engines import models_on
from vlmtui.cli.output import note, print_json, print_warnings
from vlmtui.cli.replay import read_comparison, stored_file
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import write_output
from vlmtui.inspection.build import fingerprint_of
from vlmtui.inspection.golden import read_golden
from vlmtui.inspection.replay import EngineFingerprint, to_json
from vlmtui.registry.match import Model, resolve
from vlmtui.session.engine_names import HERE
from vlmtui.session.engines_beside import is_remote, release
from vlmtui.session.golden import model_name
from vlmtui.session.lanes import Lane, Lanes
from vlmtui.session.replaying import (
    KnownAnswer,
    Pixels,
    ReplayCase,
    ReplayResult,
    answer_cases,
    changed_fingerprint,
    comparison_cases,
    golden_case,
    results_of,
    with_recorded_adapters,
)
from vlmtui.text import one_line

DIFFERS, CANNOT = 1, 2
"""Exit codes: something differs; a case or an engine failed."""
_PIXELS = {
    Pixels.SAME: "✓",
    Pixels.SAME_SIZES: "sizes ✓",
    Pixels.DIFFERENT: "✗",
    Pixels.NONE: "–",
    Pixels.UNKNOWN: "?",
}


class ModelReplay(msgspec.Struct):
    """The cases of one model, and what each engine made of them."""

    model: Model
    cases: list[ReplayCase]
    lanes: list[list[Lane]] = []
    """Of each case, those of the engines that answered."""
    known: dict[str, list[KnownAnswer | VlmtuiError]] = {}
    """By the engine's name, in the order of the cases."""
    engines: dict[str, EngineFingerprint] = {}


def replay_on(arguments: argparse.Namespace) -> int:
    """Run the command. Raises VlmtuiError for files that can't be read and engines that do not exist."""
    application = build({"model": arguments.model, "keep_alive": "0"})
    print_warnings(application.registry.warnings)
    groups, unread = _read(application, arguments)
    names = list(dict.fromkeys(arguments.on or [HERE]))
    engines = [
        with_recorded_adapters(
            group.cases,
            models_on(
                names, AskSetup(application, group.model, keep_alive_given=True, as_json=arguments.json), arguments
            ),
        )
        for group in groups
    ]
    return run_interruptible(lambda: _replay(application, groups, names, engines, unread, arguments))


async def _replay(
    application: Application,
    groups: Sequence[ModelReplay],
    names: Sequence[str],
    engines: Sequence[Sequence[Model]],
    unread: Sequence[ReplayResult],
    arguments: argparse.Namespace,
) -> int:
    for group, models in zip(groups, engines, strict=True):
        for name, model in zip(names, models, strict=True):
            setup = AskSetup(application, model, keep_alive_given=True, as_json=arguments.json)
            await _answer(group, name, setup)
    results = [*unread, *(one for group in groups for one in results_of(group.cases, group.known))]
    if arguments.output is not None:
        _write(groups, Path(arguments.output))
    if arguments.json:
        print_json(_as_json(groups, results))
    else:
        for line in (*_table(results), *_changes(groups)):
            print(line)
    if any(one.error for one in results):
        return CANNOT
    return 0 if all(one.is_same for one in results) else DIFFERS


async def _answer(group: ModelReplay, name: str, setup: AskSetup) -> None:
    """Load an engine, answer all cases of its model, and unload it."""
    try:
        engine = await open_loaded(setup, client="replay")
    except VlmtuiError as error:
        group.known[name] = [error] * len(group.cases)
        return
    try:
        answered = await answer_cases(engine, name, group.cases)
    finally:
        if engine.attached or is_remote(setup.model):
            await engine.close()
        else:
            await release(engine, hung=False)
    group.known[name] = [known for _, known in answered]
    if engine.info is not None:
        group.engines[name] = fingerprint_of(engine.info)
    for lanes, (lane, _) in zip(group.lanes, answered, strict=True):
        lanes.append(lane)


def _read(application: Application, arguments: argparse.Namespace) -> tuple[list[ModelReplay], list[ReplayResult]]:
    """Return the cases of all files, by model, and the files that can't be replayed, each with its error. Raises
    VlmtuiError if that is all of them."""
    groups: dict[str, ModelReplay] = {}
    unread: list[ReplayResult] = []
    failures: list[VlmtuiError] = []
    for path in _files([Path(one) for one in arguments.files]):
        try:
            name, model, cases = _cases(application, path, arguments)
        except VlmtuiError as error:
            failures.append(error)
            unread.append(ReplayResult(file=str(path), title="", engine="", error=str(error)))
            continue
        group = groups.setdefault(name, ModelReplay(model, []))
        group.cases += cases
        group.lanes += [[] for _ in cases]
    if not groups:
        raise failures[0]
    return list(groups.values()), unread


def _cases(application: Application, path: Path, arguments: argparse.Namespace) -> tuple[str, Model, list[ReplayCase]]:
    """Return the name of a file's model, the model, and the cases. Raises VlmtuiError."""
    if _is_golden(path):
        golden = read_golden(path)
        name = arguments.model or model_name(golden.model, path)
        model = with_consent(resolve(application.registry, name), trust=arguments.trust_remote_code)
        prompt = golden_prompts(application).again(golden, path)
        return name, model, [golden_case(str(path), golden, prompt, model.family)]
    comparison = read_comparison(path)
    name = arguments.model or comparison.model
    model = with_consent(resolve(application.registry, name), trust=arguments.trust_remote_code)
    paths = {item.sha256: str(stored_file(application.paths.media, item)) for item in comparison.attachments}
    try:
        return name, model, comparison_cases(str(path), comparison, paths)
    except (KeyError, ValueError) as error:
        raise bad_input(f"{path.name}: its prompt cannot be made again.", detail=str(error)) from error


def _files(given: Sequence[Path]) -> list[Path]:
    """Return the files, those of folders sorted. Raises VlmtuiError for a folder without any."""
    found: list[Path] = []
    for path in given:
        inside = sorted(one for one in path.rglob("*.json") if one.is_file()) if path.is_dir() else [path]
        if not inside:
            raise bad_input(f"{path} has no JSON files.", hint="`ask --export` and `golden record` write them.")
        found += inside
    return found


def _is_golden(path: Path) -> bool:
    """Whether a file is a golden prompt rather than a comparison; reads its beginning."""
    try:
        with path.open("rb") as file:
            return b'"vlmtui-comparison' not in file.read(400)
    except OSError as error:
        raise bad_input(f"{path} cannot be read.", detail=str(error)) from error


def _table(results: Sequence[ReplayResult]) -> list[str]:
    rows: list[tuple[str, ...]] = [("file", "case", "engine", "prompt", "pixels", "answer", "log-probability there")]
    rows += [_row(one) for one in results]
    columns = len(rows[0])  # a row of a failure has fewer, and its last cell may be long
    widths = [max(len(row[at]) for row in rows if at < len(row) - (len(row) < columns)) for at in range(columns)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]


def _row(result: ReplayResult) -> tuple[str, ...]:
    head = (one_line(Path(result.file).name), one_line(result.title), one_line(result.engine))
    if result.error:
        return (*head, f"failed: {one_line(result.error)}")
    prompt = "✓" if result.prompt_divergence is None else f"✗ token {result.prompt_divergence:,}"
    answer = "✓" if result.answer_same else "✗"
    if result.first_divergence is not None:
        answer = f"✗ token {result.first_divergence:,}"
    there = "" if result.logprob is None else f"{result.logprob:.3f}"
    if there and result.base_logprob is not None:
        there += f" (other: {result.base_logprob:.3f})"
    return (*head, prompt, _PIXELS[result.pixels], answer, there)


def _changes(groups: Sequence[ModelReplay]) -> list[str]:
    """Return what each engine's fingerprint has that the first one's, or the recorded one's, has not."""
    lines = []
    for group in groups:
        then = next((case.engine for case in group.cases if case.engine is not None), None)
        for name, record in group.engines.items():
            changed = changed_fingerprint(then, record) if then is not None else {}
            lines.append(f"{one_line(name)}: {one_line(record.model)} · {record.facts}")
            lines += [f"  {one}: {_told(old)} → {_told(new)}" for one, (old, new) in changed.items()]
            then = then or record
    return ["", *lines] if lines else []


def _told(value: object) -> str:
    return "default" if value is None else one_line(str(value))


def _as_json(groups: Sequence[ModelReplay], results: Sequence[ReplayResult]) -> dict[str, object]:
    return {
        "same": all(one.is_same for one in results),
        "engines": [
            {"model": group.model.spec.name, "engine": name, "fingerprint": msgspec.to_builtins(record)}
            for group in groups
            for name, record in group.engines.items()
        ],
        "results": [
            {"same": one.is_same, "prompt_same": one.prompt_divergence is None and not one.error}
            | msgspec.to_builtins(one)
            for one in results
        ],
    }


def _write(groups: Sequence[ModelReplay], folder: Path) -> None:
    """Write a document for each case, with every engine's answer and fingerprint. Raises VlmtuiError."""
    number = 0
    for group in groups:
        for case, lanes in zip(group.cases, group.lanes, strict=True):
            number += 1
            if lanes:
                target = folder / f"{number:03d}-{Path(case.file).stem}.json"
                write_output(target, to_json(Lanes(lanes).document()))
                note(f"Written: {target}")
