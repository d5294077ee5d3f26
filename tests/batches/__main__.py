"""`python -m tests.batches --kills 100`: the long campaign. Exits 1 if an item was lost, twice, or wrong."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.batches.campaign import BatchCampaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.batches", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("scripted", "vllm"), default="scripted")
    parser.add_argument("--patience", type=float, default=240.0, metavar="S", help="how long nothing may go on")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="vlmtui-"))
    campaign = BatchCampaign(
        folder, items=options.items, seed=options.seed, engine=options.engine, patience_s=options.patience
    )
    campaign.play(options.kills)
    print(campaign.table())
    print("\n".join(campaign.losses))
    if campaign.losses:
        print(f"What was there is kept in {folder}.")
    else:
        shutil.rmtree(folder)
    return 1 if campaign.losses else 0


if __name__ == "__main__":
    sys.exit(main())
