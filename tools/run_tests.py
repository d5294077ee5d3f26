#!/usr/bin/env python3
"""Run the tests, and look at the few that failed a second time, alone: `python tools/run_tests.py ARGUMENTS-OF-PYTEST`.

Thousands of tests that share two cores with engines being loaded now and then meet a stall that nothing bears. So what
failed is run once more, in one process, with nothing beside it. What fails again is a failure. What passes alone is
named at the end, since it depends on its neighbours or on time, and ought to be mended. More than `MOST` failures are
no bad luck: nothing is run again.

Exits as pytest does; 0 where all that failed has passed alone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 6
_TESTS_FAILED = 1  # pytest.ExitCode.TESTS_FAILED


def pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "failed"
        status = pytest(f"--list-failed={listed}", *arguments)
        failed = listed.read_text("utf-8").splitlines() if listed.exists() else []
    if status != _TESTS_FAILED or not 0 < len(failed) <= MOST:
        return status
    print(f"\nFailed: {len(failed)}. Once more, alone:", *failed, sep="\n  ", flush=True)
    status = pytest("-n", "0", *failed)
    if status == 0:
        print("\nFailed beside others and passed alone, so to be mended:", *failed, sep="\n  ", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
