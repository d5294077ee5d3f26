"""Chat templates that never end or grow for ever, and texts that are too long, in a loaded engine: others are served
meanwhile and afterwards."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from tests.support.engine_site import watch_for_torchvision
from tests.support.reasoning_templates import REASONING_TEMPLATES
from tests.worker.test_template_limits import GROWTH, LOOP, POWER
from tests.zoo import templates as zoo_templates
from vlmtui.domain.conversation import ChatPrompt, Message, MessagesPrompt, RawPrompt, user_turn
from vlmtui.domain.generation import EngineEvent, Failed, Finished, GenerateRequest, Request
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.errors import ErrorKind
from vlmtui.session.generation import new_request_id
from vlmtui.worker.hf.template_variables import reads_parts

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


@pytest.mark.parametrize("endless", [LOOP, POWER], ids=["loop", "operation"])
@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
async def test_an_endless_template_fails_alone(
    engine: WorkerClient, prompt: ChatPrompt | MessagesPrompt, endless: str
) -> None:
    hanging = asyncio.create_task(last_event(engine, a_request(prompt, endless)))
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


async def test_a_message_of_12_mb_is_refused_and_eight_others_are_answered(engine: WorkerClient) -> None:
    text = "A" * 12_000_000
    for prompt in (ChatPrompt(turns=(user_turn(text),)), RawPrompt(text=text)):
        begun = time.monotonic()
        asked = GenerateRequest(request_id=new_request_id(), prompt=prompt, sampling=Sampling(max_tokens=4))
        long = asyncio.create_task(last_event(engine, asked))
        others = [asyncio.create_task(last_event(engine, a_request(PROMPTS["by vLLM"]))) for _ in range(8)]
        ended = await long
        assert isinstance(ended, Failed)
        assert ended.failure.kind is ErrorKind.CONTEXT_TOO_LONG, ended.failure
        assert time.monotonic() - begun < 20
        assert all(isinstance(one, Finished) for one in await asyncio.gather(*others))


def test_the_content_that_a_template_reads_is_found_as_in_vllm() -> None:
    watch_for_torchvision()
    vllm = pytest.importorskip("vllm.renderers.hf")
    listed = [
        *(case.source("<image>") for case in REASONING_TEMPLATES.values()),
        *(path.read_text() for path in Path("src/vlmtui/bundled").rglob("*.jinja")),
        *(
            value
            for name, value in vars(zoo_templates).items()
            if isinstance(value, str) and "{%" in value and "$" not in value
        ),
        "{% macro show(c) %}{% for part in c %}{{ part }}{% endfor %}{% endmacro %}"
        "{% for m in messages %}{{ show(m.content) }}{{ show(c=m['content']) }}{% endfor %}",
        "{% macro show(c) %}{% for part in content %}{% endfor %}{% endmacro %}{% for m in messages %}{% endfor %}",
        "{% set a = messages[1:] %}{% for m in a %}{% for p in m.content|list %}{% endfor %}{% endfor %}",
        "{% for m in messages %}{% set content = m.content %}{% for p in content %}{% endfor %}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% set ns.m = messages %}{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}",
        "{% for m in messages %}{% for p, q in m.content %}{% endfor %}{% endfor %}",
        "{% for p in content %}{% endfor %}",
        "{% set ns.x = messages[0] %}{% set a = 1 %}{% for m in a %}{% for p in m.content %}{% endfor %}{% endfor %}",
        "{% set ns.x = 1 %}{% set a = 1 %}{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}",
    ]
    found = ["openai" if reads_parts(source) else "string" for source in listed]
    assert found == [vllm._detect_content_format(source, default="string") for source in listed]
    assert set(found) == {"openai", "string"}
    cycle = "{% set a = messages %}{% set b = a %}{% set a = b %}"  # which vLLM never ends to read
    assert reads_parts(cycle + "{% for m in b %}{% for p in m.content %}{% endfor %}{% endfor %}")
