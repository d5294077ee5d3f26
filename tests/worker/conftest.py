"""What tests of workers share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from vlmtui.worker.hf.rendering import TemplateProcesses


@pytest.fixture
async def templates() -> AsyncIterator[TemplateProcesses]:
    """Processes that render templates; ended after the test."""
    started = TemplateProcesses()
    yield started
    started.close()
