"""Runs the cases of a check on engines, and compares their results with the base.

The base is the recorded result, completed by the first engine; without one, the first engine's result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import msgspec

from vlmtui.errors import VlmtuiError
from vlmtui.inspection.replay import EngineFingerprint
from vlmtui.inspection.stages import CheckedSide, StageOutcome, StageResult, compare_sides
from vlmtui.session.check.cases import CheckCase
from vlmtui.session.check.sides import text_of


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's result for a case, compared with the base."""

    file: str = ""
    case: str = ""
    """The case's title; empty: the error concerns all cases."""
    engine: str = ""
    """The engine's name, as the user gave it."""
    stages: tuple[StageResult, ...] = ()
    answer: str = ""
    error: str = ""
    """Why the comparison is incomplete. Hostile text."""

    @property
    def first(self) -> StageResult | None:
        """The first stage that differs."""
        return next((one for one in self.stages if one.outcome is StageOutcome.DIFFERS), None)


MakeSides = Callable[[Sequence[CheckCase], Sequence[tuple[int, ...]]], AsyncIterator[CheckedSide]]
"""Yields an engine's results for cases, in order. The second argument: for each case the tokens of the base's answer,
empty if there is none. Raises VlmtuiError if the engine can't be found or loaded."""


async def run_cases(cases: Sequence[CheckCase], engines: Mapping[str, MakeSides], results: list[CheckResult]) -> None:
    """Run all cases on each engine in turn, and compare the results with the base. Add the comparisons to `results`, by
    case; if cancelled, those of the cases that are done. An engine that is itself the base is not compared."""
    made: dict[str, list[CheckedSide]] = {}
    try:
        for name, make in engines.items():
            answers = [_base_answer(case, at, made) for at, case in enumerate(cases)]
            made[name] = []
            try:
                async for side in make(cases, answers):
                    made[name].append(side)
            except VlmtuiError as error:
                results.append(CheckResult(engine=name, error=text_of(error)))
                if all(case.recorded is None for case in cases) and not any(made.values()):
                    break  # there is no base
    finally:
        results += _compared(cases, made)


def _compared(cases: Sequence[CheckCase], made: Mapping[str, list[CheckedSide]]) -> list[CheckResult]:
    found = []
    for at, case in enumerate(cases):
        here = {name: sides[at] for name, sides in made.items() if at < len(sides)}
        first = next((side for side in here.values() if not side.error), None)
        for name, now in here.items():
            base = _base(case.recorded, first if first is not now else None)
            if base is None and not now.error:
                continue
            stages = compare_sides(now, base) if base is not None else []
            found.append(
                CheckResult(
                    file=case.file,
                    case=case.title,
                    engine=name,
                    stages=tuple(stages),
                    answer=now.answer,
                    error=now.error,
                )
            )
    return found


def _base_answer(case: CheckCase, at: int, made: Mapping[str, list[CheckedSide]]) -> tuple[int, ...]:
    """Return the tokens of the base's answer to a case; empty if there is none yet."""
    if case.recorded is not None and case.recorded.answer_ids:
        return case.recorded.answer_ids
    return next((sides[at].answer_ids for sides in made.values() if at < len(sides) and sides[at].answer_ids), ())


def _base(recorded: CheckedSide | None, first: CheckedSide | None) -> CheckedSide | None:
    """Return the base: the record, with the first engine's values for what it lacks; without a record, the first
    engine's result."""
    if recorded is None or first is None:
        return recorded or first
    base = (
        recorded
        if recorded.is_answered
        else msgspec.structs.replace(
            first,
            text=recorded.text,
            token_ids=recorded.token_ids or first.token_ids,
            media=recorded.media or first.media,
        )
    )
    return msgspec.structs.replace(base, seen=first.seen, words=first.words | recorded.words)


def changed_fingerprint(then: EngineFingerprint, now: EngineFingerprint) -> dict[str, tuple[object, object]]:
    """Return how two engine fingerprints differ: name → (then, now). Facts that were unknown then are left out; between
    two kinds of engines, so are engine arguments that only one fingerprint has. The value None is the engine's
    default."""
    before, after = msgspec.to_builtins(then), msgspec.to_builtins(now)
    old, new = before.pop("engine_args"), after.pop("engine_args")
    pairs = {name: (before[name], after[name]) for name in before if before[name] and before[name] != after[name]}
    names = old.keys() & new.keys() if "backend" in pairs else old.keys() | new.keys()
    both = {f"engine_args.{name}": (old.get(name), new.get(name)) for name in sorted(names)}
    return pairs | {name: pair for name, pair in both.items() if pair[0] != pair[1]}
