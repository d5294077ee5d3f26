"""Asks the real engine as the app does."""

from __future__ import annotations

from contextlib import aclosing

from vlmtui.domain.conversation import Turn
from vlmtui.domain.generation import Request
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.registry.match import Model
from vlmtui.session.generation import Answer, PromptMode, make_request, run_turn


class Asker:
    def __init__(self, engine: WorkerClient, model: Model) -> None:
        self.engine = engine
        self.model = model

    async def run(self, request: Request) -> Answer:
        answer = Answer(request.request_id)
        async with aclosing(run_turn(self.engine, request)) as events:
            async for _, current in events:
                answer = current
        return answer

    async def __call__(self, *turns: Turn, mode: PromptMode = "chat", sampling: Sampling | None = None) -> Answer:
        return await self.run(make_request(self.model.family, turns, sampling or Sampling(), mode=mode))
