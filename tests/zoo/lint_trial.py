"""Checks the chat templates of the zoo's tiny models: `python -m tests.zoo.lint_trial FOLDER FILE.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.zoo.kit import load_recipes, make_checkpoint
from vlmtui.domain.model_reading import ReadRequest
from vlmtui.inspection.lint.check import check_reading
from vlmtui.inspection.lint.subject import canned_conversations, render_case
from vlmtui.registry.loader import Registry
from vlmtui.worker.model_reader import read_model


def main(root: Path, file: Path) -> None:
    """Write the findings' kinds by family."""
    registry = Registry.bundled()
    kinds: dict[str, list[str]] = {}
    for name in load_recipes():
        folder = make_checkpoint(name, root / name)
        canned = canned_conversations(registry[name])
        cases = tuple(render_case(registry[name], one) for one in canned)
        reading = read_model(ReadRequest(folder=str(folder), trust_remote_code=True, cases=cases))
        kinds[name] = sorted({one.kind.value for one in check_reading(registry[name], reading, canned)})
    file.write_text(json.dumps(kinds))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
