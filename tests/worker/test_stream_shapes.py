"""The shapes in which servers send an answer, from public reports: each is read, or refused in the server's words."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.support.fault_server import FaultServer, fault_server, responds
from tests.support.recorded_servers import FOLDER
from tests.worker.test_remote import CHAT, connected, request
from vlmtui.domain.conversation import ChatPrompt, Text, Turn, user_turn
from vlmtui.domain.generation import Finished, GenerateRequest
from vlmtui.domain.thinking import ThinkingTags
from vlmtui.errors import VlmtuiError
from vlmtui.session.generation import Answer, missing_answer
from vlmtui.worker.backends.remote.engine import RemoteEngine

WORDS = ("Hello", " world")
USAGE = {"prompt_tokens": 5, "completion_tokens": 2}
NO_ERROR = {"message": None, "type": "", "code": None}


def chunk(delta: object = None, finish: object = None, **fields: object) -> dict[str, Any]:
    """An event of OpenAI's format."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **fields}


def text(*parts: str, name: str = "content") -> list[dict[str, Any]]:
    return [chunk({name: part}) for part in parts]


def sse(*events: object, end: str = "\n\n", space: str = " ", before: str = "") -> bytes:
    """A stream. A string is sent as it is, anything else as JSON."""
    sent = [one if isinstance(one, str) else json.dumps(one) for one in events]
    return "".join(f"{before}data:{space}{one}{end}" for one in sent).encode()


ROLE, STOP, END = chunk({"role": "assistant", "content": None}), chunk({}, "stop"), "[DONE]"
HELLO = [ROLE, *text("Hello", " world")]
COUNTS = {**chunk(), "choices": [], "usage": USAGE}
PLAIN = [*HELLO, STOP, COUNTS, END]
THOUGHT = {"reasoning": "Let me think."}
MESSAGE = {"role": "assistant", "content": "Hello world"}


def whole(message: object, finish: str = "stop", **more: object) -> dict[str, Any]:
    """An answer that is no stream."""
    return {"id": "a", "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": USAGE, **more}


class Shape(msgspec.Struct, frozen=True):
    """A response, and how it is to be read."""

    body: bytes
    answer: str = "Hello world"
    reasoning: str = ""
    finish: str = "stop"
    error: str = ""
    """A part of the error's message and detail; empty: the answer is complete."""
    kind: str = "text/event-stream"
    status: int = 200
    more: str = ""
    """More HTTP headers."""
    piece: int = 1 << 20
    """Bytes of each write."""


def each(**fields: object) -> bytes:
    """The plain stream, with these fields in each event."""
    return sse(*({**one, **fields} if isinstance(one, dict) else one for one in PLAIN))


def reasons(*deltas: object, finish: str = "stop") -> bytes:
    return sse(*map(chunk, deltas), chunk({}, finish), END)


def named(name: str, data: object) -> bytes:
    return sse(*text("Hel")) + f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


READ = {
    "plain": Shape(sse(*PLAIN)),
    "no DONE": Shape(sse(*PLAIN[:-1])),
    "role in each event": Shape(sse(*(chunk({"role": "assistant", "content": one}) for one in WORDS), STOP)),
    "LF alone between events": Shape(sse(*PLAIN, end="\n")),
    "CR LF and comments": Shape(b": ping\r\n\r\n" + sse(*PLAIN, end="\r\n\r\n")),
    "CR alone": Shape(sse(*PLAIN, end="\r\r"), piece=3),
    "LF alone, named events": Shape(sse(*PLAIN, end="\n", before="event: message\n")),
    "byte order mark": Shape(b"\xef\xbb\xbf" + sse(*PLAIN), piece=1),
    "no space": Shape(sse(*PLAIN, space="")),
    "event, id and retry": Shape(sse(*PLAIN, before="event: message\nid: 7\nretry: 100\n")),
    "event: ping": Shape(b"event: ping\ndata: alive\n\n" + sse(*PLAIN)),
    "data of several lines": Shape(b"".join(b"data: " + json.dumps(one, indent=1).replace("\n", "\ndata: ").encode()
                                            + b"\n\n" for one in PLAIN if isinstance(one, dict))),
    "single bytes": Shape(sse(*text("Grüße, ", "日本 👩‍👩‍👧"), STOP, END), "Grüße, 日本 👩‍👩‍👧", piece=1),
    "raw UTF-8": Shape(f'data: {json.dumps(chunk({"content": "日本"}), ensure_ascii=False)}\n\n'.encode() + sse(STOP),
                       "日本", piece=1),
    "gzip": Shape(gzip.compress(sse(*PLAIN)), more="Content-Encoding: gzip\r\n"),
    "text/plain": Shape(sse(*PLAIN), kind="text/plain; charset=utf-8"),
    "no content type": Shape(sse(*PLAIN), kind=""),
    "events as JSON lines": Shape(b"".join(json.dumps(one).encode() + b"\n" for one in PLAIN[:-1]),
                                  kind="application/x-ndjson"),
    "JSON": Shape(json.dumps(whole(MESSAGE)).encode(), kind="application/json"),
    "JSON in lines": Shape(json.dumps(whole(MESSAGE), indent=2).encode() + b"\n", kind="application/json", piece=7),
    "JSON called a stream": Shape(json.dumps(whole(MESSAGE)).encode()),
    "JSON with reasoning": Shape(json.dumps(whole({**MESSAGE, **THOUGHT})).encode(), reasoning="Let me think.",
                                 kind="application/json"),
    "JSON cut off": Shape(json.dumps(whole(MESSAGE)).encode()[:-9], "", error="refused the request (200)",
                          kind="application/json"),
    "error is null": Shape(each(error=None)),
    "error is empty": Shape(each(error={})),
    "error of nulls": Shape(each(error=NO_ERROR)),
    "an id for each event": Shape(sse(*({**one, "id": f"c-{i}"} for i, one in enumerate([*HELLO, STOP, COUNTS])), END)),
    "another id with the usage": Shape(sse(*HELLO, STOP, {**COUNTS, "id": "usage"}, END)),
    "two answers mixed": Shape(sse(*({**chunk({"content": "x"}), "id": one} for one in "aba")), "xx",
                               error="parts of another answer"),
    "choices are null": Shape(sse({**chunk(), "choices": None}, *PLAIN)),
    "delta is null": Shape(sse({**chunk(), "choices": [{"index": 0, "delta": None}]}, *PLAIN)),
    "content as parts": Shape(sse(*(chunk({"content": [{"type": "text", "text": one}]}) for one in WORDS),
                                  STOP)),
    "content as one part": Shape(sse(chunk({"content": {"type": "text", "text": "Hello world"}}), STOP)),
    "a message instead of deltas": Shape(sse(whole(MESSAGE), END)),
    "a whole message at the end": Shape(sse(*HELLO, whole(MESSAGE), END)),
    "completions": Shape(sse({"choices": [{"index": 0, "text": "Hello world", "finish_reason": "stop"}]}, END)),
    "two choices": Shape(sse(*({**chunk(), "choices": [{"index": 1, "delta": {"content": "No"}},
                                                       {"index": 0, "delta": {"content": one}}]}
                               for one in WORDS), STOP, END)),
    "a choice for each event": Shape(sse(*HELLO, {**chunk({"content": "No"}), "choices": [
        {"index": 1, "delta": {"content": "No"}, "finish_reason": "length"}]}, STOP, END)),
    "a choice without an index": Shape(sse({"choices": [{"delta": {"content": "Hello world"}}]}, STOP)),
    "usage in each event": Shape(each(usage=USAGE)),
    "usage in floats": Shape(each(usage={"prompt_tokens": 5.0, "completion_tokens": 2.0})),
    "usage, then empty usage": Shape(sse(*PLAIN[:-1], chunk(usage={}), chunk(usage=None), END)),
    "log-probabilities without ids": Shape(sse(*HELLO, {**chunk(), "choices": [
        {"index": 0, "delta": {}, "logprobs": {"content": [{"token": "a", "logprob": -0.1}]}}]}, STOP)),
    "a log-probability of 400 digits": Shape(sse(*HELLO, {**chunk(), "choices": [
        {"index": 0, "delta": {}, "logprobs": {"content": [{"token_id": 1, "logprob": 10**400}]}}]}, STOP)),
    "parts within parts": Shape(sse(*HELLO, STOP) + b'data: {"choices": [{"delta": {"content": '
                                + b"[" * 900 + b'"x"' + b"]" * 900 + b"}}]}\n\n"),
    "finish reason is empty": Shape(sse(*(chunk({"content": one}, "") for one in WORDS), STOP,
                                        chunk({}, "", usage=USAGE), END)),
    "finish reason with the text": Shape(sse(chunk({"content": "Hello world"}, "stop"), END)),
    "text after the finish reason": Shape(sse(chunk({"content": "Hello"}, "stop"), *text(" world"), END)),
    "eos_token": Shape(sse(*HELLO, chunk({}, "eos_token"), END)),
    "end_turn": Shape(sse(*HELLO, chunk({}, "end_turn"), END)),
    "STOP": Shape(sse(*HELLO, chunk({}, "STOP"), END)),
    "length": Shape(sse(*HELLO, chunk({}, "length"), END), finish="length"),
    "MAX_TOKENS": Shape(sse(*HELLO, chunk({}, "MAX_TOKENS"), END), finish="length"),
    "no finish reason": Shape(sse(*HELLO, END), error="ended the stream in the middle"),
    "content_filter": Shape(sse(*HELLO, chunk({}, "content_filter"), END), error="content filter ended the answer"),
    "another finish reason": Shape(sse(*HELLO, chunk({}, "insufficient_system_resource"), END),
                                   error="insufficient_system_resource"),
    "cut off": Shape(sse(*PLAIN)[:-200], error="ended the stream in the middle"),
    "half of an emoji in each event": Shape(sse(*text("a\ud83d", "\ude00 b"), STOP), "a😀 b"),
    "half of an emoji alone": Shape(sse(*text("a\ud83d", "b\ude00c"), STOP), "a?b?c"),
}  # fmt: skip
REASONING = {
    "reasoning": Shape(reasons({"role": "assistant"}, THOUGHT, {"content": "Hello world"}), reasoning="Let me think."),
    "reasoning_content": Shape(reasons({"reasoning_content": "Let me"}, {"reasoning_content": " think."},
                                       {"content": "Hello world"}), reasoning="Let me think."),
    "thinking": Shape(reasons({"thinking": "Let me think."}, {"content": "Hello world"}), reasoning="Let me think."),
    "reasoning_details": Shape(reasons({"reasoning_details": [{"type": "reasoning.text", "text": "Let me think."},
                                                              {"type": "reasoning.encrypted", "data": "x"}]},
                                       {"content": "Hello world"}), reasoning="Let me think."),
    "a summary": Shape(reasons({"reasoning_details": [{"type": "reasoning.summary", "summary": "Let me think."}]},
                               {"content": "Hello world"}), reasoning="Let me think."),
    "both fields": Shape(reasons({**THOUGHT, "reasoning_content": "Let me think."}, {"content": "Hello world"}),
                         reasoning="Let me think."),
    "a field that is empty": Shape(reasons({"reasoning": "", "reasoning_content": "Let me think."},
                                           {"content": "Hello world", "reasoning": None}), reasoning="Let me think."),
    "parts of content": Shape(
        reasons({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Let me "}]}]},
                {"content": [{"type": "thinking", "thinking": "think."}]},
                {"content": [{"type": "text", "text": "Hello world"}]}), reasoning="Let me think."),
    "in one event": Shape(reasons({**THOUGHT, "content": "Hello world"}), reasoning="Let me think."),
    "tags": Shape(reasons({"content": "<think>Let me"}, {"content": " think.</think>Hello world"}),
                  reasoning="Let me think."),
    "white space before it": Shape(reasons({"content": "\n\n"}, THOUGHT, {"content": "Hello world"}),
                                   reasoning="Let me think."),
    "text before it": Shape(reasons({"content": "Hello"}, THOUGHT, {"content": " world"}), "Hello\n\n world",
                            reasoning="Let me think."),
    "line breaks of its own": Shape(reasons({"reasoning": "\nLet me think.\n"}, {"content": "\n\nHello world"}),
                                    reasoning="Let me think."),
    "alone": Shape(reasons(THOUGHT, finish="length"), "", "Let me think.", finish="length"),
}  # fmt: skip
LOST = {
    "error in an event": Shape(sse(*text("Hel"), {"error": {"message": "CUDA out of memory", "code": None}}), "Hel",
                               error="ended the answer with an error. CUDA out of memory"),
    "error as a string": Shape(sse(*text("Hel"), {"error": "model runner has stopped"}), "Hel",
                               error="with an error. model runner has stopped"),
    "error with choices": Shape(sse(*text("Hel"), chunk({}, "error", error={"code": 502, "message": "gone"})), "Hel",
                                error="with an error (502). gone"),
    "error in a list": Shape(sse([{"error": {"code": 400, "message": "bad key"}}]), "",
                             error="refused the request (400). bad key"),
    "event: error": Shape(named("error", {"message": "context overflow"}), "Hel", error="context overflow"),
    "event: error, code and details": Shape(named("error", {"code": 500, "details": "no memory"}), "Hel",
                                            error="(500). no memory"),
    "event: error, a string": Shape(named("error", "no memory"), "Hel", error="no memory"),
    "event: error, text": Shape(sse(*text("Hel")) + b"event: error\ndata: no memory\n\n", "Hel", error="no memory"),
    "error: as a field": Shape(sse(*text("Hel")) + b'error: {"message": "slot unavailable"}\n\n', "Hel",
                               error="slot unavailable"),
    "detail": Shape(sse(*text("Hel"), {"detail": "worker died"}), "Hel", error="worker died"),
    "object: error": Shape(sse({"object": "error", "message": "top_p is 3", "code": 400}), "",
                           error="refused the request (400). top_p is 3"),
    "JSON with an error": Shape(b'{"error": {"message": "no such model"}}', "", kind="application/json",
                                error="refused the request. no such model"),
    "JSON in the middle": Shape(sse(*text("Hel")) + b'{"error": "no memory"}\n', "Hel", error="no memory"),
    "not JSON": Shape(sse(*text("Hel"), "oops"), "Hel", error="not JSON. oops"),
    "text": Shape(b"upstream says no", "", kind="text/plain", error="(200). upstream says no"),
    "a web page": Shape(b"<html><title>Sign in</title>", "", kind="text/html", error="a web page (200)"),
    "Ollama's own format": Shape(b'{"model": "m", "message": {"role": "assistant", "content": "Hi"}, "done": false}\n'
                                 b'{"model": "m", "done": true}\n', "", kind="application/x-ndjson",
                                 error="no answer in OpenAI's format"),
    "nothing": Shape(b"", "", error="no answer in OpenAI's format"),
    "a tool call": Shape(sse(chunk({"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": '{"at"'}}]}),
                             chunk({"tool_calls": [{"index": 0, "function": {"arguments": ': "cat"}'}}]}),
                             chunk({}, "tool_calls"), END), "",
                         error='called a tool, and vlmtui has none. look {"at": "cat"}'),
    "a function call": Shape(sse(chunk({"function_call": {"name": "look", "arguments": "{}"}}, "function_call")), "",
                             error="look {}"),
    "a refusal": Shape(sse(*text("I can't ", "do that.", name="refusal"), STOP, END), "",
                       error="refused to answer. I can't do that."),
}  # fmt: skip
REFUSED = {
    "message": ({"error": {"message": "no credit", "type": "x"}}, "no credit"),
    "string": ({"error": "no credit"}, "no credit"),
    "bare message": ({"message": "no credit", "code": 3}, "no credit"),
    "detail": ({"detail": "too large"}, "too large"),
    "details of fields": ({"detail": [{"loc": ["body", "n"], "msg": "not 1"}, {"loc": ["body"], "msg": "unknown"}]},
                          "body.n: not 1; body: unknown"),
    "code and details": ({"code": 3, "details": ["no", "memory"]}, "no; memory"),
    "list": ([{"error": {"message": "bad key"}}], "bad key"),
    "errors": ({"errors": [{"message": "bad key"}]}, "bad key"),
    "a server behind": ({"error": {"message": "Provider error", "metadata": {"raw": "overloaded"}}},
                        "Provider error: overloaded"),
    "no words": ({"code": 3}, '{"code": 3}'),
    "text": ("upstream says no", "upstream says no"),
    "nothing": ("", "X"),
    "half an emoji": ({"error": "\ud83d"}, "?"),
}  # fmt: skip

RECORDED = {
    path.name: Shape(path.read_bytes(), "Hello! A", finish="length") for path in sorted(FOLDER.glob("*-chat.sse"))
}
"""Streams of real servers, each asked for three tokens."""


@pytest.fixture
async def engine() -> AsyncIterator[tuple[FaultServer, RemoteEngine]]:
    """A server that is no vLLM, and the engine that asks it."""
    async with fault_server() as server:
        server.version = ""
        engine = await connected(server, back_off_s=())
        yield server, engine
        await engine.shutdown()


def hello() -> GenerateRequest:
    return request(ChatPrompt(turns=(user_turn("hello"),)))


async def read(engine: RemoteEngine) -> tuple[Answer, str]:
    """The whole answer, and the error's message and detail."""
    answer = Answer("r")
    try:
        async for event in engine.generate(hello()):
            answer.take(event)
    except VlmtuiError as error:
        return answer, f"{error.message} {error.detail}"
    return answer, ""


@pytest.mark.parametrize("shapes", [READ, REASONING, LOST, RECORDED], ids=["read", "reasoning", "lost", "recorded"])
async def test_each_shape_of_an_answer_is_read(
    engine: tuple[FaultServer, RemoteEngine], shapes: dict[str, Shape]
) -> None:
    wrong = {}
    for name, shape in shapes.items():
        reply = responds(shape.body, status=shape.status, kind=shape.kind, more=shape.more, piece=shape.piece)
        engine[0].replies[CHAT] = [reply]
        answer, error = await read(engine[1])
        parts = answer.parts(answer.text)
        finish = answer.outcome.finish_reason if isinstance(answer.outcome, Finished) else ""
        got = (parts.answer, parts.thinking.strip(), finish, shape.error if shape.error in error else error)
        wanted = (shape.answer, shape.reasoning, "" if shape.error else shape.finish, shape.error)
        if got != wanted or bool(error) != bool(shape.error):
            wrong[name] = (got, wanted, error)
    assert not wrong, json.dumps(wrong, indent=1)


async def test_a_refusal_keeps_the_servers_words_whatever_their_shape(engine: tuple[FaultServer, RemoteEngine]) -> None:
    for name, (body, words) in REFUSED.items():
        sent = body if isinstance(body, str) else json.dumps(body)
        engine[0].replies[CHAT] = [responds(sent.encode(), status=400, kind="application/json")]
        assert (await read(engine[1]))[1].endswith(f"refused the request (400). {words}"), name
    page = b"<html><head><title>502 Bad &amp; Gateway</title></head><body>nginx</body></html>"
    engine[0].replies[CHAT] = [responds(page, status=502, kind="text/html")]
    assert (await read(engine[1]))[1].endswith("a web page (502), not as a model server. 502 Bad & Gateway")


async def test_an_answer_of_tokens_without_text_is_no_success(engine: tuple[FaultServer, RemoteEngine]) -> None:
    engine[0].replies[CHAT] = [responds(sse(ROLE, STOP, COUNTS, END)), responds(reasons(THOUGHT, finish="length"))]
    empty, _ = await read(engine[1])
    error = missing_answer(empty)
    assert error is not None and (error.message, error.exit_code) == ("The answer has no text.", 1)
    assert error.detail == "2 tokens; the model ended it"
    cut, _ = await read(engine[1])
    error = missing_answer(cut)
    assert error is not None and error.message == "The answer has nothing after its reasoning."


async def test_reasoning_is_not_sent_back(engine: tuple[FaultServer, RemoteEngine]) -> None:
    engine[0].replies[CHAT] = [responds(reasons(THOUGHT, {"content": "Hello world"}))]
    answer, _ = await read(engine[1])
    turns = (user_turn("hello"), Turn("assistant", (Text(answer.text),)), user_turn("<think>again</think>"))
    assert [one async for one in engine[1].generate(request(ChatPrompt(turns=turns)))]
    sent = engine[0].bodies[-1]["messages"]
    assert [one["content"] for one in sent] == ["hello", "Hello world", "<think>again</think>"]  # type: ignore[attr-defined]


async def test_reasoning_gets_the_tags_of_its_family() -> None:
    async with fault_server() as server:
        server.version = ""
        engine = await connected(server, thinking={"open": "◁think▷", "close": "◁/think▷"})
        server.replies[CHAT] = [responds(reasons(THOUGHT, {"content": "Hello world"}))]
        answer, _ = await read(engine)
        assert answer.text == "◁think▷\nLet me think.\n◁/think▷\n\nHello world"
        answer.read_by(ThinkingTags("◁think▷", "◁/think▷"))
        assert answer.parts(answer.text).answer == "Hello world"
        await engine.shutdown()
