#!/usr/bin/env python3
"""Run the tests, and repeat the few that failed, alone: `python tools/run_tests.py ARGUMENTS-OF-PYTEST`.

Tests share the processor cores with engines that are loading, so a test may stall. Failed tests run once more, in one
process, one after another. If a test fails again, it counts as failed. If it passes, it is named at the end: it depends
on other tests or on time, and should be fixed. If more than `MOST` tests fail, none is repeated.

Exits as pytest does; 0 if every failed test passed alone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 10
SLOWEST = ("--durations=60", "--durations-min=5")
"""Options that list the slowest tests of the run."""
_TESTS_FAILED = 1  # pytest.ExitCode.TESTS_FAILED


def pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "failed"
        status = pytest(f"--list-failed={listed}", *SLOWEST, *arguments)
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
