"""Chat templates that never end, or that grow for ever: they are stopped, and nobody else is harmed."""

from __future__ import annotations

import asyncio
import resource
import sys
import threading
from collections.abc import Callable

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.hf.rendering import stop_templates, within_limits

LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
"""Ten billion rounds; the sandbox allows ranges of a hundred thousand."""
GROWTH = "{% set n = namespace(x='x' * 1000000) %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}"


def rendering(template: str) -> Callable[[], str]:
    return ImmutableSandboxedEnvironment().from_string(template).render


async def test_a_template_that_does_not_end_is_stopped() -> None:
    ended = threading.Event()

    def render() -> None:
        try:
            rendering(LOOP)()
        finally:
            ended.set()

    with pytest.raises(VlmtuiError, match="did not finish within") as raised:
        await within_limits(asyncio.to_thread(render), seconds=0.3)
    assert raised.value.kind is ErrorKind.BAD_INPUT
    assert await asyncio.to_thread(ended.wait, 60), "its thread goes on and takes the processor from the others"
    assert stop_templates() == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is Linux's")
async def test_a_growing_template_is_stopped_and_the_limit_removed() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(VlmtuiError, match="memory limit"):
        await within_limits(asyncio.to_thread(rendering(GROWTH)), more=2**28)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


async def test_a_memory_error_in_a_template_is_reported() -> None:
    class Wrapped(Exception):
        pass

    async def fails(cause: Exception) -> None:
        raise Wrapped from cause

    with pytest.raises(VlmtuiError, match="memory limit"):
        await within_limits(fails(MemoryError()), wrapped_in=(Wrapped,))
    with pytest.raises(Wrapped):
        await within_limits(fails(KeyError()), wrapped_in=(Wrapped,))


async def test_a_template_that_ends_passes_and_other_errors_are_unchanged() -> None:
    plain = [within_limits(asyncio.to_thread(rendering(f"{{{{ 6 * {number} }}}}"))) for number in range(5)]
    assert await asyncio.gather(*plain) == [str(6 * number) for number in range(5)]
    with pytest.raises(ZeroDivisionError):
        await within_limits(asyncio.to_thread(rendering("{{ 1 // 0 }}")))


async def test_only_threads_that_run_a_template_are_stopped() -> None:
    release = threading.Event()
    other = asyncio.create_task(asyncio.to_thread(lambda: release.wait(60) and "unharmed"))
    with pytest.raises(VlmtuiError):
        await within_limits(asyncio.to_thread(rendering(LOOP)), seconds=0.3)
    release.set()
    assert await other == "unharmed"
