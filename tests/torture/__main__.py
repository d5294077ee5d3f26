"""`python -m tests.torture --rounds 200`: the long campaign. Exits 1 when anything was lost."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.torture.campaign import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("scripted", "vllm"), default="scripted")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vlmtui-") as folder:
        campaign = run(Path(folder), rounds=options.rounds, seed=options.seed, engine=options.engine)
        for number, blow, what in campaign.losses.found:
            print(f"round {number} ({blow}): {what}")
    return 1 if campaign.losses.found else 0


if __name__ == "__main__":
    sys.exit(main())
