"""A batch over several servers: the real command and the real workers for servers, against servers of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.batches.campaign import BatchCampaign
from tests.support.fault_server import FaultServer, fault_server, sends
from vlmtui.paths import Paths

pytestmark = pytest.mark.process
ITEMS = 40


@pytest.fixture
def folder(short_path: Path) -> Iterator[Path]:
    campaign = BatchCampaign(short_path, items=1)
    assert campaign.paths == Paths.below(short_path / "data")
    yield short_path
    campaign.end_workers()


async def batch(folder: Path, *servers: FaultServer) -> tuple[int | None, str, list[dict[str, object]]]:
    """The exit code, what was said, and the lines."""
    items = ({"id": f"{number}", "prompt": f"hello {number}"} for number in range(ITEMS))
    (folder / "in.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    on = [word for server in servers for word in ("--on", server.url)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vlmtui", "batch", str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl"), *on),
        *("--max-concurrency", "2", "--keep-alive", "0"),
        env={**os.environ, "VLMTUI_DATA_DIR": str(folder / "data"), "HOME": str(folder)},
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, error = await process.communicate()
    return process.returncode, error.decode(), [json.loads(line) for line in (folder / "out.jsonl").open()]


async def test_items_go_to_whichever_server_has_room(folder: Path) -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(fault_server()) for _ in range(2)]
        code, error, lines = await batch(folder, *servers)
        assert code == 0, error
        assert sorted(int(str(line["id"])) for line in lines) == list(range(ITEMS))
        assert {line["answer"] for line in lines} == {"A red circle."}
        asked = [body["messages"] for server in servers for body in server.bodies]
        assert len(asked) == ITEMS
        assert all(server.bodies for server in servers)


async def test_a_server_that_fails_leaves_its_items_to_the_other(folder: Path) -> None:
    async with AsyncExitStack() as stack:
        good, bad = [await stack.enter_async_context(fault_server()) for _ in range(2)]
        down = sends({"error": {"message": "EngineCore encountered an issue.", "code": 500}}, status=503)
        bad.replies["/v1/chat/completions"] = [down] * (3 * ITEMS)
        bad.health = 503
        code, error, lines = await batch(folder, good, bad)
        assert code == 0, error
        assert sorted(int(str(line["id"])) for line in lines) == list(range(ITEMS))
        assert bad.bodies
        assert {line["error"] for line in lines} == {None}
