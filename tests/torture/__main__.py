"""`python -m tests.torture --rounds 200`: the long campaign. Exits 1 when anything was lost, or left behind."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import get_args

from tests.torture.campaign import EngineKind
from tests.torture.rounds import KINDS, Rounds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=get_args(EngineKind), default="scripted")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=(), metavar="KIND", help=", ".join(KINDS))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="vlmtui-"))
    rounds = Rounds(folder, seed=options.seed, engine=options.engine, kinds=options.kinds)
    try:
        rounds.play(options.rounds)
        print(rounds.table())
        print("\n".join(rounds.losses))
    finally:
        if rounds.losses:
            print(f"What was there is kept in {folder}.")
        else:
            shutil.rmtree(folder)
    return 1 if rounds.losses else 0


if __name__ == "__main__":
    sys.exit(main())
