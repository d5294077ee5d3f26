"""A scripted engine for comparisons. Its chat template is the bundled model's raw template, so that both prompts are
the same; of two requests, the chat request gets the first answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from tests.support import scripted_engine
from tests.support.scripted_engine import ScriptedEngine
from vlmtui.domain.conversation import ChatPrompt, Prompt, RawPrompt
from vlmtui.domain.generation import EngineEvent, RenderRequest, Request
from vlmtui.registry.loader import Registry
from vlmtui.registry.prompts import raw_prompt

SHAPES = Registry.bundled()["shapes"]


def use_chat_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every scripted engine render chat prompts with the bundled model's template."""
    plain = scripted_engine.prompt_text

    def written(prompt: Prompt) -> str:
        if not isinstance(prompt, ChatPrompt):
            return plain(prompt)
        raw = raw_prompt(SHAPES, prompt.turns)
        assert isinstance(raw, RawPrompt)
        return raw.text

    generate = ScriptedEngine.generate

    async def in_order(self: ScriptedEngine, request: Request) -> AsyncGenerator[EngineEvent, None]:
        if isinstance(request.prompt, RawPrompt) and not isinstance(request, RenderRequest):
            while sum(isinstance(one.prompt, ChatPrompt) for one in self.requests) * 2 <= len(self.requests):
                await asyncio.sleep(0)
        async with aclosing(generate(self, request)) as events:
            async for event in events:
                yield event

    monkeypatch.setattr(scripted_engine, "prompt_text", written)
    monkeypatch.setattr(ScriptedEngine, "generate", in_order)
