"""The zoo's results, stored for the table in docs/families.md: `python -m tests.zoo --record FAMILY…`."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path

from tests.zoo.kit import Recipe, load_recipes
from tests.zoo.trial import choice_for
from vlmtui.domain.engine import TRANSFORMERS_BACKEND
from vlmtui.registry.loader import Registry
from vlmtui.registry.routes import vllm_version

RECORD = Path(__file__).parent.parent / "data" / "zoo_results.json"


def record(family: str, results: Mapping[str, str]) -> None:
    """Put the results of a family into the file: by what it ran, and which cases it answered in both modes."""
    kept = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    failed = sorted(case for case, said in results.items() if not said.startswith("ok"))
    passed = sorted(case for case in results if case not in failed)
    kept[family] = {"engine": engine_of(family, load_recipes()[family]), "passed": passed, "failed": failed}
    RECORD.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n", encoding="utf-8")


def engine_of(family: str, recipe: Recipe) -> str:
    """Return name and version of what runs the family."""
    choice = choice_for(recipe, Registry.bundled()[family])
    if choice is not None and choice.pinned is not None:
        return f"vLLM {choice.pinned}"
    if choice is not None and choice.backend == TRANSFORMERS_BACKEND:
        return f"Transformers {importlib.metadata.version('transformers')}"
    return f"vLLM {vllm_version()}"
