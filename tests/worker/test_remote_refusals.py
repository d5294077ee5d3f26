"""What vLLM's server refuses, in its own words, and what is made of them; connections that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fault_server import FaultServer, falls_silent, fault_server, first_event, sends, token_event
from tests.worker.test_remote import CHAT, asked
from vlmtui.errors import ErrorKind, VlmtuiError


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with fault_server() as found:
        yield found


@pytest.mark.parametrize(
    ("status", "said", "kind", "message", "hint"),
    [
        (400, "Failed to load image: cannot identify image file <_io.BytesIO object>", ErrorKind.BAD_INPUT,
         "can't read one of the attachments", "don't name which one"),
        (400, "Non-base64 digit found", ErrorKind.BAD_INPUT, "can't read one of the attachments", ""),
        (400, "Could not open video stream", ErrorKind.BAD_INPUT, "can't read one of the attachments", ""),
        (404, "The model `my-lora` does not exist. Valid aliases: shapes.", ErrorKind.MODEL_UNKNOWN,
         "a model called my-lora", "engines probe"),
        (400, "At most 0 audio(s) may be provided in one prompt.", ErrorKind.BAD_INPUT, "at most 0 audio(s)", ""),
        (400, "Chat template is passed with request, but --trust-request-chat-template is not set.",
         ErrorKind.UNSUPPORTED, "no chat template with a request", "--trust-request-chat-template"),
        (400, "Per-request mm_processor_kwargs are disabled by default", ErrorKind.UNSUPPORTED,
         "no processor arguments", "--trust-request-mm-kwargs"),
        (403, "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.",
         ErrorKind.UNSUPPORTED, "no token ids", "--enable-scale-out"),
        (500, "Failed to apply prompt replacement for mm_items['image'][1]", ErrorKind.PLACEHOLDER_MISMATCH,
         "fewer placeholders", "exactly one"),
        (400, "Token id 999999 is out of vocabulary", ErrorKind.BAD_INPUT, "refused the request (400)", "below"),
        (400, "top_p must be in (0, 1], got 3.", ErrorKind.BAD_INPUT, "refused the request (400)", "below"),
        (500, "Cannot load local files without --allowed-local-media-path", ErrorKind.INTERNAL,
         "refused the request (500)", "below"),
    ],
)  # fmt: skip
async def test_each_refusal_says_what_and_what_to_do(
    server: FaultServer, tmp_path: Path, status: int, said: str, kind: ErrorKind, message: str, hint: str
) -> None:
    body = {"error": {"message": said, "type": "BadRequestError", "param": None, "code": status}}
    server.replies[CHAT] = [sends(body, status=status)] * 2
    with pytest.raises(VlmtuiError) as failed:
        await asked(server, tmp_path)
    assert failed.value.kind is kind
    assert message in failed.value.message and hint in failed.value.hint
    assert said in failed.value.detail, "its own words are kept"


async def hangs_up(_server: FaultServer, _writer: asyncio.StreamWriter) -> None:
    """Answer nothing; the connection closes."""


async def test_a_server_that_falls_silent_and_is_gone_is_named(server: FaultServer, tmp_path: Path) -> None:
    server.replies |= {CHAT: [falls_silent(first_event(), token_event(4))], "/health": [hangs_up]}
    with pytest.raises(VlmtuiError, match="went away in the middle of the answer") as failed:
        await asked(server, tmp_path, stall_s=0.05)
    assert failed.value.kind is ErrorKind.NO_NETWORK and "What came is kept" in failed.value.hint


async def test_a_server_that_hangs_up_before_it_answers_is_told(server: FaultServer, tmp_path: Path) -> None:
    server.replies[CHAT] = [hangs_up]
    with pytest.raises(VlmtuiError, match=r"connection to .* broke"):
        await asked(server, tmp_path)
