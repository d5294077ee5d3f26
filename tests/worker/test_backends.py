"""A second backend behind the true guardian, server and socket; chosen by its name, and found by an entry point."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.support.hosts import patient_host
from tests.support.other_requests import to_render
from tests.worker.echo_backend import offer_echo
from tests.worker.stage import ready, request
from vlmtui.domain.conversation import ChatPrompt, Message, MessagesPrompt, Prompt, RawPrompt, user_turn
from vlmtui.domain.engine import LoadFailed, LoadProgress, LoadSpec, LoadStage, LoraAdapter
from vlmtui.domain.generation import (
    Cancelled,
    Delta,
    EngineEvent,
    Failed,
    Finished,
    GenerateRequest,
    PromptReady,
    RenderRequest,
    Request,
    Usage,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.local.host import WorkerHost
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.session.generation import render
from vlmtui.worker.backends import load_backend, require_backend

SPEC = LoadSpec(model="none", name="echo", backend="echo")


@pytest.fixture
async def host(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WorkerHost]:
    offer_echo(short_path / "site", monkeypatch)
    host = patient_host(Paths.below(short_path))
    yield host
    for worker in await host.find_all():
        await host.stop(worker.endpoint)


@pytest.fixture
async def engine(host: WorkerHost, short_path: Path) -> WorkerClient:
    spec = msgspec.structs.replace(SPEC, engine_args={"release": str(short_path / "release")}, typed=("release",))
    return await ready(await host.open(spec, client="test", keep_alive_s=60))


def asked(prompt: Prompt, **more: object) -> GenerateRequest:
    return GenerateRequest(request_id="r", prompt=prompt, sampling=Sampling(), **more)  # type: ignore[arg-type]


async def events_of(engine: WorkerClient, wanted: Request) -> list[EngineEvent]:
    return [event async for event in engine.generate(wanted)]


def text_of(events: list[EngineEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


async def test_a_backend_loads_answers_and_counts_tokens(engine: WorkerClient) -> None:
    assert engine.info is not None
    assert (engine.info.engine, engine.info.engine_version) == ("Echo", "1")
    capabilities = engine.info.capabilities
    assert capabilities.keeps_answers, "the worker does, whatever the backend"
    assert not (capabilities.logprobs or capabilities.media_spans or capabilities.render_only)
    for prompt in (ChatPrompt(turns=(user_turn("one two three"),)), RawPrompt(text="one two three")):
        events = await events_of(engine, asked(prompt))
        assert isinstance(events[0], PromptReady)
        assert text_of(events) == "one two three "
        assert isinstance(events[-1], Finished)
        assert events[-1].usage == Usage(prompt_tokens=3, completion_tokens=3)
    await engine.shutdown()


async def test_a_backend_reports_its_own_progress(host: WorkerHost) -> None:
    engine = await host.open(SPEC, client="test", keep_alive_s=60)
    stages = {event.stage async for event in engine.load() if isinstance(event, LoadProgress)}
    assert stages <= {LoadStage.ENVIRONMENT, LoadStage.WEIGHTS}


async def test_a_request_is_cancelled(engine: WorkerClient) -> None:
    events: list[EngineEvent] = []
    async for event in engine.generate(request("one wait two")):
        events.append(event)
        if isinstance(event, Delta) and event.text == "wait ":
            await engine.cancel("r")
    assert text_of(events) == "one wait "
    assert isinstance(events[-1], Cancelled)


async def test_an_answer_is_kept_for_a_client_that_comes_later(
    host: WorkerHost, engine: WorkerClient, short_path: Path
) -> None:
    events = engine.generate(request("one hold two", keep=True))
    async for event in events:
        if isinstance(event, Delta) and event.text == "hold ":
            break
    await engine.close()
    while await host.holder("r") is None:
        await asyncio.sleep(0.01)
    (short_path / "release").touch()
    again = await host.open(engine.spec, client="test", keep_alive_s=60)
    assert again.attached
    resumed = [event async for event in again.resume("r")]
    assert text_of(resumed) == "one hold two "
    await again.forget("r")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (asked(ChatPrompt(turns=(user_turn("x"),)), logprobs=2), "log-probabilities"),
        (to_render(asked(ChatPrompt(turns=(user_turn("x"),)))), "count tokens"),
        (asked(ChatPrompt(turns=(user_turn("x"),), chat_template="{{ 1 }}")), "only accepts the model's own"),
        (
            asked(MessagesPrompt(messages=(Message(role="user", content="x"),), by="tokenizer")),
            "tokenizer or processor",
        ),
    ],
)
async def test_a_missing_capability_is_refused_with_a_sentence(
    engine: WorkerClient, wanted: Request, words: str
) -> None:
    [failed] = await events_of(engine, wanted)
    assert isinstance(failed, Failed)
    assert failed.failure.kind is ErrorKind.UNSUPPORTED
    assert failed.failure.message.startswith("This engine (Echo) ")
    assert words in failed.failure.message
    if isinstance(wanted, RenderRequest):
        with pytest.raises(VlmtuiError, match="count tokens"):
            await render(engine, wanted.prompt)


async def test_a_failure_of_a_backend_is_reported_and_harmless(engine: WorkerClient) -> None:
    failed = (await events_of(engine, request("fail")))[-1]
    assert isinstance(failed, Failed)
    assert "a failure of Echo's own" in failed.failure.detail
    assert text_of(await events_of(engine, request("still here"))) == "still here "


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"engine_args": {"broken": True}, "typed": ("broken",)}, ErrorKind.WEIGHTS_MISSING),
        ({"loras": (LoraAdapter(name="a", path="a"),)}, ErrorKind.UNSUPPORTED),
    ],
)
async def test_a_failed_load_gives_the_reason(host: WorkerHost, changes: dict[str, object], kind: ErrorKind) -> None:
    engine = await host.open(msgspec.structs.replace(SPEC, **changes), client="test", keep_alive_s=60)
    last = [event async for event in engine.load()][-1]
    assert isinstance(last, LoadFailed)
    assert last.failure.kind is kind


async def test_an_unknown_backend_is_reported_before_a_start(host: WorkerHost, short_path: Path) -> None:
    with pytest.raises(VlmtuiError, match=r"Unknown backend: 'eho'") as caught:
        await host.open(msgspec.structs.replace(SPEC, backend="eho"), client="test", keep_alive_s=60)
    assert caught.value.kind is ErrorKind.NO_ENGINE
    assert caught.value.hint == "Available: echo, pinned, remote, served, transformers, vllm."
    assert await host.find_all() == []


async def test_the_worker_reports_a_backend_that_only_the_app_has(
    host: WorkerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    engine = await host.open(SPEC, client="test", keep_alive_s=60)
    last = [event async for event in engine.load()][-1]
    assert isinstance(last, LoadFailed)
    assert last.failure.kind is ErrorKind.NO_ENGINE


@pytest.mark.parametrize("place", ["no.such.module:BACKEND", "vlmtui.errors:NOTHING", "vlmtui.errors:ErrorKind"])
def test_a_broken_entry_point_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    about = tmp_path / "astray-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: astray\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[vlmtui.backends]\nastray = {place}\n")
    monkeypatch.syspath_prepend(tmp_path)
    require_backend("astray")
    with pytest.raises(VlmtuiError, match="'astray'"):
        load_backend("astray")


def test_vllm_is_named_without_being_imported() -> None:
    assert load_backend("vllm").title == "vLLM"
