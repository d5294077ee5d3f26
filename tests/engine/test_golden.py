"""Golden prompts by the model's own processor are those of the real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from vlmtui.engine.interface import Engine
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.local.model_reader import LocalModelReader
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.golden import Golden
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model
from vlmtui.session.golden import GoldenPrompts

pytestmark = pytest.mark.engine


async def test_processor_and_engine_make_the_same_prompts(
    engine: WorkerClient, shapes: Model, engine_paths: Paths
) -> None:
    @asynccontextmanager
    async def opened(model: Model) -> AsyncIterator[Engine]:
        yield engine

    goldens = GoldenPrompts(Registry.bundled(), LocalModelReader(engine_paths), engine_paths.media, opened)
    prompts = goldens.canned(shapes, (), ("chat", "raw"))
    assert len(prompts) == 16
    here, there = await goldens.make("shapes", prompts, "processor"), await goldens.make("shapes", prompts, "engine")
    for prompt, processor, vllm in zip(prompts, here, there, strict=True):
        assert not isinstance(processor, VlmtuiError), processor
        assert not isinstance(vllm, VlmtuiError), vllm
        assert facts(processor) == facts(vllm), f"{prompt.case} {prompt.mode}"


def facts(golden: Golden) -> tuple[object, ...]:
    """What does not depend on who made it: the engine expands the placeholders in the text, too."""
    return golden.token_ids, [(one.tokens, one.resized, one.grid) for one in golden.media]
