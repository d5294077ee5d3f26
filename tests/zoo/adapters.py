"""Check that the model's own LoRA adapter for a request's media answers it."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from tests.support.other_requests import to_score
from vlmtui.domain.conversation import Attachment, user_turn
from vlmtui.domain.engine import adapter_for
from vlmtui.domain.generation import Delta, Failed
from vlmtui.domain.sampling import Sampling
from vlmtui.registry.match import Model
from vlmtui.session.generation import make_request

IDLE = "idle-lora"
"""The folder of a checkpoint's adapter that changes nothing."""
ALIKE, APART = 1e-4, 1e-3
"""The largest difference of a token's log-probability that counts as equal, and the smallest that counts as another."""


async def adapter_matters(engine: Any, model: Model, attachments: list[Attachment]) -> str:
    """Score an answer with the model's own adapter, with an idle one, and once more with the own.

    Raises AssertionError if the idle one gives the same numbers, or the last time others than the first."""
    own = adapter_for(model.spec, (one.modality for one in attachments))
    assert own is not None
    folder = Path(model.spec.model)
    default = await _scores(engine, model, attachments, "")
    idle = await _scores(engine, model, attachments, str(folder / IDLE))
    again = await _scores(engine, model, attachments, "")
    assert max(abs(one - other) for one, other in zip(default, again, strict=True)) <= ALIKE
    apart = max(abs(one - other) for one, other in zip(default, idle, strict=True))
    assert apart >= APART, f"the adapter {own.name!r} changes nothing: {apart:.1e}"
    return f"{own.name}, {apart:.2g} apart from an idle one"


async def _scores(engine: Any, model: Model, attachments: list[Attachment], adapter: str) -> list[float]:
    """The log-probabilities of a fixed answer."""
    request = make_request(
        model.family, [user_turn("What is {this}?", attachments)], Sampling(), mode="raw", logprobs=1
    )
    scoring = to_score(msgspec.structs.replace(request, adapter=adapter), b"A circle")
    found: list[float] = []
    async with aclosing(engine.generate(scoring)) as events:
        async for event in events:
            match event:
                case Failed(failure=failure):
                    raise failure.error()
                case Delta(logprobs=logprobs):
                    found += [one.logprob for one in logprobs]
    assert found, "nothing was scored"
    return found
