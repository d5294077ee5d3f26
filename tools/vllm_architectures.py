"""Writes the multimodal architectures of the installed vLLM to `registry/architectures.json`; run it after a vLLM
upgrade.

Also prints routes through another version of vLLM, a class of vlmtui or Transformers that are no longer needed. Reads
vLLM's registry as source text, so it needs no torch and is fast.
"""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from vlmtui.registry.loader import Registry
from vlmtui.registry.routes import known_architectures, vllm_version
from vlmtui.registry.schema import Family

TARGET = Path(__file__).parent.parent / "src" / "vlmtui" / "registry" / "architectures.json"


def tables() -> dict[str, dict[str, object]]:
    """Return the literal tables of vLLM's model registry, by name. Raises FileNotFoundError without vLLM."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("vLLM is not installed")
    source = (Path(spec.origin).parent / "model_executor" / "models" / "registry.py").read_text(encoding="utf-8")
    found: dict[str, dict[str, object]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and None not in node.value.keys:
            target = node.targets[0]
            if isinstance(target, ast.Name) and all(isinstance(key, ast.Constant) for key in node.value.keys):
                found[target.id] = ast.literal_eval(node.value)
    return found


def transformers_classes() -> list[str]:
    """Return the installed Transformers' classes for images and text, read as source text."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("Transformers is not installed")
    source = (Path(spec.origin).parent / "models" / "auto" / "modeling_auto.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id == "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES":
                return sorted({name for _, name in ast.literal_eval(node.value.args[0])})
    raise ValueError("Transformers has no table of models for images and text")


def installed() -> dict[str, object]:
    """Return vLLM's version; the architectures that take images or videos; removed ones, with their last version; those
    of plugins, with their places; and those of Transformers."""
    found = tables()
    backend = [name for name, served in found["_TRANSFORMERS_SUPPORTED_MODELS"].items() if "MultiModal" in str(served)]
    return {
        "vllm": vllm_version(),
        "multimodal": sorted({*found["_MULTIMODAL_MODELS"], *backend}),
        "removed": found["_PREVIOUSLY_SUPPORTED_MODELS"],
        "plugin": found["_OOT_SUPPORTED_MODELS"],
        "transformers": transformers_classes(),
    }


def unneeded_routes(families: Iterable[Family], multimodal: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each route that avoids a class although this version of vLLM has it and can run it."""
    version = known_architectures().vllm
    for family in families:
        if any(version in route.broken for route in family.routes):
            continue
        first = family.routes[0]
        if first.engine == "vllm" and not (first.until or first.model_class):
            continue  # the class comes first; the other routes are for machines that cannot run it
        own = [name for name in (*family.architectures, *_vllm_classes(family)) if name in multimodal]
        for route in family.routes:
            if own and (route.engine in ("pinned", "transformers") or route.model_class):
                around = route.vllm or route.model_class or route.engine
                yield f"{family.family}: vLLM has {own[0]}; try it without its route {around}."


def _vllm_classes(family: Family) -> list[str]:
    return [route.architecture for route in family.routes if route.engine == "vllm" and route.until]


if __name__ == "__main__":
    facts = installed()
    TARGET.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    multimodal = facts["multimodal"]
    assert isinstance(multimodal, list)
    for line in unneeded_routes(Registry.bundled().values(), multimodal):
        print(line)
