"""A server elsewhere as an engine: its reports, and its faults by name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from tests.support.fault_server import (
    ANSWER,
    DONE,
    PROMPT,
    WORDS,
    WRITTEN,
    FaultServer,
    event,
    falls_silent,
    fault_server,
    first_event,
    never_ends,
    send,
    sends,
    streams,
    token_event,
    whole_answer,
)
from vlmtui.domain.capabilities import lack
from vlmtui.domain.conversation import Attachment, ChatPrompt, Message, MessagesPrompt, Prompt, RawPrompt, user_turn
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import (
    Delta,
    EngineEvent,
    Finished,
    GenerateRequest,
    MediaSpan,
    PromptReady,
    RenderRequest,
    Timings,
    Token,
    Usage,
    Waiting,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.remote.bodies import MediaPart, expansions, spans_between
from vlmtui.worker.backends.remote.engine import FrameLimit, RemoteEngine, connect_to_server
from vlmtui.worker.backends.remote.http_api import ServerApi
from vlmtui.worker.backends.remote.options import ServerOptions, server_address
from vlmtui.worker.requests import TrackedRequest

CHAT = "/v1/chat/completions"
GENERATE = "/inference/v1/generate"


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with fault_server() as found:
        yield found


async def connected(server: FaultServer, **arguments: object) -> RemoteEngine:
    given: dict[str, Any] = {"url": server.url, "wait_s": 0, **arguments}
    return await connect_to_server(
        LoadSpec(model="shapes", name="shapes", backend="remote", engine_args=given), lambda step: None
    )


def picture(folder: Path) -> Attachment:
    path = folder / "dot.png"
    Image.new("RGB", (4, 4)).save(path)
    return Attachment(
        modality="image", name="dot.png", path=str(path), sha256="a" * 64, width=4, height=4, size_bytes=1, format="PNG"
    )


async def asked(server: FaultServer, folder: Path, **arguments: object) -> list[EngineEvent]:
    """The events of a question about a picture."""
    engine = await connected(server, **arguments)
    prompt = ChatPrompt(turns=(user_turn("hello", [picture(folder)]),))
    try:
        return [one async for one in engine.generate(request(prompt))]
    finally:
        await engine.shutdown()


def request(prompt: Prompt, **more: Any) -> GenerateRequest:
    return GenerateRequest(request_id="r", prompt=prompt, sampling=Sampling(), **more)


def text_of(events: list[EngineEvent]) -> str:
    return "".join(one.text for one in events if isinstance(one, Delta))


async def test_an_answer_has_tokens_and_the_servers_prompt(server: FaultServer, tmp_path: Path) -> None:
    events = await asked(server, tmp_path)
    ready, *deltas, finished = events
    assert isinstance(ready, PromptReady) and isinstance(finished, Finished)
    assert ready.token_ids == PROMPT
    assert [(one.offset, one.length, one.tokens) for one in ready.media] == [(2, 4, 4)]
    assert ready.prompt == "".join(WORDS[one] for one in PROMPT)
    assert text_of(events) == "A red circle."
    assert tuple(one for delta in deltas if isinstance(delta, Delta) for one in delta.token_ids) == ANSWER
    assert (finished.finish_reason, finished.stop) == ("stop", "<|im_end|>")
    [body] = server.bodies
    content = body["messages"][0]["content"]  # type: ignore[index]
    assert content[0]["image_url"]["url"].startswith("data:image/png;base64,") and content[0]["uuid"] == "a" * 64


async def test_a_servers_token_counts_and_waiting_times_are_reported(server: FaultServer, tmp_path: Path) -> None:
    *events, done = whole_answer()
    usage = {"prompt_tokens": 8, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
    end = event(choices=[], usage=usage, metrics={"queue_time_ms": 3000})
    server.replies[CHAT] = [streams(*events, end, done)]
    *_, finished = await asked(server, tmp_path)
    assert isinstance(finished, Finished)
    assert (finished.usage.prompt_tokens, finished.usage.completion_tokens, finished.usage.cached_tokens) == (8, 5, 4)
    assert finished.timings.queued_s == 3
    odd = event(choices=[], usage={"prompt_tokens": -1, "prompt_tokens_details": [1]}, metrics={"queue_time_ms": "x"})
    server.replies[CHAT] = [streams(*events, odd, done)]
    *_, finished = await asked(server, tmp_path)
    assert isinstance(finished, Finished) and finished.usage == Usage() and finished.timings.queued_s is None


def test_the_worker_counts_tokens_of_media_for_a_server_and_keeps_no_waits() -> None:
    span = MediaSpan(modality="image", index=0, offset=2, length=4, tokens=4)
    kept = TrackedRequest("r", None, keep=True)
    kept.add(Waiting(request_id="r", seconds=1.0, reason="busy"))
    kept.add(PromptReady(request_id="r", prompt="", token_ids=PROMPT, media=(span,)))
    usage = Usage(prompt_tokens=8, completion_tokens=5, cached_tokens=2)
    kept.add(Finished(request_id="r", finish_reason="stop", usage=usage, timings=Timings()))
    _, finished = kept.events()
    assert isinstance(finished, Finished)
    assert finished.usage == Usage(prompt_tokens=8, completion_tokens=5, cached_tokens=2, image_tokens=4)


@pytest.mark.parametrize(
    ("pieces", "kind", "said", "kept"),
    [
        ([*whole_answer()[:3], DONE], ErrorKind.NO_NETWORK, "in the middle of the answer", "A red"),
        (whole_answer()[:3], ErrorKind.NO_NETWORK, "in the middle of the answer", "A red"),
        (whole_answer(ANSWER[:2], "abort"), ErrorKind.NO_NETWORK, "gave this answer up", "A red"),
        ([first_event(), token_event(4), event(error={"message": "boom", "code": 500}), DONE], ErrorKind.INTERNAL,
         "ended the answer with an error (500)", "A"),
        ([first_event(), token_event(4), event(error={"message": "EngineCore encountered an issue."})],
         ErrorKind.NO_NETWORK, "engine died", "A"),
        ([first_event(), b"data: {half"], ErrorKind.NO_NETWORK, "in the middle of the answer", ""),
        ([first_event(), b"data: {half\n\n"], ErrorKind.PROTOCOL, "not JSON", ""),
        ([first_event(), b"data: [1]\n\n"], ErrorKind.PROTOCOL, "without fields", ""),
        ([event(id="a", choices=[]), event(id="b", choices=[]), first_event(), token_event(4),
          event(id="a", choices=[])], ErrorKind.PROTOCOL, "parts of another answer", "A"),
    ],
)  # fmt: skip
async def test_an_incomplete_end_is_an_error_and_the_partial_answer_stays(
    server: FaultServer, tmp_path: Path, pieces: list[bytes], kind: ErrorKind, said: str, kept: str
) -> None:
    server.replies[CHAT] = [streams(*pieces)]
    engine = await connected(server)
    prompt = ChatPrompt(turns=(user_turn("hello", [picture(tmp_path)]),))
    events: list[EngineEvent] = []
    with pytest.raises(VlmtuiError) as failed:
        async for one in engine.generate(request(prompt)):
            events.append(one)
    assert (failed.value.kind, text_of(events)) == (kind, kept)
    assert said in failed.value.message
    await engine.shutdown()


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (400, {"error": {"message": "This model's maximum context length is 4096 tokens."}},
         ErrorKind.CONTEXT_TOO_LONG, "longer than the server's context"),
        (400, {"error": {"message": "Input length (4114) exceeds model's maximum context length (4096)."}},
         ErrorKind.CONTEXT_TOO_LONG, "longer than the server's context"),
        (400, {"error": {"message": "At most 8 image(s) may be provided in one prompt."}},
         ErrorKind.BAD_INPUT, "more attachments of a kind"),
        (400, {"object": "error", "message": "top_p is 3"}, ErrorKind.BAD_INPUT, "refused the request (400)"),
        (422, {"detail": [{"msg": "Field required"}]}, ErrorKind.BAD_INPUT, "refused the request (422)"),
        (401, {"error": "Unauthorized"}, ErrorKind.BAD_ENGINE_ARGUMENT, "wants a key (401); none was sent"),
        (500, "<html>Bad gateway</html>", ErrorKind.PROTOCOL, "web page"),
        (200, "<html>Sign in</html>", ErrorKind.PROTOCOL, "web page"),
        (302, "", ErrorKind.PROTOCOL, "to another address (302)"),
    ],
)  # fmt: skip
async def test_a_refusal_is_reported_in_plain_words(
    server: FaultServer, tmp_path: Path, status: int, body: object, kind: ErrorKind, said: str
) -> None:
    kind_of_body = "text/html" if isinstance(body, str) and body else "application/json"
    more = "Location: http://127.0.0.1:1/\r\n" if status == 302 else ""
    server.replies[CHAT] = [sends(body, status=status, kind=kind_of_body, more=more)] * 2
    with pytest.raises(VlmtuiError) as failed:
        await asked(server, tmp_path)
    assert failed.value.kind is kind and said in failed.value.message


async def test_a_500_after_a_rejected_request_with_the_same_image_is_retried(
    server: FaultServer, tmp_path: Path
) -> None:
    broken = {"error": {"message": "Internal server error", "code": 500}}
    server.replies[CHAT] = [sends(broken, status=500)]
    assert text_of(await asked(server, tmp_path)) == "A red circle."
    for before in ([], [first_event()]):  # within a stream that tells the prompt first, or not
        server.replies[CHAT] = [streams(*before, event(**broken), DONE)]
        events = await asked(server, tmp_path)
        assert text_of(events) == "A red circle."
        assert [isinstance(one, PromptReady) for one in events].count(True) == 1
    server.replies[CHAT] = [sends(broken, status=500)] * 2
    with pytest.raises(VlmtuiError, match="500"):
        await asked(server, tmp_path)
    assert not server.replies[CHAT]


async def test_a_silent_server_is_reported_by_its_health_or_by_a_time_out(server: FaultServer, tmp_path: Path) -> None:
    server.replies[CHAT] = [falls_silent(first_event(), token_event(4))]
    server.health = 503
    with pytest.raises(VlmtuiError, match="died"):
        await asked(server, tmp_path, stall_s=0.05)
    server.replies[CHAT] = [falls_silent(first_event(), token_event(4))]
    server.health = 200  # as that of a hung engine
    with pytest.raises(VlmtuiError, match="has been silent"):
        await asked(server, tmp_path, stall_s=0.05, silence_max_s=0.2)


async def test_endless_data_is_an_error(server: FaultServer, tmp_path: Path) -> None:
    server.replies[CHAT] = [never_ends(b"data: ", b"x" * 1_000_000)]
    with pytest.raises(VlmtuiError, match="more than an answer can hold"):
        await asked(server, tmp_path)
    server.replies["/v1/models"] = [never_ends(b"", b"x" * 1_000_000)]
    with pytest.raises(VlmtuiError, match="more than an answer can hold"):
        await connected(server)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (sends("<html>It works!</html>", kind="text/html"), "web page"),
        (sends({"hello": 1}), "no server of models"),
        (sends({"data": []}), "serves no model"),
        (sends({"data": [{"id": 3}]}), "serves no model"),
        (sends({"error": "Unauthorized"}, status=401), "wants a key"),
        (sends("", status=307, more="Location: http://127.0.0.1:1/v1/models\r\n"), "307"),
        (sends({"data": [{"id": "a"}, {"id": "b"}]}), "several models"),
    ],
)
async def test_other_servers_are_recognised_as_no_model_server(server: FaultServer, reply: Any, said: str) -> None:
    server.replies["/v1/models"] = [reply]
    with pytest.raises(VlmtuiError, match=said):
        await connected(server)


async def test_a_server_that_does_not_listen_is_waited_for_and_reported(server: FaultServer) -> None:
    with pytest.raises(VlmtuiError, match="Nothing listens at"):
        await connected(server, url="http://127.0.0.1:1")


async def test_a_key_is_read_from_its_source_and_goes_to_no_other_host(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "sesame")
    async with fault_server() as other:
        server.replies[CHAT] = [sends("", status=307, more=f"Location: {other.url}{CHAT}\r\n")]
        with pytest.raises(VlmtuiError, match="307"):
            await asked(server, tmp_path, api_key_env="THE_KEY")
        assert other.heads == []
    assert all("authorization: bearer sesame" in head.lower() for head in server.heads)
    (tmp_path / "key").write_text("open\n")
    server.heads.clear()
    await asked(server, tmp_path, api_key_file=str(tmp_path / "key"))
    assert all("authorization: bearer open" in head.lower() for head in server.heads)
    with pytest.raises(VlmtuiError, match="NO_SUCH_KEY is not set"):
        await connected(server, api_key_env="NO_SUCH_KEY")


async def test_missing_features_of_a_server_are_switched_off_with_their_flag(server: FaultServer) -> None:
    engine = await connected(server)
    capabilities = engine.info.capabilities
    assert capabilities.raw_prompts and not (capabilities.raw_media or capabilities.template_override)
    assert {one.name: one.flag for one in engine._facts.features if not one.on} == {
        "Raw prompts with attachments": "--enable-scale-out",
        "Another chat template": "--trust-request-chat-template",
        "Times of video frames": "--trust-request-mm-kwargs",
        "The chat template's source": "--enable-tokenizer-info-endpoint",
    }
    await engine.shutdown()


async def test_no_prompt_is_shown_if_the_server_reports_none(server: FaultServer, tmp_path: Path) -> None:
    server.replies[CHAT] = [streams(*whole_answer()[1:])]
    ready, *_ = await asked(server, tmp_path)
    assert isinstance(ready, PromptReady) and (ready.prompt, ready.token_ids) == ("", ())


@pytest.mark.parametrize(
    ("text", "base", "socket"),
    [
        ("http://host:8000", "http://host:8000", None),
        ("http://host:8000/v1/", "http://host:8000", None),
        ("https://host/models/v1", "https://host/models", None),
        ("http://[::1]:80", "http://[::1]:80", None),
        ("unix:/run/x.sock", "http://localhost", "/run/x.sock"),
    ],
)
def test_addresses_are_parsed(text: str, base: str, socket: str | None) -> None:
    found = server_address(text)
    assert (found.base, found.socket) == (base, socket)


@pytest.mark.parametrize(
    "text",
    ["", "host:8000", "ftp://host", "http://", "unix:x", "http://u:p@host", "http://h?a=1", "http://h:x", "http://a b",
     "http://exam\u200bple:8000"],
)  # fmt: skip
def test_invalid_addresses_are_refused(text: str) -> None:
    with pytest.raises(VlmtuiError) as failed:
        server_address(text)
    assert failed.value.kind is ErrorKind.BAD_INPUT and ":p@" not in str(failed.value)


async def test_a_host_that_no_name_can_have_is_refused(server: FaultServer) -> None:
    with pytest.raises(VlmtuiError, match="Not an address of a server") as failed:
        await connected(server, url="http://\u2603.test:8000")
    assert failed.value.kind is ErrorKind.BAD_INPUT


def test_places_of_media_are_reported_only_if_known(tmp_path: Path) -> None:
    one = picture(tmp_path)
    assert [(s.offset, s.length) for s in spans_between((0, 2, 3), (0, 2, 2, 2, 3), [one])] == [(1, 3)]
    two = spans_between((0, 2, 3, 2, 9), (0, 2, 2, 3, 2, 2, 2, 9), [one, one])
    assert [(s.offset, s.length, s.index) for s in two] == [(1, 2, 0), (4, 3, 1)]
    assert spans_between((0, 2, 3), (0, 2, 3), [one]) == ()
    assert spans_between((0, 2, 3), (0, 2, 2, 3), [one, one]) == ()


@pytest.mark.parametrize(
    ("ids", "written", "runs"),
    [
        ((0, 2, 2, 2, 3), "<user><pad>end", [(1, 4)]),
        ((0, 2, 2, 3, 2, 2, 2), "<user><pad>end<pad>", [(1, 3), (4, 7)]),
        ((2, 2, 2), "<pad><pad>", None),  # which of the two was expanded, nobody can tell
        ((0, 3, 3), "<user>endend", []),
        ((0, 3), "<user>end and more", None),
        ((0, 2, 3, 3), "<user><pad>", None),
        ((0, 9, 3), "<user>end", None),  # a token without a text
        ((0, 1), "<user>é", None),  # part of a character
        ((), "", []),
    ],
)
def test_a_prompt_is_compared_with_the_written_text(
    ids: tuple[int, ...], written: str, runs: list[tuple[int, int]] | None
) -> None:
    vocabulary = {one: Token(text=text) for one, text in enumerate(("<user>", "\ufffd", "<pad>", "end"))}
    assert expansions(ids, vocabulary, written) == runs


PAD = "<|image_pad|>"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<|im_start|>hello", "has 0 image placeholders for 1 images"),
        (PAD * 2, "has 2 image placeholders for 1 images"),
        (f"hello{PAD * 36}", "expanded already: <|image_pad|> stands 36 times in a row"),
        (f"{PAD}hello<|video_1|>", "has 1 video placeholders for 0 videos"),
    ],
)
async def test_placeholders_are_counted_before_anything_is_sent(
    server: FaultServer, tmp_path: Path, text: str, said: str
) -> None:
    engine = await connected(server, placeholders={"image": [PAD], "video": ["<|video_{i}|>"]})
    with pytest.raises(VlmtuiError, match=re.escape(said)) as failed:
        [_ async for _ in engine.generate(request(RawPrompt(text=text, attachments=(picture(tmp_path),))))]
    assert failed.value.kind is ErrorKind.PLACEHOLDER_MISMATCH and server.bodies == []
    await engine.shutdown()


async def test_misplaced_and_surplus_placeholders_are_reported(server: FaultServer, tmp_path: Path) -> None:
    server.tokens[PAD] = [2]
    engine = await connected(server, placeholders={"image": [PAD]})
    with pytest.raises(VlmtuiError, match="in the text of a message"):
        [_ async for _ in engine.generate(request(ChatPrompt(turns=(user_turn(f"a {PAD}"),))))]
    assert server.bodies == []
    with pytest.raises(VlmtuiError, match=r"\(token 2 of the prompt\) does not match any attached image"):
        [_ async for _ in engine.generate(request(ChatPrompt(turns=(user_turn("no picture"),))))]
    prompt = ChatPrompt(turns=(user_turn("hello", [picture(tmp_path)]),))
    assert text_of([one async for one in engine.generate(request(prompt))]) == "A red circle."
    await engine.shutdown()


def sent_url(body: dict[str, Any]) -> object:
    part = body["messages"][0]["content"][0]
    assert part["uuid"] == "a" * 64
    return part["image_url"]


async def test_a_known_image_is_sent_by_hash_until_the_server_forgets_it(server: FaultServer, tmp_path: Path) -> None:
    engine = await connected(server)
    prompt = ChatPrompt(turns=(user_turn("hello", [picture(tmp_path)]),))
    missed = {"error": {"message": "Cache miss for image at index 0 but data is not provided.", "code": 400}}
    for replies in ([], [], [sends(missed, status=400)], []):
        server.replies[CHAT] = list(replies)
        assert text_of([one async for one in engine.generate(request(prompt))]) == "A red circle."
    first, second, third, again, fourth = map(sent_url, server.bodies)
    assert second is third is None
    assert first == again == fourth and first is not None, "once it was missed, all go with their content"
    await engine.shutdown()


async def test_requests_at_once_that_miss_the_same_image_all_send_it(server: FaultServer, tmp_path: Path) -> None:
    """A front of several processes keeps images in each of them, as vLLM's with several ranks."""
    engine = await connected(server)
    prompt = ChatPrompt(turns=(user_turn("hello", [picture(tmp_path)]),))
    [one async for one in engine.generate(request(prompt))]
    missed = {"error": {"message": "Cache miss for image at index 0 but data is not provided.", "code": 400}}
    all_missed = asyncio.Barrier(4)

    async def reply(_server: FaultServer, writer: asyncio.StreamWriter) -> None:
        await all_missed.wait()
        await send(writer, missed, status=400)

    server.replies[CHAT] = [reply] * 4

    async def ask() -> str:
        return text_of([one async for one in engine.generate(request(prompt))])

    assert await asyncio.gather(*(ask() for _ in range(4))) == ["A red circle."] * 4
    assert [sent_url(body) is None for body in server.bodies] == [False, *[True] * 4, *[False] * 4]
    await engine.shutdown()


STANDARD = {"model", "messages", "stream", "stream_options", "temperature", "top_p", "max_tokens", "seed", "stop"}


async def test_another_server_gets_standard_fields_alone_and_may_not_list_its_model(
    server: FaultServer, tmp_path: Path
) -> None:
    missing = sends({"detail": "Not Found"}, status=404)
    server.replies |= {"/version": [missing], "/v1/models": [sends("Internal Server Error", status=500)]}
    told = [event(id="x", choices=[{"delta": {"content": text}}]) for text in ("A", " dot")]
    end = event(id="x", choices=[{"delta": {}, "finish_reason": "stop"}])
    usage = event(id="x", choices=[], usage={"prompt_tokens": 9, "completion_tokens": 2})
    server.replies[CHAT] = [streams(*told, end, usage, DONE)]
    ready, *deltas, finished = await asked(server, tmp_path, model="its-own")
    assert isinstance(ready, PromptReady) and (ready.prompt, ready.token_ids) == ("", ())
    assert text_of(deltas) == "A dot"
    assert isinstance(finished, Finished)
    assert (finished.usage.prompt_tokens, finished.usage.completion_tokens) == (9, 2)
    assert sum(delta.tokens for delta in deltas if isinstance(delta, Delta)) == 0, "an event may be several tokens"
    (body,) = server.bodies
    assert body["model"] == "its-own" and set(body) <= STANDARD
    assert set(body["messages"][0]["content"][0]) == {"type", "image_url"}  # type: ignore[index]


async def test_a_context_that_a_server_does_not_tell_is_unknown(server: FaultServer) -> None:
    for model, known in (({"id": "a"}, 0), ({"id": "a", "meta": {"n_ctx": 512}}, 512)):
        server.replies["/v1/models"] = [sends({"data": [model]})]
        engine = await connected(server)
        assert engine.info.max_model_len == known
        await engine.shutdown()


async def test_other_servers_have_no_videos_and_no_logprobs(server: FaultServer) -> None:
    server.replies["/version"] = [sends({"detail": "Not Found"}, status=404)]
    engine = await connected(server)
    capabilities = engine.info.capabilities
    assert not engine.info.limits, "a server does not tell them"
    assert not (capabilities.logprobs or capabilities.raw_media or capabilities.prompt_token_ids)
    assert "scale-out" not in str(engine.info.remedies), "no flag of vLLM helps there"
    assert lack(engine.info, "raw_media").endswith("in raw prompts. It reports no version of vLLM.")
    assert "--trust" not in engine.info.remedies["message_prompts"]
    film = Attachment(
        modality="video", name="a.mp4", path="a.mp4", sha256="a", width=8, height=8, size_bytes=9, format=""
    )
    with pytest.raises(VlmtuiError, match="gets only images"):
        assert [one async for one in engine.generate(request(ChatPrompt(turns=(user_turn("What?", [film]),))))]
    assert not server.bodies


async def test_an_old_server_gets_raw_prompts_through_a_template(server: FaultServer, tmp_path: Path) -> None:
    """vLLM 0.23 answers these requests as if there were no picture."""
    server.version, server.takes_templates, server.generate_status = "0.23.0", True, 200
    engine = await connected(server)
    assert engine.info.capabilities.raw_media and engine.info.capabilities.message_prompts
    prompt = RawPrompt(text="<|image_pad|>hello", attachments=(picture(tmp_path),))
    events = [one async for one in engine.generate(request(prompt))]
    assert text_of(events) == "A red circle."
    [body] = server.bodies
    assert body["chat_template"] == "{{ raw }}" and body["chat_template_kwargs"] == {"raw": prompt.text}
    assert body["add_special_tokens"] is True
    await engine.shutdown()


async def test_messages_of_a_raw_prompt_are_written_by_the_servers_template(
    server: FaultServer, tmp_path: Path
) -> None:
    server.takes_templates = True
    engine = await connected(server)
    parts: tuple[dict[str, object], ...] = ({"type": "image"}, {"type": "text", "text": "hello"})
    given = MessagesPrompt(
        messages=(Message(role="user", content=parts),), by="tokenizer", chat_template="{{ messages[0] }}",
        attachments=(picture(tmp_path),),
    )  # fmt: skip
    assert text_of([one async for one in engine.generate(request(given))]) == "A red circle."
    [body] = server.bodies
    assert body["chat_template"] == "{%- set messages = raw_messages -%}{{ messages[0] }}"
    assert body["chat_template_kwargs"] == {"raw_messages": [{"role": "user", "content": list(parts)}]}
    unknown = msgspec.structs.replace(given, chat_template=None)
    with pytest.raises(VlmtuiError) as caught:
        [one async for one in engine.generate(request(unknown))]
    assert caught.value.kind is ErrorKind.NO_CHAT_TEMPLATE
    await engine.shutdown()


async def test_the_raw_prompt_of_an_unknown_family_is_what_the_servers_template_writes(
    server: FaultServer, tmp_path: Path
) -> None:
    server.tells_prompts, server.generate_status = True, 400
    engine = await connected(server)
    assert engine.info.capabilities.message_prompts
    parts: tuple[dict[str, object], ...] = ({"type": "image"}, {"type": "text", "text": "hello"})
    messages = (Message(role="system", content="Be brief."), Message(role="user", content=parts))
    given = MessagesPrompt(messages=messages, by="processor", attachments=(picture(tmp_path),))
    server.replies[GENERATE] = [streams(*whole_answer())]
    assert text_of([one async for one in engine.generate(request(given))]) == "A red circle."
    first, second = server.bodies
    assert first["max_tokens"] == 1 and not first.get("stream")
    assert "image_url" in str(first["messages"]) and "hello" in str(first["messages"])
    assert second["token_ids"] == list(WRITTEN) and len(str(second["content_parts"]).split("image_url")) == 2
    text_only = MessagesPrompt(messages=messages[:1], by="processor")
    asked_for = RenderRequest(request_id="r", prompt=text_only, sampling=Sampling())
    ready, _ = [one async for one in engine.generate(asked_for)]
    assert isinstance(ready, PromptReady) and ready.text == "".join(WORDS[one] for one in WRITTEN)
    server.tells_prompts = False
    with pytest.raises(VlmtuiError, match="does not tell what the model's chat template writes") as caught:
        [one async for one in engine.generate(request(given))]
    assert caught.value.kind is ErrorKind.NO_CHAT_TEMPLATE
    await engine.shutdown()


async def test_a_server_that_drops_frames_is_found_out_by_its_token_count(server: FaultServer) -> None:
    def video(frames: int) -> MediaPart:
        return MediaPart("video", "data:video/jpeg;base64," + ",".join(["AAAA"] * frames), "v")

    api = ServerApi(ServerOptions(url=server.url))
    counts = [{"count": 900}, {"count": 900}, {"nothing": 1}, {"count": 1000}, {"count": 900}]
    server.replies["/tokenize"] = [sends(one) for one in counts]
    limit = FrameLimit(api, "shapes")
    await limit.check(video(32), "a.mp4")
    with pytest.raises(VlmtuiError, match=r"drops frames: of a\.mp4 it uses 32 of 40"):
        await limit.check(video(40), "a.mp4")
    for _ in range(3):  # not told, told to keep all, and asked no more
        await limit.check(video(40), "a.mp4")
    assert not server.replies["/tokenize"]
    await api.close()
