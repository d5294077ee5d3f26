"""Chat templates that never end or grow for ever, in a loaded engine: others are served meanwhile and afterwards."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.worker.test_template_limits import GROWTH, LOOP
from vlmtui.domain.conversation import ChatPrompt, Message, MessagesPrompt, user_turn
from vlmtui.domain.generation import EngineEvent, Failed, Finished, GenerateRequest, Request
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.session.generation import new_request_id

pytestmark = pytest.mark.engine

PROMPTS: dict[str, ChatPrompt | MessagesPrompt] = {
    "by vLLM": ChatPrompt(turns=(user_turn("hello"),)),
    "by the tokenizer": MessagesPrompt(messages=(Message(role="user", content="hello"),), by="tokenizer"),
}


def a_request(prompt: ChatPrompt | MessagesPrompt, template: str | None = None) -> GenerateRequest:
    asked = GenerateRequest(request_id=new_request_id(), prompt=prompt, sampling=Sampling(max_tokens=4))
    return msgspec.structs.replace(asked, prompt=msgspec.structs.replace(prompt, chat_template=template))


async def last_event(engine: WorkerClient, request: Request) -> EngineEvent:
    return [event async for event in engine.generate(request)][-1]


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
async def test_an_endless_template_fails_alone(engine: WorkerClient, prompt: ChatPrompt | MessagesPrompt) -> None:
    hanging = asyncio.create_task(last_event(engine, a_request(prompt, LOOP)))
    meanwhile = await last_event(engine, a_request(PROMPTS["by the tokenizer"], "hello {{ messages[0].content }}"))
    assert isinstance(meanwhile, Finished)
    ended = await hanging
    assert isinstance(ended, Failed)
    assert "did not finish within" in ended.failure.message
    assert isinstance(await last_event(engine, a_request(prompt)), Finished)


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
async def test_a_growing_template_fails_alone(engine: WorkerClient, prompt: ChatPrompt | MessagesPrompt) -> None:
    ended = await last_event(engine, a_request(prompt, GROWTH))
    assert isinstance(ended, Failed)
    bounds = ("exceeds its memory limit", "did not finish within")  # the latter where memory is slow
    assert any(words in ended.failure.message for words in bounds)
    assert isinstance(await last_event(engine, a_request(prompt)), Finished)
