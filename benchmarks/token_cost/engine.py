"""An engine whose tokens cost nothing: every 10 ms a step, which gives one token to each request, as vLLM's steps do.

As a program it is a real worker with the real guardian and server around this engine.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncGenerator, Iterator

from tests.support.scripted_engine import scripted_info, scripted_prompt
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import Delta, EngineEvent, Finished, GenerateRequest, Timings, Token, Usage
from vlmtui.worker import guardian, serve
from vlmtui.worker.backends.contract import Backend, Report

RATE = 100
"""Steps a second."""
_WORDS = ("the", "red", "circle", "stands", "left", "of", "a", "blue", "square", "and", "above", "it", "runs")


class SteppingEngine:
    """A hosted engine. A request's tokens come one at a time, those of all requests in the same turn of the loop."""

    def __init__(self, spec: LoadSpec) -> None:
        self.info = scripted_info(spec)
        self._waiting: list[asyncio.Future[None]] = []
        self._running = 0
        self._next_at = 0.0

    @classmethod
    async def load(cls, spec: LoadSpec, report: Report) -> SteppingEngine:
        return cls(spec)

    async def died(self) -> None:
        await asyncio.Event().wait()

    async def shutdown(self) -> None:
        return

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[EngineEvent, None]:
        yield scripted_prompt(request)
        for delta in deltas(request):
            await self._next_step()
            yield delta
        yield Finished(request_id=request.request_id, finish_reason="length", usage=Usage(), timings=Timings())

    async def _next_step(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            self._next_at = max(self._next_at + 1 / RATE, loop.time())
            loop.call_at(self._next_at, self._step)
        step = loop.create_future()
        self._waiting.append(step)
        await step

    def _step(self) -> None:
        waiting, self._waiting = self._waiting, []
        for step in waiting:
            if not step.done():
                step.set_result(None)


def deltas(request: GenerateRequest) -> Iterator[Delta]:
    """Return an answer of `max_tokens` tokens, each on its own. A token's text is told when it first comes."""
    known: set[int] = set()
    for token in itertools.islice(itertools.cycle(range(len(_WORDS))), request.sampling.max_tokens):
        text = f" {_WORDS[token]}"
        new = {} if token in known else {token: Token(text=text)}
        known.add(token)
        yield Delta(request_id=request.request_id, text=text, tokens=1, token_ids=(token,), vocabulary=new)


if __name__ == "__main__":
    if "--guardian" in sys.argv:
        sys.exit(serve.main(sys.argv[1:], Backend(title="Steps", load=SteppingEngine.load)))
    sys.exit(guardian.main(sys.argv[1:], server="benchmarks.token_cost.engine"))
