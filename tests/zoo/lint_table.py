"""Lint's findings as a table: `PYTHONPATH=src/vlmtui/worker/site python -m tests.zoo.lint_table` (two minutes).

Each of the broken templates of `tests/unit/inspection/test_lint.py` with the kind and line that are named, then every
family: by the template that its record generates, or, where the tokenizer or processor writes its prompts, by that of
its tiny model, less the exceptions that have a reason (`tests/zoo/test_lint.py`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.unit.inspection.test_lint import FAULTS, _write_tokenizer
from tests.zoo.kit import load_recipes, make_checkpoint
from tests.zoo.test_lint import EXCEPTIONS
from vlmtui.domain.model_reading import ReadRequest
from vlmtui.inspection.lint.check import check_reading, record_templates
from vlmtui.inspection.lint.finding import LintFinding
from vlmtui.inspection.lint.subject import canned_conversations, render_case
from vlmtui.registry.loader import Registry
from vlmtui.registry.schema import Family
from vlmtui.worker.model_reader import read_model

SECONDS = 3.0
"""For each template, on a busy machine."""


def found_in(family: Family, folder: Path | None, sources: dict[str, str], *, of_record: bool) -> list[LintFinding]:
    canned = canned_conversations(family)
    cases = tuple(render_case(family, one) for one in canned)
    request = ReadRequest(folder=str(folder or ""), trust_remote_code=True, templates=sources, cases=cases)
    return list(check_reading(family, read_model(request, seconds=SECONDS), canned, of_record=of_record))


def faults(registry: Registry, base: Path) -> int:
    """Print a line a broken template; return how many were named."""
    folders: dict[str, Path] = {}
    named = 0
    for fault in FAULTS:
        family = registry[fault.family]
        if fault.family not in folders:
            folders[fault.family] = base / f"tokenizer-{fault.family}"
            _write_tokenizer(family, folders[fault.family])
        source = record_templates(family)["record"].replace(fault.old, fault.new)
        found = found_in(family, folders[fault.family], {"template": source}, of_record=False)
        of_kind = [one for one in found if one.kind is fault.kind and fault.line in (None, one.line)]
        named += bool(of_kind)
        line = f"line {of_kind[0].line}" if of_kind and of_kind[0].line else ""
        print(f"{'found' if of_kind else 'NOT':6} {fault.family:16} {fault.what:48} {fault.kind.value:26} {line}")
    print(f"{named} of {len(FAULTS)} broken templates named")
    return named


def records(registry: Registry, base: Path) -> int:
    """Print a line a family; return how many are sound, have nothing but known faults, or can't be checked."""
    recipes = load_recipes()
    sound = unchecked = 0
    for family in registry.values():
        sources = record_templates(family)
        known: dict[str, str] = {}
        if sources:
            found, by = found_in(family, None, sources, of_record=True), "record"
        elif family.family in recipes:
            folder = make_checkpoint(family.family, base / family.family)
            found, by, known = (
                found_in(family, folder, {}, of_record=False),
                "tiny model",
                EXCEPTIONS.get(family.family, {}),
            )
        else:
            print(f"{'–':6} {family.family:26} not checked: its tokenizer writes the prompt, and it has no tiny model")
            unchecked += 1
            continue
        kinds = {one.kind.value for one in found}
        sound += kinds == set(known)
        said = "; ".join(f"{kind}: {known.get(kind, '?')}" for kind in sorted(kinds))
        print(f"{'sound' if kinds == set(known) else 'NOT':6} {family.family:26} {by:10} {said}".rstrip())
    print(f"{sound} of {len(registry)} families without a finding, or with known ones alone; {unchecked} not checked")
    return sound + unchecked


def main() -> int:
    registry = Registry.bundled()
    with tempfile.TemporaryDirectory() as folder:
        is_good = faults(registry, Path(folder)) == len(FAULTS)
        return 0 if records(registry, Path(folder)) == len(registry) and is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())
