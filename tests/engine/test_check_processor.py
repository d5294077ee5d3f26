"""Prompts by the model's own processor are those of the real engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.local.model_reader import LocalModelReader
from vlmtui.inspection.stages import CheckedSide
from vlmtui.paths import Paths
from vlmtui.registry.match import Model
from vlmtui.session.check.cases import built_in_cases
from vlmtui.session.check.sides import sides_by_engine, sides_by_processor

pytestmark = pytest.mark.engine


async def test_prompts_of_processor_and_engine_are_equal(
    engine: WorkerClient, shapes: Model, engine_paths: Paths, tmp_path: Path
) -> None:
    cases = built_in_cases(shapes, (), ("chat", "raw"), engine_paths.media)
    assert len(cases) == 22
    here = sides_by_processor(LocalModelReader(engine_paths), shapes, cases)
    there = await sides_by_engine(engine, cases, tmp_path / "values", is_asked=False)
    for case, processor, vllm in zip(cases, here, there, strict=True):
        assert not processor.error and not vllm.error, (processor.error, vllm.error)
        assert facts(processor) == facts(vllm), case.title


def facts(side: CheckedSide) -> tuple[object, ...]:
    """Return the fields that processor and engine share; the engine also expands the placeholders in the text."""
    return side.token_ids, [(one.tokens, one.resized, one.grid) for one in side.media]
