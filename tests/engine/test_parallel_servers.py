"""Real servers of several ranks and "nodes", over loopback, through our worker: chat, raw, both at once, many at once,
a batch; and a rank that is killed while others stream.

One layout is started with the other tests, all of them by `make distributed` (some minutes each).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.asker import Asker
from tests.support.hosts import patient_host
from tests.support.pictures import Easel
from tests.support.vllm_server import VllmServer, free_port
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import EngineReady, LoadSpec
from vlmtui.domain.generation import Delta, Failed, Finished, GenerateRequest
from vlmtui.domain.metrics import MetricsSample
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.errors import ErrorKind
from vlmtui.paths import Paths
from vlmtui.registry.match import Model
from vlmtui.session.generation import make_request, new_request_id

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(2400)]
ALL_LAYOUTS = pytest.mark.skipif("VLMTUI_ALL_LAYOUTS" not in os.environ, reason="make distributed")
RANK = "X-data-parallel-rank"
QUESTION = "What is in this image?"


class Layout(msgspec.Struct, frozen=True):
    """How a model is spread, as options of `vllm serve`, a tuple for each node; `{…}` are free ports."""

    nodes: tuple[tuple[str, ...], ...]
    victim: str
    """How the title of the process begins that is killed, on the last node."""
    ranks: int = 1
    """Data-parallel ranks."""
    is_trained: bool = True
    """False: with a model of random weights, whose attention heads divide."""
    silence_s: float = 60.0
    """Seconds after which our own clock gives a silent stream up."""


_DATA = ("--data-parallel-size", "2")
_MANY = (*_DATA, "--data-parallel-size-local", "1", "--data-parallel-address", "127.0.0.1")
_TENSOR = ("--tensor-parallel-size", "2", "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", "{b}")
LAYOUTS = {
    "data parallel on one node": Layout((("--port", "{a}", *_DATA),), "VLLM::EngineCore_DP1", 2),
    "data parallel on two nodes": Layout(
        (
            ("--port", "{a}", *_MANY, "--data-parallel-rpc-port", "{b}", "--api-server-count", "1"),
            ("--headless", *_MANY, "--data-parallel-rpc-port", "{b}", "--data-parallel-start-rank", "1"),
        ),
        "VLLM::EngineCore",
        2,
        silence_s=20.0,
    ),
    "tensor parallel on two nodes": Layout(
        (("--port", "{a}", *_TENSOR, "--node-rank", "0"), ("--headless", *_TENSOR, "--node-rank", "1")),
        "VLLM::Worker",
        is_trained=False,
    ),
}


class Running(msgspec.Struct, frozen=True):
    """The servers of a layout."""

    layout: Layout
    url: str
    nodes: tuple[VllmServer, ...]

    def kill_a_rank(self) -> None:
        found = self.nodes[-1].processes(self.layout.victim)
        assert found, [" ".join(process.cmdline()) for process in self.nodes[-1].processes()]
        for process in found:
            process.kill()


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=ALL_LAYOUTS if number else []) for number, name in enumerate(LAYOUTS)],
)
def running(request: pytest.FixtureRequest, shapes: Model) -> Iterator[Running]:
    """The servers of a layout, loading or loaded. They end with the layout's last test."""
    layout = LAYOUTS[request.param]
    ports = {"a": str(free_port()), "b": str(free_port())}
    with tempfile.TemporaryDirectory(prefix="vlmtui-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        model = shapes.spec.model if layout.is_trained else with_four_heads(Path(shapes.spec.model), Path(folder))
        more = () if layout.is_trained else ("--load-format", "dummy")
        nodes = tuple(
            VllmServer(
                model,
                Path(folder),
                [part.format_map(ports) for part in (*node, *more)],
                name=f"node-{number}",
                **of_its_own(number, len(layout.nodes)),
            )
            for number, node in enumerate(layout.nodes)
        )
        try:
            yield Running(layout, f"http://127.0.0.1:{ports['a']}", nodes)
        finally:
            for node in nodes:
                node.end()


def of_its_own(node: int, nodes: int) -> dict[str, str]:
    """The variable that gives a node of several a processor. By itself each takes the same one, where whoever computes
    lets the other wait: one rank has answered whole before the other says a token."""
    able = sorted(os.sched_getaffinity(0))
    return {"VLLM_CPU_OMP_THREADS_BIND": str(able[node % len(able)])} if nodes > 1 else {}


def with_four_heads(model: Path, folder: Path) -> str:
    """A copy of the bundled model's files, without weights, whose attention heads two ranks can share."""
    copy = folder / "model"
    shutil.copytree(model, copy, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((copy / "config.json").read_text())
    config["text_config"] |= {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
    config["vision_config"]["hidden_size"] = 256
    (copy / "config.json").write_text(json.dumps(config))
    return str(copy)


@asynccontextmanager
async def connected(
    running: Running, folder: Path, *, headers: Mapping[str, str] | None = None, **options: object
) -> AsyncIterator[WorkerClient]:
    """A worker of its own, once the servers listen."""
    given = {"url": running.url, "wait_s": 1200, "headers": dict(headers or {}), **options}
    spec = LoadSpec(model="shapes", name="shapes", backend="remote", engine_args=given)
    client = await patient_host(Paths.below(folder)).open(spec, client="tests", keep_alive_s=0)
    try:
        loading = asyncio.create_task(loaded(client))
        while not (await asyncio.wait({loading}, timeout=1.0))[0]:
            assert all(node.process.poll() is None for node in running.nodes), [one.newest() for one in running.nodes]
        events = loading.result()
        assert isinstance(events[-1], EngineReady), (events[-1], *(node.newest() for node in running.nodes))
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
        if running.layout.is_trained:
            assert "red circle" in chat.text
        many = await asyncio.gather(*(ask(turn, sampling=Sampling(max_tokens=30)) for _ in range(8)))
        assert [answer.outcome for answer in many if not isinstance(answer.outcome, Finished)] == []
        assert {answer.text for answer in many} == {many[0].text}
        await until_ranks_generated(client, running.layout.ranks)
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


async def until_ranks_generated(client: WorkerClient, ranks: int) -> None:
    """Wait until the metrics say that so many ranks did. The first samples are of before."""
    async with asyncio.timeout(60), aclosing(client.metrics()) as samples:
        async for told in samples:
            assert isinstance(told, MetricsSample), told
            assert len(told.metrics.ranks) == ranks
            if all(rank.generated_tokens for rank in told.metrics.ranks):
                return


async def test_a_rank_that_is_killed_leaves_no_answer_that_looks_whole(
    running: Running, shapes: Model, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test of a layout: its servers do not outlive it."""
    async with AsyncExitStack() as stack:
        clients = []
        for rank in range(running.layout.ranks):
            headers = {}
            if running.layout.ranks > 1:
                monkeypatch.setenv(f"RANK_{rank}", str(rank))
                headers = {RANK: f"env:RANK_{rank}"}
            folder = short_path / str(rank)
            silence_s = running.layout.silence_s
            clients.append(
                await stack.enter_async_context(
                    connected(running, folder, headers=headers, stall_s=2.0, silence_max_s=silence_s)
                )
            )
        streams = []
        for client in clients:  # that of the rank that is killed comes last, so that it still goes on
            begun = asyncio.Event()
            streams.append(asyncio.create_task(stream(client, endless(shapes), begun)))
            await begun.wait()
        await until_ranks_generated(clients[-1], running.layout.ranks)
        assert not streams[-1].done(), ("it ended before anything was killed", streams[-1].result())
        running.kill_a_rank()
        *others, (kept, last) = await asyncio.gather(*streams)
        assert isinstance(last, Failed), last
        assert last.failure.kind is ErrorKind.NO_NETWORK and last.failure.hint, last
        assert kept, "what came is kept"
        for _, end in others:  # another node's rank may live on, and its answer end as it should
            is_whole = isinstance(end, Finished) and end.usage.prompt_tokens + end.usage.completion_tokens == 4096
            assert is_whole or isinstance(end, Failed), end


async def stream(client: WorkerClient, request: GenerateRequest, begun: asyncio.Event) -> tuple[str, object]:
    text, last = "", None
    request = msgspec.structs.replace(request, request_id=new_request_id())
    async for event in client.generate(request):
        if isinstance(event, Delta):
            text += event.text
            begun.set()
        last = event
    begun.set()
    return text, last
