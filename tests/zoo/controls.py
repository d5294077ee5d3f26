"""Check that an answer about media ends at a stop token, has log-probabilities and can be cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from vlmtui.domain.conversation import Attachment, user_turn
from vlmtui.domain.generation import Delta, Failed, Finished, TokenLogprob
from vlmtui.domain.sampling import Sampling
from vlmtui.registry.match import Model
from vlmtui.session.generation import make_request

_TOKENS, _MANY, _CANDIDATES = 4, 200, 3
_ROUNDING = 1e-3


async def stops_at_a_token(engine: Any, model: Model, attachments: list[Attachment]) -> str:
    """The first token of an answer, given as a stop token, ends the same answer. Raises AssertionError."""
    whole, end = await _answer(engine, model, attachments, Sampling(max_tokens=_TOKENS, extra=_GO_ON))
    assert len(whole) == _TOKENS and end.finish_reason == "length", (len(whole), end)
    stop = whole[0].token_id
    sampling = Sampling(max_tokens=_TOKENS, stop_token_ids=(stop,), extra=_GO_ON)
    cut, end = await _answer(engine, model, attachments, sampling)
    assert end.finish_reason == "stop" and [one.token_id for one in cut] in ([], [stop]), (cut, end)
    return f"at token {stop}"


async def tells_logprobs(engine: Any, model: Model, attachments: list[Attachment]) -> str:
    """Each token of a greedy answer is the likeliest of its place. Raises AssertionError."""
    found, _ = await _answer(engine, model, attachments, Sampling(max_tokens=_TOKENS, extra=_GO_ON))
    assert len(found) == _TOKENS
    for one in found:
        assert len(one.top) >= _CANDIDATES and one.logprob <= _ROUNDING, one
        assert abs(one.logprob - max(other.logprob for other in one.top)) <= _ROUNDING, one
    return f"{len(found)} tokens, the first {found[0].logprob:.3f}"


async def can_be_cancelled(engine: Any, model: Model, attachments: list[Attachment]) -> str:
    """An answer that is given up after its first tokens leaves an engine that answers. Raises AssertionError."""
    sampling = Sampling(max_tokens=_MANY, extra=_GO_ON)
    request = make_request(model.family, [user_turn("What is {this}?", attachments)], sampling)
    tokens = 0
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            if isinstance(event, Failed):
                raise event.failure.error()
            if isinstance(event, Delta):
                tokens += event.tokens
                break
    assert 0 < tokens < _MANY, tokens
    found, _ = await _answer(engine, model, attachments, Sampling(max_tokens=_TOKENS, extra=_GO_ON))
    assert len(found) == _TOKENS
    return f"after {tokens}"


_GO_ON: dict[str, object] = {"ignore_eos": True}
CONTROLS: Mapping[str, Callable[[Any, Model, list[Attachment]], Awaitable[str]]] = {
    "stop": stops_at_a_token,
    "logprobs": tells_logprobs,
    "cancel": can_be_cancelled,
}


async def _answer(
    engine: Any, model: Model, attachments: list[Attachment], sampling: Sampling
) -> tuple[list[TokenLogprob], Finished]:
    """The tokens of an answer with their log-probabilities, and its end."""
    turn = user_turn("What is {this}?", attachments)
    request = make_request(model.family, [turn], sampling, logprobs=_CANDIDATES)
    found: list[TokenLogprob] = []
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            match event:
                case Failed(failure=failure):
                    raise failure.error()
                case Delta(logprobs=logprobs):
                    found += logprobs
                case Finished():
                    return found, event
                case _:
                    pass
    raise AssertionError("the answer has no end")
