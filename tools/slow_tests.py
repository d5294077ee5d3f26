#!/usr/bin/env python3
"""Write `tests/slow.txt`, the tests that are too slow for `make test-fast`: `make slow-tests`.

Runs the unit and screen tests that start no processes, and lists each test that takes more than `LIMIT_S` seconds of
processor time; of a parametrized test, the slowest case counts. Processor time hardly depends on the load of the
machine. Tests in `KEPT` are never listed. `tests/conftest.py` marks the listed tests as slow; `make test-fast` fails if
another test takes more than three seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

LIMIT_S = 0.35
KEPT = ("tests/unit/test_architecture.py::", "tests/unit/inspection/test_lint.py::")
"""Beginnings of the ids of tests that always run: the structure of the source, which every change may break; and the
only tests of a feature, of which the first imports Transformers."""
LISTED = Path(__file__).resolve().parents[1] / "tests" / "slow.txt"
_HEAD = """\
# What takes more than {limit} seconds of processor time: not in `make test-fast`; `make slow-tests` writes this.
"""


def slow(costs: Mapping[str, float]) -> list[str]:
    """Return the tests with a case that costs too much, sorted. `costs`: seconds by the ids of the cases."""
    found = {case.partition("[")[0] for case, seconds in costs.items() if seconds > LIMIT_S}
    return sorted(name for name in found if not name.startswith(KEPT))


def write(names: Iterable[str]) -> None:
    LISTED.write_text(_HEAD.format(limit=LIMIT_S) + "".join(f"{name}\n" for name in names), encoding="utf-8")


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        costs = Path(folder) / "costs.json"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not process", "--hypothesis-profile=fast"]
        status = subprocess.run(
            [*command, f"--costs={costs}", "tests/unit", "tests/ui", *arguments], check=False
        ).returncode
        if status == 0:
            write(slow(json.loads(costs.read_bytes())))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
