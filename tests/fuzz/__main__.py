"""`python -m tests.fuzz`: feed every reader, each in a process of its own, and print what came of it. Exits 1 when
something but `VlmtuiError` came out, or a process died."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.fuzz.campaign import FuzzResult, hunt
from tests.fuzz.readers import READERS

_LONGEST_S = 1800
_WIDEST = 500
"""Columns of a line of a finding: the data may be large, and is kept whole."""
KEPT = Path(".hypothesis") / "fuzz"
"""The folder for data that made a reader fail."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", help="readers; all of them where none is named")
    parser.add_argument("--examples", type=int, default=300, help="for each reader (300)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.names or list(READERS)
    if options.here:
        result = hunt(READERS[names[0]], examples=options.examples, number=options.seed, keep=KEPT)
        sys.stdout.buffer.write(msgspec.json.encode(result))
        return 0
    print(f"{'reader':26} {'examples':>8} {'refused':>8} {'seconds':>8} {'slowest':>8} {'MiB':>6}  findings")
    found = [_in_a_process(name, options.examples, options.seed) for name in names]
    total, seconds = sum(one.examples for one in found), sum(one.seconds for one in found)
    findings = sum(bool(one.finding) for one in found)
    print(f"{'all':26} {total:8} {sum(one.refused for one in found):8} {seconds:8.1f} {'':15}  {findings}")
    return 1 if findings else 0


def _in_a_process(name: str, examples: int, number: int) -> FuzzResult:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", "--here", name]
    command += ["--examples", str(examples), "--seed", str(number)]
    try:
        known = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        ran = subprocess.run(command, env=known, capture_output=True, timeout=_LONGEST_S, check=False)
        result = msgspec.json.decode(ran.stdout, type=FuzzResult)
    except subprocess.TimeoutExpired:
        result = FuzzResult(name, 0, 0, _LONGEST_S, _LONGEST_S, 0, "did not end")
    except msgspec.DecodeError:
        said = ran.stderr.decode(errors="replace")[-4000:]
        result = FuzzResult(name, 0, 0, 0.0, 0.0, 0, f"the process ended with {ran.returncode}\n{said}")
    told = "1" if result.finding else "0"
    print(
        f"{name:26} {result.examples:8} {result.refused:8} {result.seconds:8.1f} {result.slowest_s:7.2f}s"
        f" {result.growth_mib:6}  {told}",
        flush=True,
    )
    if result.finding:
        print("\n".join(line[:_WIDEST] for line in result.finding.splitlines()))
    return result


if __name__ == "__main__":
    sys.exit(main())
