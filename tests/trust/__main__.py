"""`python -m tests.trust`: hostile inputs of every kind, and whether a canary was touched. Exits 1 if one was."""

from __future__ import annotations

import argparse

from tests.trust.campaign import SHARES, run_kind
from tests.trust.inputs import ARGUMENTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trust", description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[[], *SHARES], help="all of them where none is named")
    parser.add_argument("--examples", type=int, default=10_000, help="inputs in all (10000)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{'kind':12} {'inputs':>7} {'refused':>8} {'launched':>9} {'seconds':>8}  findings")
    results = []
    for kind in options.kinds or SHARES:
        # Every argument has its turn, also in the kinds with a small share.
        count = max(options.examples * SHARES[kind] // 100, len(ARGUMENTS) if options.examples >= 10_000 else 1)
        one = run_kind(kind, count, options.seed)
        results.append(one)
        numbers = f"{one.inputs:7} {one.refused:8} {one.launched:9} {one.seconds:8.1f}  {len(one.findings)}"
        print(f"{kind:12} {numbers}", flush=True)
        for finding in one.findings[:10]:
            print(f"  {finding}")
    total, findings = sum(one.inputs for one in results), sum(len(one.findings) for one in results)
    refused, launched = sum(one.refused for one in results), sum(one.launched for one in results)
    print(f"{'all':12} {total:7} {refused:8} {launched:9} {sum(one.seconds for one in results):8.1f}  {findings}")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
