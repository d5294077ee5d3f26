"""Compares the defaults of processor arguments in the family records with their sources.

Run it after an upgrade of Transformers or vLLM: `python tools/processor_defaults.py`. Prints a line of JSON for each
argument with a default. Exit code 1: a default differs from its source.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "src/vlmtui/worker/site"


def value_at(source: str) -> object:
    """Return the value of `module:attribute.key`, or of a bundled model's `folder/file.json:key`."""
    place, _, path = source.partition(":")
    found: object
    if place.endswith(".json"):
        found = json.loads((ROOT / "src/vlmtui/bundled" / place).read_bytes())
    else:
        found = importlib.import_module(place)
    for step in path.split("."):
        found = found[step] if isinstance(found, Mapping) else getattr(found, step)
    return found


def compared() -> Iterator[dict[str, object]]:
    """Yield each default of a record together with the value in its source."""
    from vlmtui.registry.loader import Registry

    for family in Registry.bundled().values():
        for name, argument in family.processor.items():
            if argument.default is None:
                continue
            try:
                there = value_at(argument.source)
            except (ImportError, AttributeError, KeyError, OSError) as error:
                there = f"{type(error).__name__}: {error}"
            is_same = there == argument.default and isinstance(there, bool) == isinstance(argument.default, bool)
            yield {
                "family": family.family,
                "argument": name,
                "record": argument.default,
                "source": argument.source,
                "there": there if isinstance(there, bool | int | float | str | dict) else repr(there),
                "same": is_same,
            }


def main() -> int:
    """Compare in a process that can import torchvision beside a CPU build of torch, as a worker's can."""
    if str(SITE) not in os.environ.get("PYTHONPATH", ""):
        path = os.pathsep.join(filter(None, [str(SITE), str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONPATH": path})
    found = list(compared())
    for one in found:
        print(json.dumps(one))
    return 0 if all(one["same"] for one in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
