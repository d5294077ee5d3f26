"""Run every benchmark in turn: `python -m benchmarks`. Exit with 1 if one is outside its budget."""

from __future__ import annotations

import subprocess
import sys

ALL = (
    "first_paint",
    "records",
    "store",
    "engine_overhead",
    "remote_overhead",
    "remote_equality",
    "both_at_once",
    "streaming",
    "batch",
    "conversations",
    "media",
    "large_pictures",
)


def main() -> int:
    failed = 0
    for name in ALL:
        print(f"== {name}", flush=True)
        failed |= subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
