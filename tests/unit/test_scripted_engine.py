"""The scripted engine behaves like the real client, so that tests with it are valid."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.scripted_engine import (
    DEFAULT_SPEC,
    Die,
    End,
    Fail,
    Hold,
    Say,
    ScriptedEngine,
    ScriptedHost,
)
from tests.support.scripted_tokens import IMAGE_TOKENS
from vlmtui.domain.conversation import Attachment, ChatPrompt, RawPrompt, user_turn
from vlmtui.domain.engine import EngineReady, LoadFailed, LoadProgress
from vlmtui.domain.generation import Cancelled, Delta, Failed, Failure, Finished, GenerateRequest, PromptReady
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine, EngineHost
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.generation import run_turn


def a_request(request_id: str = "r1") -> GenerateRequest:
    return GenerateRequest(
        request_id=request_id, prompt=ChatPrompt(turns=(user_turn("what is this?"),)), sampling=Sampling()
    )


def test_it_is_an_engine_and_a_host() -> None:
    host: EngineHost = ScriptedHost()
    engine: Engine = ScriptedEngine()
    assert host
    assert engine


async def test_an_answer_has_a_prompt_deltas_and_one_end() -> None:
    engine = ScriptedEngine(answers=[["a ", "b", End("length")]])
    events = [event async for event in engine.generate(a_request())]
    assert [type(event) for event in events] == [PromptReady, Delta, Delta, Finished]
    end = events[-1]
    assert isinstance(end, Finished)
    assert (end.finish_reason, end.stop, end.usage.completion_tokens) == ("length", None, 2)


async def test_tokens_and_logprobs_have_the_form_of_the_real_engines() -> None:
    engine = ScriptedEngine(answers=[["a ", Say("red circle", 2, {"red": -0.5, "blue": -1.5, "green": -2.5})], ["a "]])
    picture = Attachment(
        modality="image", name="x", path="", sha256="0" * 64, width=1, height=1, size_bytes=1, format="PNG"
    )
    text = "<|im_start|>user\n<|image_pad|>What  is\tthis?<|im_end|> "
    request = GenerateRequest(
        request_id="r1", prompt=RawPrompt(text=text, attachments=(picture,)), sampling=Sampling(), logprobs=2
    )
    answer = [answer async for _, answer in run_turn(engine, request)][-1]
    prompt = answer.prompt
    assert prompt is not None
    assert "".join(prompt.vocabulary[token].text for token in prompt.token_ids) == prompt.prompt
    assert prompt.prompt == text.replace("<|image_pad|>", "<|image_pad|>" * IMAGE_TOKENS)
    (span,) = prompt.media
    assert {prompt.vocabulary[one].text for one in prompt.token_ids[span.offset : span.offset + span.length]} == {
        "<|image_pad|>"
    }
    assert [entry.text for entry in prompt.vocabulary.values() if entry.special] == [
        "<|im_start|>", "<|image_pad|>", "<|im_end|>",
    ]  # fmt: skip
    assert "".join(answer.vocabulary[token].text for token in answer.token_ids) == answer.text == "a red circle"
    assert [one.token_id for one in answer.logprobs] == answer.token_ids
    tops = [[answer.vocabulary[other.token_id].text for other in one.top] for one in answer.logprobs]
    assert tops == [["a ", "a ?"], ["red", "blue"], ["red", "blue"]]

    plain = [answer async for _, answer in run_turn(engine, a_request())][-1]
    assert plain.logprobs == []
    assert plain.token_ids == answer.token_ids[:1]


async def test_a_load_ends_with_ready_and_is_not_repeated() -> None:
    engine = ScriptedEngine()
    first = [event async for event in engine.load()]
    assert isinstance(first[0], LoadProgress)
    assert isinstance(first[-1], EngineReady)
    assert [type(event) async for event in engine.load()] == [EngineReady]


async def test_a_failed_or_killed_load_is_reported() -> None:
    failure = Failure(kind=ErrorKind.OUT_OF_MEMORY, message="too big")
    failing = ScriptedEngine(load=[LoadFailed(failure)])
    assert [event async for event in failing.load()] == [LoadFailed(failure)]
    dying = ScriptedEngine(load=[Die("gone")])
    [event] = [event async for event in dying.load()]
    assert isinstance(event, LoadFailed)
    assert event.failure.kind is ErrorKind.ENGINE_DIED


async def test_cancel_ends_with_cancelled_even_while_held() -> None:
    engine = ScriptedEngine(answers=[["half", Hold(asyncio.Event()), "never"]])
    events = engine.generate(a_request())
    assert isinstance(await anext(events), PromptReady)
    assert isinstance(await anext(events), Delta)
    await engine.cancel("r1")
    [end] = [event async for event in events]
    assert isinstance(end, Cancelled)
    assert end.usage.completion_tokens == 1


async def test_closing_early_cancels() -> None:
    engine = ScriptedEngine()
    events = engine.generate(a_request())
    await anext(events)
    await events.aclose()
    assert engine.cancelled == ["r1"]


async def test_a_failure_leaves_the_engine_alive_and_death_does_not() -> None:
    failure = Failure(kind=ErrorKind.CONTEXT_TOO_LONG, message="too long")
    engine = ScriptedEngine(answers=[[Fail(failure)], ["half", Die("killed")]])
    assert [event async for event in engine.generate(a_request())][-1] == Failed(request_id="r1", failure=failure)
    assert engine.alive
    last = [event async for event in engine.generate(a_request("r2"))][-1]
    assert isinstance(last, Failed)
    assert last.failure.kind is ErrorKind.ENGINE_DIED
    cause = await engine.closed()
    assert cause is not None
    with pytest.raises(VlmtuiError):
        await engine.status()


async def test_the_log_follows() -> None:
    engine = ScriptedEngine()
    lines = engine.log(1)
    assert await anext(lines) == "ready"
    engine.add_log("more")
    assert await anext(lines) == "more"
    await engine.close()
    assert [line async for line in lines] == []


async def test_a_host_attaches_to_a_living_engine_and_restarts_a_dead_one() -> None:
    host = ScriptedHost(answers=[[Die()], ["again"]])
    first = await host.open(DEFAULT_SPEC, client="test", keep_alive_s=60)
    assert await host.open(DEFAULT_SPEC, client="test", keep_alive_s=60) is first
    assert first.attached
    assert [type(event) async for event in first.generate(a_request())][-1] is Failed
    second = await host.open(DEFAULT_SPEC, client="test", keep_alive_s=60)
    assert second is not first
    assert [event.text async for event in second.generate(a_request()) if isinstance(event, Delta)] == ["again"]
    await second.shutdown()
    assert await host.running() == []
