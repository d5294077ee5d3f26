"""Holds the processor arguments of the records against the installed processors: their names, and their defaults.

Run it after an upgrade of Transformers or vLLM: `python tools/processor_defaults.py`. Exit code 1: a default differs
from that of the installed class, and no file of a checkpoint is known to set it.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "src/vlmtui/worker/site")]

from vlmtui.registry.loader import Registry  # noqa: E402
from vlmtui.registry.schema import Family  # noqa: E402

BY_CHECKPOINT = {
    "exaone4_5": ("min_pixels", "max_pixels"),
    "mistral3": ("size",),
    "paddleocr_vl": ("min_pixels", "max_pixels"),
    "qwen2_5_omni": ("min_pixels", "max_pixels"),
    "qwen2_5_vl": ("min_pixels", "max_pixels"),
    "qwen2_vl": ("min_pixels", "max_pixels"),
    "qwen3_5": ("size",),
    "qwen3_5_moe": ("size",),
    "qwen3_vl": ("size",),
    "qwen3_vl_moe": ("size",),
    "shapes": ("min_pixels", "max_pixels"),
}
"""Defaults that the checkpoint's preprocessor_config.json sets over those of the class."""
_EDGES = {"min_pixels": "shortest_edge", "max_pixels": "longest_edge"}


def installed_defaults(model_type: str) -> dict[str, object] | None:
    """Return what the installed classes of a model type have as defaults, by argument; None: Transformers has none."""
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES
    from transformers.models.auto.video_processing_auto import VIDEO_PROCESSOR_MAPPING_NAMES

    found: dict[str, object] = {}
    for names in (VIDEO_PROCESSOR_MAPPING_NAMES.get(model_type), IMAGE_PROCESSOR_MAPPING_NAMES.get(model_type)):
        for made in _classes(names):
            found |= {name: getattr(made, name) for name in dir(made) if not name.startswith("_")}
    size = found.get("size")
    for name, edge in _EDGES.items():
        if found.get(name) is None and isinstance(size, Mapping):
            found[name] = size.get(edge)
    for made in _classes(PROCESSOR_MAPPING_NAMES.get(model_type)):
        module = importlib.import_module(made.__module__)
        kwargs = [
            one for name, one in vars(module).items() if name.endswith("ProcessorKwargs") and name != "ProcessorKwargs"
        ]
        for defaults in (getattr(one, "_defaults", {}) for one in kwargs):
            for part in ("images_kwargs", "videos_kwargs"):
                found |= defaults.get(part, {})
    return found or None


def _classes(names: object) -> Iterator[Any]:
    import transformers

    several = names.values() if isinstance(names, Mapping) else names if isinstance(names, list | tuple) else [names]
    for name in several:
        made = getattr(transformers, name, None) if isinstance(name, str) else None
        if made is not None:
            yield made
            return


def compared(family: Family) -> Iterator[dict[str, object]]:
    """Yield each argument of a record: its default there, and the installed one."""
    known = next((found for one in family.model_types if (found := installed_defaults(one)) is not None), None)
    for name, value in family.processor.items():
        other = None if known is None else known.get(name)
        if isinstance(other, Mapping):
            other = dict(other)
        elif other is not None and not isinstance(other, bool | int | float):
            other = {
                key: one for key in ("shortest_edge", "longest_edge") if (one := getattr(other, key, None))
            } or None
        own = name in BY_CHECKPOINT.get(family.family, ())
        state = "unknown here" if other is None else "same" if other == value else "checkpoint" if own else "differs"
        yield {"family": family.family, "argument": name, "record": value, "installed": other, "state": state}


def main() -> int:
    """Print a line of JSON an argument."""
    found = [one for family in Registry.bundled().values() for one in compared(family)]
    for one in found:
        print(json.dumps(one))
    return 1 if any(one["state"] == "differs" for one in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
