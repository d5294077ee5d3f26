"""A client as a process of its own, for a test to kill: it asks the running worker and prints what comes.

python -m tests.worker.lost_client ROOT SPEC REQUEST
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from tests.support.hosts import patient_host
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import Delta, GenerateRequest
from vlmtui.paths import Paths


async def main(root: str, spec: str, request: str) -> None:
    host = patient_host(Paths.below(Path(root)))
    engine = await host.open(msgspec.json.decode(spec, type=LoadSpec), client="app", keep_alive_s=None)
    async for _ in engine.load():
        pass
    async for event in engine.generate(msgspec.json.decode(request, type=GenerateRequest)):
        if isinstance(event, Delta):
            print(event.text, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
