"""`python -m benchmarks`: every benchmark in turn; exits 1 when one is outside its budget."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

ALL = (
    "first_paint",
    "records",
    "store",
    "engine_overhead",
    "token_cost",
    "remote_overhead",
    "remote_equality",
    "both_at_once",
    "streaming",
    "batch",
    "conversations",
    "media",
    "large_pictures",
    "picture_symbols",
)


def main() -> int:
    failed = 0
    for name in ALL:
        if importlib.util.find_spec(f"benchmarks.{name}") is None:
            continue
        print(f"== {name}", flush=True)
        failed |= subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
