"""Refusals of vLLM's server, in its own words, and vlmtui's messages about them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from PIL import Image

from tests.support.fault_server import (
    DONE,
    WORDS,
    FaultServer,
    event,
    fault_server,
    sends,
    streams,
    whole_answer,
)
from tests.worker.test_remote import CHAT, asked, connected, picture, request
from vlmtui.domain.capabilities import lack
from vlmtui.domain.conversation import Attachment, ChatPrompt, user_turn
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import Finished
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.remote.engine import RemoteEngine, connect_to_server
from vlmtui.worker.backends.remote.http_api import ConnectionBroken, ServerApi
from vlmtui.worker.backends.remote.options import ServerOptions

MODELS = "/v1/models"


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with fault_server() as found:
        yield found


@pytest.mark.parametrize(
    ("status", "said", "kind", "message", "hint"),
    [
        (500, "Failed to apply prompt replacement for mm_items['image'][1]", ErrorKind.PLACEHOLDER_MISMATCH,
         "fewer placeholders", "exactly one"),
        (400, "Token id 999999 is out of vocabulary", ErrorKind.BAD_INPUT, "refused the request (400)", ""),
        (400, "top_p must be in (0, 1], got 3.", ErrorKind.BAD_INPUT, "refused the request (400)", ""),
        (500, "Cannot load local files without --allowed-local-media-path", ErrorKind.INTERNAL,
         "refused the request (500)", ""),
    ],
)  # fmt: skip
async def test_each_refusal_has_a_reason_and_a_remedy(
    server: FaultServer, tmp_path: Path, status: int, said: str, kind: ErrorKind, message: str, hint: str
) -> None:
    body = {"error": {"message": said, "type": "BadRequestError", "param": None, "code": status}}
    server.replies[CHAT] = [sends(body, status=status)] * 2
    with pytest.raises(VlmtuiError) as failed:
        await asked(server, tmp_path)
    assert failed.value.kind is kind
    assert message in failed.value.message and hint in failed.value.hint
    assert said in failed.value.detail, "its own words are kept"


_BUSY, _INPUT = ErrorKind.ENGINE_BUSY, ErrorKind.BAD_INPUT
_LATER = "Please try again later or on a different instance."


@pytest.mark.parametrize(
    ("status", "said", "kind", "message", "hint"),
    [
        (400, "Request decoded media exceeds VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES=1000 (50176 bytes).", _INPUT,
         "attachments together exceed", "a higher VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES."),
        (400, "Request decoded media exceeds VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES.", _INPUT,
         "attachments together exceed", "a higher VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES."),
        (400, "Request media downloads exceed VLLM_MAX_MEDIA_REQUEST_DOWNLOAD_SIZE_MB=256 (268435460 bytes received, "
         "including retried attempts).", _INPUT, "together", "a higher VLLM_MAX_MEDIA_REQUEST_DOWNLOAD_SIZE_MB."),
        (400, "Remote media download exceeds VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB=256 (received at least 268435460 bytes)",
         _INPUT, "An attachment exceeds", "a higher VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB."),
        (400, "Image dimensions 20000x20000 (400000000 pixels) exceed the maximum of 178956970 pixels. Set "
         "VLLM_MAX_IMAGE_PIXELS to increase this limit.", _INPUT, "An attachment exceeds", "VLLM_MAX_IMAGE_PIXELS."),
        (400, "Maximum file size exceeded (parameter=audio_filesize_mb, value=30.5)", _INPUT, "An attachment exceeds",
         "a higher VLLM_MAX_AUDIO_CLIP_FILESIZE_MB."),
        (400, "Failed to buffer the request body: length limit exceeded", _INPUT, "message is larger",
         "VLLM_HTTP_MAX_REQUEST_BODY_SIZE"),
        (400, "The decoder prompt contains a(n) image item with 16384 embedding tokens, which exceeds the "
         "pre-allocated encoder cache size 8192. Please reduce the input size or increase the encoder cache size by "
         "setting --limit-mm-per-prompt at startup.", _INPUT, "server's encoder cache",
         "a higher --max-num-batched-tokens."),
        (400, "At most 1 image(s) may be provided in one prompt.", _INPUT, "prompt has more attachments of a kind",
         "a higher `image` in --limit-mm-per-prompt."),
        (413, "Payload Too Large", _INPUT, "message is larger", "a proxy has its own"),
        (503, f"The engine is currently busy and cannot accept new requests. {_LATER}", _BUSY, "queue is full",
         "a higher --max-num-queued-reqs."),
        (503, f"The engine has reached its prefill token backlog limit. {_LATER}", _BUSY, "queue is full",
         "a higher --max-num-queued-tokens."),
        (503, "Generation is paused. Please retry after it resumes.", _BUSY, "is paused", "once it resumes"),
        (500, "The server had an error while processing your request.", ErrorKind.NO_NETWORK, "engine died", "log"),
    ],
)  # fmt: skip
async def test_the_refusals_of_vllm_033_have_a_reason_and_a_remedy(
    server: FaultServer, tmp_path: Path, status: int, said: str, kind: ErrorKind, message: str, hint: str
) -> None:
    body = {"error": {"message": said, "type": "BadRequestError", "param": None, "code": status}}
    server.replies[CHAT] = [sends(body, status=status)] * 3
    with pytest.raises(VlmtuiError) as failed:
        await asked(server, tmp_path, back_off_s=(0.0, 0.0))
    assert failed.value.kind is kind
    assert message in failed.value.message and hint in failed.value.hint
    assert said in failed.value.detail, "its own words are kept"


async def test_a_paused_engine_is_asked_again_even_if_it_says_so_in_the_stream(
    server: FaultServer, tmp_path: Path
) -> None:
    paused = {"message": "Generation is paused. Please retry after it resumes.", "code": 503}
    server.replies[CHAT] = [streams(event(error=paused), DONE)]
    events = await asked(server, tmp_path, back_off_s=(0.0,))
    assert any(isinstance(one, Finished) for one in events) and len(server.bodies) == 2


async def test_a_front_end_that_tells_no_prompt_text_is_asked_without(server: FaultServer, tmp_path: Path) -> None:
    """vLLM's Rust front end, in 0.33."""
    said = {"message": "return_prompt_text is not supported.", "type": "Bad Request", "param": None, "code": 400}
    server.replies[CHAT] = [sends({"error": said}, status=400)]
    engine = await connected(server, back_off_s=(0.0,))
    for _ in range(2):
        events = [one async for one in engine.generate(request(ChatPrompt(turns=(user_turn("hello"),))))]
        assert isinstance(events[-1], Finished)
    assert ["return_prompt_text" in body for body in server.bodies] == [True, False, False]
    await engine.shutdown()


async def test_a_server_that_hangs_up_on_a_large_message_may_have_a_limit(server: FaultServer) -> None:
    """vLLM's Rust front end refuses a large body before it has read it, and closes: the refusal itself is lost."""
    api = ServerApi(ServerOptions(url=server.url))
    for size, said in ((100, "broke."), (3_000_000, "broke on a message of 3 MB.")):
        server.replies["/tokenize"] = [hangs_up]
        with pytest.raises(ConnectionBroken) as failed:
            await api.post("/tokenize", {"prompt": "a" * size})
        assert failed.value.message.endswith(said)
        assert ("VLLM_HTTP_MAX_REQUEST_BODY_SIZE" in failed.value.hint) is (size > 1_000_000)
    await api.close()


async def hangs_up(_server: FaultServer, writer: asyncio.StreamWriter) -> None:
    """Close the connection without an answer."""
    writer.close()


async def test_a_proxys_page_about_the_size_is_understood(server: FaultServer, tmp_path: Path) -> None:
    page = "<html><head><title>413 Request Entity Too Large</title></head></html>"
    server.replies[CHAT] = [sends(page, status=413)]
    with pytest.raises(VlmtuiError, match="The message is larger than the server accepts"):
        await asked(server, tmp_path)


@pytest.mark.parametrize(
    ("body", "own_words"),
    [
        ({"error": "Unauthorized"}, "Unauthorized"),
        ({"error": {"message": "Incorrect API key provided", "code": 401}}, "Incorrect API key provided"),
        ({"detail": "Not authenticated"}, "Not authenticated"),
        ("", ""),
    ],
)
async def test_a_missing_and_a_wrong_key_are_distinguished(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: object, own_words: str
) -> None:
    monkeypatch.setenv("THE_KEY", "the-wrong-key")
    for arguments, said, hint in (
        ({}, "wants a key (401); none was sent.", "--key-env"),
        ({"api_key_env": "THE_KEY"}, "refused this key (401).", "Check the variable or file"),
    ):
        for path, ask in ((CHAT, asked(server, tmp_path, **arguments)), (MODELS, connected(server, **arguments))):
            server.replies[path] = [sends(body, status=401)]
            with pytest.raises(VlmtuiError) as failed:
                await ask
            assert failed.value.kind is ErrorKind.BAD_ENGINE_ARGUMENT
            assert said in failed.value.message and hint in failed.value.hint and failed.value.detail == own_words


@pytest.mark.parametrize("version", ["0.32.0", ""])
async def test_a_raw_prompt_of_an_unknown_family_is_refused_with_a_hint(server: FaultServer, version: str) -> None:
    server.version = version
    server.replies["/tokenize"] = [sends({}, status=404)] * 2
    engine = await connected(server)
    said = lack(engine.info, "message_prompts")
    assert "name it (--model FAMILY;" in said and "write the raw prompt yourself" in said
    assert ("--trust-request-chat-template" in said) is bool(version)
    await engine.shutdown()
    known = LoadSpec(
        model="shapes", name="shapes", backend="remote", family="shapes", engine_args={"url": server.url, "wait_s": 0}
    )
    engine = await connect_to_server(known, lambda step: None)
    assert "--model FAMILY" not in lack(engine.info, "message_prompts")
    await engine.shutdown()


_PIXELS = "Image dimensions {} (1 pixels) exceed the maximum of 5 pixels. Set VLLM_MAX_IMAGE_PIXELS to increase it."
_CACHE = (
    "The decoder prompt contains a(n) image item with {} embedding tokens, which exceeds the pre-allocated encoder "
    "cache size 3."
)
_DECODED = "Request decoded media exceeds VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES=1000 (50176 bytes)."
_ONE, _TOGETHER = "An attachment exceeds the server's limit.", "attachments together exceed the server's limit."
_HELD, _LARGE = "encoder cache holds.", "message is larger than the server accepts."


@pytest.mark.parametrize(
    ("status", "said", "sizes", "message"),
    [
        (400, _PIXELS.format("9x9"), [(4, 3)], f"{_ONE} It is 0.png (4×3)."),
        (400, _PIXELS.format("8x2"), [(9, 9), (8, 2), (2, 8)], f"{_ONE} It is 1.png (8×2)."),
        (400, _PIXELS.format("8x2"), [(8, 2), (9, 9), (8, 2)], _ONE),
        (400, _PIXELS.format("7x7"), [(8, 2), (4, 5)], f"{_ONE} The largest is 1.png (4×5)."),
        (400, "Maximum file size exceeded (parameter=audio_filesize_mb, value=30.5)", [(4, 3)], _ONE),
        (400, _CACHE.format(9), [(4, 3)], f"{_HELD} It is 0.png (4×3)."),
        (400, _CACHE.format(9), [(1200, 3), (4, 3)], f"{_HELD} The largest is 0.png (1,200×3)."),
        (400, _DECODED, [(4, 3), (3, 3)], f"{_TOGETHER} The largest is 0.png (4×3)."),
        (413, "Payload Too Large", [(4, 3)], f"{_LARGE} Its only attachment is 0.png (4×3)."),
        (413, "Payload Too Large", [(4, 3), (900, 900)], f"{_LARGE} The largest is 1.png (3 kB as sent)."),
        (413, "Payload Too Large", [], _LARGE),
        (400, "At most 1 image(s) may be provided in one prompt.", [(4, 3), (3, 3)], "than the server accepts."),
        (503, "Generation is paused.", [(4, 3)], "The server is paused."),
    ],
)  # fmt: skip
async def test_a_refusal_names_the_attachment_if_it_can_be_only_one(
    server: FaultServer, tmp_path: Path, status: int, said: str, sizes: list[tuple[int, int]], message: str
) -> None:
    server.replies[CHAT] = [sends({"error": {"message": said, "code": status}}, status=status)]
    engine = await connected(server, back_off_s=())
    said = await refused(engine, [drawn(tmp_path, number, size) for number, size in enumerate(sizes)])
    assert re.sub(r"\d+ (bytes|kB)", "3 kB", said).endswith(message)
    await engine.shutdown()


async def test_a_refusal_that_tells_tokens_names_the_image_that_has_them(server: FaultServer, tmp_path: Path) -> None:
    """The server told the tokens of each image in an earlier prompt, the first time that of one only."""
    images = [drawn(tmp_path, number, (4, 4)) for number in range(2)]
    begin, *rest = whole_answer()
    prompt = f"{WORDS[0]}user{WORDS[2]}hello{WORDS[3]}"
    longer = event(choices=[], prompt_token_ids=[0, 1, *[2] * 6, 9, 3], prompt_text=prompt)
    refusals = [sends({"error": {"message": _CACHE.format(tokens)}}, status=400) for tokens in (4, 4, 6, 5)]
    server.replies[CHAT] = [streams(begin, *rest), refusals[0], streams(longer, *rest), *refusals[1:]]
    engine = await connected(server)
    said = [await refused(engine, some) for some in (images[:1], images, images[1:], images, images, images)]
    assert [one.removeprefix("An attachment takes more tokens than the server's ") for one in said] == [
        "", _HELD, "", f"{_HELD} It is 0.png (4×4).", f"{_HELD} It is 1.png (4×4).", _HELD
    ]  # fmt: skip
    await engine.shutdown()


def drawn(folder: Path, number: int, size: tuple[int, int]) -> Attachment:
    path = folder / f"{number}.png"
    Image.new("RGB", size).save(path)
    return msgspec.structs.replace(
        picture(folder), name=path.name, path=str(path), sha256=str(number) * 64, width=size[0], height=size[1]
    )


async def refused(engine: RemoteEngine, images: list[Attachment]) -> str:
    """Ask about images, and return the message of the refusal; "" for an answer."""
    try:
        async for _ in engine.generate(request(ChatPrompt(turns=(user_turn("hello", images),)))):
            pass
    except VlmtuiError as error:
        return error.message
    return ""
