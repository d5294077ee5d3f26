"""A real server of two data-parallel ranks, through our worker: chat, raw, both at once, many at once, a batch; and a
rank that is killed while others stream."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.engine.test_remote_server import slowed
from tests.support.asker import Asker
from tests.support.hosts import patient_host
from tests.support.pictures import Easel
from tests.support.vllm_server import VllmServer, free_port
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import EngineReady, LoadSpec
from vlmtui.domain.generation import Delta, Failed, Finished, GenerateRequest, Request
from vlmtui.domain.metrics import MetricsSample
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.errors import ErrorKind
from vlmtui.paths import Paths
from vlmtui.registry.match import Model
from vlmtui.session.generation import make_request, new_request_id

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(2400)]
RANK = "X-data-parallel-rank"
RANKS = 2
NODES = ",".join(["0"] * RANKS)
"""The NUMA node of each rank. By itself vLLM 0.33 gives each a node of its own, and ends where there is only one."""
QUESTION = "What is in this image?"


class Running(msgspec.Struct, frozen=True):
    """The server."""

    url: str
    server: VllmServer

    def kill_a_rank(self) -> None:
        found = self.server.processes("VLLM::EngineCore_DP1")
        assert found, [" ".join(process.cmdline()) for process in self.server.processes()]
        for process in found:
            process.kill()


@pytest.fixture(scope="module")
def running(shapes: Model) -> Iterator[Running]:
    """The server, loading or loaded. It ends with the last test."""
    port = str(free_port())
    with tempfile.TemporaryDirectory(prefix="vlmtui-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        arguments = ["--port", port, "--data-parallel-size", str(RANKS)]
        server = VllmServer(shapes.spec.model, Path(folder), arguments, CPU_VISIBLE_MEMORY_NODES=NODES)
        try:
            yield Running(f"http://127.0.0.1:{port}", server)
        finally:
            server.end()


@asynccontextmanager
async def connected(
    running: Running, folder: Path, *, headers: Mapping[str, str] | None = None, **options: object
) -> AsyncIterator[WorkerClient]:
    """A worker of its own, once the servers listen."""
    given = {"url": running.url, "wait_s": 1200, "headers": dict(headers or {}), **options}
    spec = LoadSpec(model="shapes", name="shapes", backend="remote", engine_args=given, typed=tuple(given))
    client = await patient_host(Paths.below(folder)).open(spec, client="tests", keep_alive_s=0)
    try:
        loading = asyncio.create_task(loaded(client))
        while not (await asyncio.wait({loading}, timeout=1.0))[0]:
            assert running.server.process.poll() is None, running.server.newest()
        events = loading.result()
        assert isinstance(events[-1], EngineReady), (events[-1], running.server.newest())
        yield client
    finally:
        await client.shutdown()


async def loaded(client: WorkerClient) -> list[object]:
    return [event async for event in client.load()]


def endless(model: Model) -> GenerateRequest:
    """Does not end before the context does."""
    request = make_request(model.family, [user_turn("Count to 200.")], Sampling())
    return msgspec.structs.replace(request, sampling=Sampling(max_tokens=None, extra={"ignore_eos": True}))


async def test_all_ways_to_ask_work_through_it(running: Running, shapes: Model, short_path: Path) -> None:
    picture = Easel(short_path).picture(("red", "circle", "left"))
    turn = user_turn(QUESTION, [picture.attachment])
    async with connected(running, short_path) as client:
        ask = Asker(client, shapes)
        chat, raw = await asyncio.gather(ask(turn), ask(turn, mode="raw"))  # as a comparison does
        assert isinstance(chat.outcome, Finished) and isinstance(raw.outcome, Finished)
        assert chat.prompt is not None and raw.prompt is not None
        assert chat.prompt.token_ids == raw.prompt.token_ids
        assert [(span.modality, span.length) for span in chat.prompt.media] == [("image", 36)]
        assert chat.token_ids == raw.token_ids
        assert "red circle" in chat.text
        many = await asyncio.gather(*(ask(turn, sampling=Sampling(max_tokens=30)) for _ in range(8)))
        assert [answer.outcome for answer in many if not isinstance(answer.outcome, Finished)] == []
        assert {answer.text for answer in many} == {many[0].text}
        await until_ranks_generated(client)
    lines = await batch(running.url, short_path, items=20)
    assert [line["error"] for line in lines if line["error"]] == []
    assert sorted(int(line["id"]) for line in lines) == list(range(20))
    assert len({line["answer"] for line in lines}) == 1 and lines[0]["answer"]
    assert lines[0]["answer"] == many[0].text


async def batch(url: str, folder: Path, *, items: int) -> list[dict[str, Any]]:
    """The lines of `vlmtui batch --engine URL` about one picture."""
    (folder / "batch").mkdir()
    image = Easel(folder / "batch").picture(("red", "circle", "left")).path
    asked = [{"id": f"{number}", "prompt": QUESTION, "images": [str(image)]} for number in range(items)]
    (folder / "in.jsonl").write_text("".join(json.dumps(item) + "\n" for item in asked))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vlmtui", "batch", str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl")),
        *("--engine", url, "--set", "max_tokens=30", "--keep-alive", "0"),
        env={**os.environ, "VLMTUI_DATA_DIR": str(folder / "batch"), "HOME": str(folder)},
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    return [json.loads(line) for line in (folder / "out.jsonl").open()]


async def until_ranks_generated(client: WorkerClient) -> None:
    """Wait until the metrics say that both ranks did. The first samples are of before."""
    async with asyncio.timeout(60), aclosing(client.metrics()) as samples:
        async for told in samples:
            assert isinstance(told, MetricsSample), told
            assert len(told.metrics.ranks) == RANKS
            if all(rank.generated_tokens for rank in told.metrics.ranks):
                return


async def test_a_killed_rank_leaves_no_answer_that_looks_complete(
    running: Running, shapes: Model, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test: the server does not outlive it."""
    async with AsyncExitStack() as stack:
        clients = []
        for rank in range(RANKS):
            monkeypatch.setenv(f"RANK_{rank}", str(rank))
            opening = connected(
                running, short_path / str(rank), headers={RANK: f"env:RANK_{rank}"}, stall_s=2.0, silence_max_s=60.0
            )
            clients.append(await stack.enter_async_context(opening))
        streams = []
        with slowed(running.server, run_s=0.15):
            for client in clients:  # that of the rank that is killed comes last, so that it still goes on
                begun = asyncio.Event()
                streams.append(asyncio.create_task(stream(client, endless(shapes), begun)))
                await begun.wait()
        assert not streams[-1].done(), ("it ended before anything was killed", streams[-1].result())
        running.kill_a_rank()
        *others, (kept, last) = await asyncio.gather(*streams)
        if isinstance(last, Finished) and last.usage.prompt_tokens + last.usage.completion_tokens == 4096:
            pytest.skip("the whole answer had come before its rank was killed")
        assert isinstance(last, Failed), last
        assert last.failure.kind is ErrorKind.NO_NETWORK and last.failure.hint, last
        assert kept, "what came is kept"
        for _, end in others:  # the other rank may live on, and its answer end as it should
            is_whole = isinstance(end, Finished) and end.usage.prompt_tokens + end.usage.completion_tokens == 4096
            assert is_whole or isinstance(end, Failed), end


async def stream(client: WorkerClient, request: Request, begun: asyncio.Event) -> tuple[str, object]:
    text, last = "", None
    request = msgspec.structs.replace(request, request_id=new_request_id())
    async for event in client.generate(request):
        if isinstance(event, Delta):
            text += event.text
            begun.set()
        last = event
    begun.set()
    return text, last
