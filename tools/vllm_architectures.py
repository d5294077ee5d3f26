"""Writes the multimodal architectures of the installed vLLM into the registry; run it after a vLLM upgrade.

Reads the tables of vLLM's registry as source text, so it needs neither torch nor a minute.
"""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path

from vlmtui.registry.routes import vllm_version

TARGET = Path(__file__).parent.parent / "src" / "vlmtui" / "registry" / "architectures.json"


def tables() -> dict[str, dict[str, object]]:
    """Return the literal tables of vLLM's model registry by name. Raises FileNotFoundError without vLLM."""
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
    """The classes of the installed Transformers for images and text, read as source text."""
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
    """The version; the architectures that take images or videos; those that were dropped, with their last version;
    those of plugins, with where these are; and those of Transformers."""
    found = tables()
    backend = [name for name, served in found["_TRANSFORMERS_SUPPORTED_MODELS"].items() if "MultiModal" in str(served)]
    return {
        "vllm": vllm_version(),
        "multimodal": sorted({*found["_MULTIMODAL_MODELS"], *backend}),
        "removed": found["_PREVIOUSLY_SUPPORTED_MODELS"],
        "plugin": found["_OOT_SUPPORTED_MODELS"],
        "transformers": transformers_classes(),
    }


if __name__ == "__main__":
    TARGET.write_text(json.dumps(installed(), indent=1) + "\n", encoding="utf-8")
