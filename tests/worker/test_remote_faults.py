"""Servers that fall silent, break connections, load, sleep, or never end: each is named, and what came is kept."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.fault_server import (
    DONE,
    FaultServer,
    Reply,
    event,
    falls_silent,
    fault_server,
    first_event,
    never_ends,
    sends,
    stream,
    streams,
    token_event,
    whole_answer,
)
from tests.worker.test_remote import CHAT, asked, connected, picture, request, text_of
from vlmtui.domain.conversation import ChatPrompt, user_turn
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import Delta, EngineEvent, Waiting
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.contract import LoadStep
from vlmtui.worker.backends.remote import engine as remote_engine
from vlmtui.worker.backends.remote import http_api
from vlmtui.worker.backends.remote.engine import connect_to_server


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with fault_server() as found:
        yield found


HURRY = {"back_off_s": (0.01, 0.02)}


async def failed_and_kept(server: FaultServer, folder: Path, **arguments: Any) -> tuple[VlmtuiError, str]:
    """The error of a question about a picture, and the text that came before it."""
    engine = await connected(server, **HURRY, **arguments)
    events: list[EngineEvent] = []
    try:
        with pytest.raises(VlmtuiError) as failed:
            async for one in engine.generate(request(ChatPrompt(turns=(user_turn("hello", [picture(folder)]),)))):
                events.append(one)
    finally:
        await engine.shutdown()
    return failed.value, text_of(events)


async def hangs_up(_server: FaultServer, _writer: asyncio.StreamWriter) -> None:
    """Answer nothing; the connection closes."""


async def says_nothing(server: FaultServer, _writer: asyncio.StreamWriter) -> None:
    """Take the request, and nothing else, as a full, a stopped or a sleeping server does."""
    await server.released.wait()


async def resets(_server: FaultServer, writer: asyncio.StreamWriter) -> None:
    """Begin an answer, then reset the connection, like a machine that restarts."""
    await stream(writer, [first_event(), token_event(4)])
    await asyncio.sleep(0.1)  # a reset would overtake what is still on its way
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def is_cut_off(_server: FaultServer, writer: asyncio.StreamWriter) -> None:
    """Begin an answer in chunks, as vLLM sends it; the last one never comes: the server was killed."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for piece in (first_event(), token_event(4)):
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    writer.write(b"40\r\ndata: {")
    await writer.drain()


@pytest.mark.parametrize("reply", [says_nothing, falls_silent(first_event(), token_event(4))])
@pytest.mark.parametrize(
    ("health", "said"),
    [
        (sends({}, status=503), "The engine of http://.* died"),
        (sends({}), "has been silent for"),
        (hangs_up, "went away in the middle of the answer"),
        (says_nothing, "has answered nothing for .* nor how it is"),
    ],
)
async def test_a_silence_is_judged_by_the_servers_health_even_before_it_answers(
    server: FaultServer, tmp_path: Path, reply: Reply, health: Reply, said: str
) -> None:
    server.replies |= {CHAT: [reply], "/health": [health] * 20}
    seconds = {"health_s": 0.1} if health is says_nothing else {}
    error, kept = await failed_and_kept(server, tmp_path, stall_s=0.05, silence_max_s=0.2, deaf_max_s=0.3, **seconds)
    assert error.kind is ErrorKind.NO_NETWORK and error.hint
    assert re.search(said, error.message), error.message
    assert kept == ("" if reply is says_nothing else "A")


async def test_a_server_that_is_too_busy_to_tell_its_health_gets_time(server: FaultServer, tmp_path: Path) -> None:
    told = asyncio.Event()

    async def late(_server: FaultServer, writer: asyncio.StreamWriter) -> None:
        await told.wait()
        await stream(writer, whole_answer())

    async def busy(_server: FaultServer, _writer: asyncio.StreamWriter) -> None:
        if len(server.replies["/health"]) < 8:
            told.set()
        await server.released.wait()

    server.replies |= {CHAT: [late], "/health": [busy] * 10}
    engine = await connected(server, stall_s=0.02, deaf_max_s=60, health_s=0.05)
    prompt = ChatPrompt(turns=(user_turn("hello", [picture(tmp_path)]),))
    assert text_of([one async for one in engine.generate(request(prompt))]) == "A red circle."
    await engine.shutdown()
    assert len(server.replies["/health"]) < 8, "its health was asked in vain before"


async def test_slow_token_texts_do_not_delay_an_answer(server: FaultServer, tmp_path: Path) -> None:
    server.replies["/detokenize"] = [says_nothing] * 9
    events = await asked(server, tmp_path, stall_s=0.05)
    assert text_of(events) == "A red circle."
    assert len(server.replies["/detokenize"]) < 9, "they were asked for"


@pytest.mark.parametrize("reply", [is_cut_off, resets])
async def test_a_broken_connection_keeps_the_partial_answer(server: FaultServer, tmp_path: Path, reply: Reply) -> None:
    server.replies[CHAT] = [reply]
    error, kept = await failed_and_kept(server, tmp_path)
    assert kept == "A" and "broke in the middle of the answer" in error.message
    assert error.hint == "What came is kept. Send the message again."
    assert len(server.bodies) == 1, "an answer that began is not asked for again"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (hangs_up, "connection to http://.* broke"),
        (sends({"error": {"message": "overloaded", "code": 503}}, status=503), r"refused the request \(503\)"),
        (sends("<html>Bad gateway</html>", status=502, kind="text/html"), r"a web page \(502\)"),
    ],
)
async def test_failures_before_an_answer_are_retried_with_a_limit(
    server: FaultServer, tmp_path: Path, reply: Reply, said: str
) -> None:
    server.replies[CHAT] = [reply] * 2
    assert text_of(await asked(server, tmp_path, **HURRY)) == "A red circle."
    server.bodies.clear()
    server.replies[CHAT] = [reply] * 9
    with pytest.raises(VlmtuiError, match=said):
        await asked(server, tmp_path, **HURRY)
    assert len(server.bodies) == 3


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_refusal_is_not_tried_again(server: FaultServer, tmp_path: Path, status: int) -> None:
    server.replies[CHAT] = [sends({"error": {"message": "no"}}, status=status)] * 9
    with pytest.raises(VlmtuiError, match=f"\\({status}\\)"):
        await asked(server, tmp_path)
    assert len(server.bodies) == 1


OVERLOADED = {"error": {"message": "Rate limit reached"}}


def limits(status: int = 429, **headers: str) -> Reply:
    """A refusal of too many requests. `headers`: with _ for -."""
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return sends(OVERLOADED, status=status, more=more)


def no_sleep(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were asked for; none is made."""
    slept: list[float] = []
    pause = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.extend([seconds] if seconds else [])
        await pause(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return slept


@pytest.mark.parametrize(
    ("reply", "seconds"),
    [
        (limits(Retry_After="7"), 7),
        (limits(529, Retry_After="7"), 7),
        (limits(503, Retry_After="7"), 7),
        (limits(Date="Sun, 06 Nov 1994 08:49:37 GMT", Retry_After="Sun, 06 Nov 1994 08:49:47 GMT"), 10),
        (limits(Retry_After_Ms="1500"), 1.5),
        (limits(X_RateLimit_Reset_Requests="1m2.5s", X_RateLimit_Reset_Tokens="2m"), 62.5),
        (limits(Date="Tue, 14 Nov 2023 22:13:20 GMT", X_RateLimit_Reset="1700000010"), 10),
        (limits(Date="Tue, 14 Nov 2023 22:13:20 GMT", X_RateLimit_Reset="1700000010000"), 10),
        (limits(), 0.01),
        (limits(Retry_After="soon"), 0.01),
        (limits(Retry_After="-5"), 0.01),
    ],
)
async def test_a_server_that_limits_the_rate_is_asked_again_when_it_says(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Reply, seconds: float
) -> None:
    slept = no_sleep(monkeypatch)
    server.replies[CHAT] = [reply] * 3
    events = await asked(server, tmp_path, back_off_s=(0.01,))
    waits = [one for one in events if isinstance(one, Waiting)]
    assert text_of(events) == "A red circle." and len(server.bodies) == 4
    assert [one.seconds for one in waits] == slept and seconds <= slept[0] <= 1.1 * seconds + 0.001
    assert "now (" in waits[0].reason or "refused the request (503)" in waits[0].reason
    assert "Rate limit reached" in waits[0].reason


@pytest.mark.parametrize(("reply", "tries"), [(limits(Retry_After="3600"), 1), (limits(Retry_After="200"), 2),
                                              (limits(), 7), (limits(Retry_After="0"), 7)])  # fmt: skip
async def test_a_wait_for_a_server_has_a_limit(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Reply, tries: int
) -> None:
    no_sleep(monkeypatch)
    server.replies[CHAT] = [reply] * 9
    with pytest.raises(VlmtuiError) as failed:
        await asked(server, tmp_path)
    assert failed.value.kind is ErrorKind.ENGINE_BUSY and failed.value.detail == "Rate limit reached"
    assert ("It may be asked again in" in failed.value.hint) is (tries < 7)
    assert len(server.bodies) == tries


async def test_a_wait_for_a_server_can_be_stopped(server: FaultServer, tmp_path: Path) -> None:
    server.replies[CHAT] = [limits(Retry_After="60")]
    engine = await connected(server)
    events = engine.generate(request(ChatPrompt(turns=(user_turn("hello", [picture(tmp_path)]),))))
    assert isinstance(await anext(events), Waiting)
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting}, timeout=10)
    assert waiting.cancelled() and len(server.bodies) == 1
    await engine.shutdown()


async def test_an_answer_that_is_stopped_ends_its_request(server: FaultServer, tmp_path: Path) -> None:
    left = asyncio.Event()

    async def until_left(_server: FaultServer, writer: asyncio.StreamWriter) -> None:
        await stream(writer, [first_event()])
        with suppress(OSError):
            while not server.released.is_set():
                writer.write(token_event(4))
                await writer.drain()
                await asyncio.sleep(0.005)
        left.set()

    server.replies[CHAT] = [until_left]
    engine = await connected(server)
    events = engine.generate(request(ChatPrompt(turns=(user_turn("hello", [picture(tmp_path)]),))))
    async for one in events:
        if isinstance(one, Delta):
            break
    await events.aclose()
    async with asyncio.timeout(10):
        await left.wait()
    await engine.shutdown()


@pytest.mark.parametrize(
    "reply",
    [
        sends({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, status=503),
        sends("<html>Bad gateway</html>", status=502, kind="text/html"),
    ],
)
async def test_a_server_that_loads_is_waited_for_with_a_clock(server: FaultServer, reply: Reply) -> None:
    server.replies["/v1/models"] = [reply] * 3
    steps: list[LoadStep] = []
    given: dict[str, object] = {"url": server.url, "wait_s": 30, "retry_s": 0.01}
    spec = LoadSpec(model="shapes", name="shapes", backend="remote", engine_args=given)
    engine = await connect_to_server(spec, steps.append)
    assert [step.detail for step in steps][1:] == [f"waiting for {server.url}, 0 s"] * 3
    await engine.shutdown()


async def test_a_server_that_does_not_listen_yet_is_waited_for_with_a_clock() -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    steps: list[LoadStep] = []
    given: dict[str, object] = {"url": f"http://127.0.0.1:{port}", "wait_s": 30, "retry_s": 0.01}
    spec = LoadSpec(model="shapes", name="shapes", backend="remote", engine_args=given)
    connecting = asyncio.ensure_future(connect_to_server(spec, steps.append))
    while len(steps) < 4:
        await asyncio.sleep(0.01)
    honest = FaultServer()
    listening = await asyncio.start_server(honest.serve, "127.0.0.1", port)
    engine = await connecting
    assert "waiting for http://127.0.0.1" in steps[-1].detail
    await engine.shutdown()
    listening.close()


async def keeps_alive(server: FaultServer, writer: asyncio.StreamWriter) -> None:
    """Send comments, as proxies do to keep a connection open, and nothing else."""
    await stream(writer, [])
    with suppress(OSError):
        while not server.released.is_set():
            writer.write(b": ping\n\n")
            await writer.drain()
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("beginning", "piece"),
    [
        (b"data: ", b"x" * 100_000),  # an event without an end
        (b"", b"data: x\n" * 10_000),  # one of lines without an end
        (first_event(), token_event(4) * 1000),  # an answer
        (first_event(), event(choices=[{"index": 0, "delta": {"content": "x" * 100_000}}])),
    ],
)
async def test_endless_data_is_given_up_at_every_stage(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beginning: bytes, piece: bytes
) -> None:
    monkeypatch.setattr(http_api, "_EVENT_MAX", 1_000_000)
    monkeypatch.setattr(http_api, "_STREAM_MAX", 3_000_000)
    monkeypatch.setattr(remote_engine, "_TEXT_MAX", 2_000_000)
    server.replies[CHAT] = [never_ends(beginning, piece)]
    error, _ = await failed_and_kept(server, tmp_path)
    assert error.kind is ErrorKind.PROTOCOL and "more than an answer can hold" in error.message


async def test_keep_alive_signs_do_not_extend_the_time_limit(server: FaultServer, tmp_path: Path) -> None:
    server.replies[CHAT] = [keeps_alive]
    error, _ = await failed_and_kept(server, tmp_path, stall_s=0.05, silence_max_s=0.3)
    assert "has been silent for" in error.message


async def test_an_incomplete_last_event_is_ignored(server: FaultServer, tmp_path: Path) -> None:
    server.replies[CHAT] = [streams(first_event(), token_event(4), token_event(5)[:-20], DONE)]
    error, kept = await failed_and_kept(server, tmp_path)
    assert kept == "A" and error.kind is ErrorKind.PROTOCOL and "not JSON" in error.message
