"""Writes the table of docs/families.md from the family records and the results of the zoo (`make zoo`: a tiny model of
each family in the real engine)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vlmtui.registry.architectures import Architectures, known_architectures
from vlmtui.registry.loader import Registry
from vlmtui.registry.schema import Family, Route

PAGE = Path(__file__).parent.parent / "docs" / "families.md"
RESULTS = PAGE.parent.parent / "tests" / "data" / "zoo_results.json"
_CASES = {"image": "one image", "images": "two", "video": "video", "audio": "sound"}
_NAMES = {
    "vllm": "vLLM",
    "vllm-transformers": "vLLM, Transformers backend",
    "transformers": "Transformers",
    "pinned": "vLLM {}, an engine of its own",
}
_CONTROLS = {"stop": "stop token", "logprobs": "log-probabilities", "cancel": "cancel"}
"""Checks of the zoo besides answering. The page says that all succeed; the table names failed ones."""
BEGIN, END = "<!-- families: made by `make families` -->", "<!-- families end -->"


def table() -> str:
    """Return the Markdown table for the vLLM version that the records were checked against."""
    known = known_architectures()
    seen = results()
    lines = [
        "| family | models | takes | route | verified | seen | answered here on |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for family in Registry.bundled().values():
        takes = ", ".join(_takes(modality, one.max_items) for modality, one in family.takes.items())
        models = family.models[0].removeprefix("bundled:")
        engine, saw = _engine(family, seen), _saw(family, seen)
        verified = ", ".join([_verified(family), *_failed_controls(seen.get(family.family, {}))])
        cells = (family.family, models, takes, _route(family, known), verified, saw, engine)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def results() -> dict[str, dict[str, Any]]:
    """Return the results of `make zoo ARGS=--record` by family: the engine, and the passed and failed cases."""
    found: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def answered(result: Mapping[str, Any]) -> str:
    """Return the media that a family answered about, in each mode of its tokenizer: `one image, two, video`."""
    passed, failed = set(result["passed"]), set(result["failed"])
    return ", ".join(said for case, said in _CASES.items() if f"{case} chat" in passed and f"{case} raw" not in failed)


def _takes(modality: str, most: int) -> str:
    name = "sound" if modality == "audio" else modality
    return name if most == 1 else f"{most} {name}s"


def _route(family: Family, known: Architectures) -> str:
    for route in family.routes:
        if _is_open(route, known):
            as_what = f" as `{route.architecture}`" if route.hf_overrides else ""
            return _NAMES[route.engine].format(route.vllm) + (", class of vlmtui" if route.model_class else as_what)
    last = next((route.until for route in family.routes if route.until), "")
    if last:
        return f"none in vLLM {known.vllm}; ran up to {last}"
    if any(route.engine == "plugin" for route in family.routes):
        return f"plugin ({family.routes[0].note})"
    first = next((route.since for route in family.routes if route.since), "")
    return f"vLLM from {first}" if first else f"broken in vLLM {known.vllm}"


def _is_open(route: Route, known: Architectures) -> bool:
    backend = "TransformersMultiModalForCausalLM"
    if route.engine in ("transformers", "pinned") or route.model_class:
        return True
    return (
        route.engine != "plugin"
        and not route.until
        and known.vllm not in route.broken
        and (route.architecture in known.multimodal or route.architecture == backend)
    )


def _engine(family: Family, seen: Mapping[str, Mapping[str, Any]]) -> str:
    if family.checked == "trained":
        return "vLLM and Transformers"
    return str(seen[family.family]["engine"]) if family.checked == "engine" and family.family in seen else "–"


def _saw(family: Family, seen: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the checks that the family's tiny model passed: `pixels, answer`."""
    if family.checked == "trained":
        return "pixels, answer"
    passed = set(seen[family.family]["passed"]) if family.checked == "engine" and family.family in seen else set()
    found = {
        "pixels": "image seen" in passed,
        "answer": bool(passed & {"image matters", "video matters"}),
    }
    return ", ".join(name for name, is_so in found.items() if is_so) or "–"


def _verified(family: Family) -> str:
    match family.checked:
        case "trained":
            return "trained model, real engine"
        case "engine":
            return family.checked_note or "tiny model, real engine"
        case _:
            return family.checked_note or "prompt and arguments only"


def _failed_controls(result: Mapping[str, Any]) -> list[str]:
    failed = {case.partition(" ")[2] for case in result.get("failed", ())}
    return [f"{title} failed" for control, title in _CONTROLS.items() if control in failed]


def written(text: str) -> str:
    """Return the page with the new table. Raises ValueError if its markers are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"docs/families.md has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
