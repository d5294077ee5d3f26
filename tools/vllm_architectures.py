"""Writes the multimodal architectures of the installed vLLM to `registry/architectures.json`; run it after a vLLM
upgrade.

Also prints routes through another version of vLLM, a class of vlmtui or Transformers that are no longer needed. Reads
the packages as source text, so it needs no torch and is fast.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec

from vlmtui.registry.architectures import Architectures, known_architectures, read_architectures
from vlmtui.registry.loader import Registry
from vlmtui.registry.routes import vllm_version
from vlmtui.registry.schema import Family

TARGET = Path(__file__).parent.parent / "src" / "vlmtui" / "registry" / "architectures.json"


def installed() -> Architectures:
    """Return the architectures of the vLLM and Transformers in this environment. Raises FileNotFoundError without
    vLLM."""
    version = vllm_version()
    specs = [importlib.util.find_spec(name) for name in ("vllm", "transformers")]
    folders = [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin is not None]
    if version is None or len(folders) < len(specs):
        raise FileNotFoundError("vLLM or Transformers is not installed")
    return read_architectures(version, *folders)


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
    TARGET.write_text(json.dumps(msgspec.to_builtins(facts), indent=1) + "\n", encoding="utf-8")
    for line in unneeded_routes(Registry.bundled().values(), facts.multimodal):
        print(line)
