"""Checks that a loaded engine still answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError

_PINGS_PER_HANG = 6
_LONGEST_ANSWER_S = 6.0
"""Longest that one ping waits for its answer, as it counts: this process itself may have been suspended."""

OnSilence = Callable[[VlmtuiError | None], None]
"""Called with an error when an engine has been silent for too long, and with None when it answers again."""


class HealthMonitor:
    """Pings an engine's worker now and then, and asks it whether the engine shows signs of life."""

    def __init__(self, hang_s: float, *, ping_every_s: float | None = None) -> None:
        """`hang_s`: seconds of silence after which an engine counts as hung; 0: never. `ping_every_s`: six times in
        these seconds, if it is None, so that an idle app seldom wakes."""
        self._hang_s = hang_s
        self._ping_every_s = hang_s / _PINGS_PER_HANG if ping_every_s is None else ping_every_s

    async def watch(self, engine: Engine, on_silence: OnSilence) -> VlmtuiError | None:
        """Wait for the engine's end, and return its cause as `Engine.closed` does."""
        closed = asyncio.ensure_future(engine.closed())
        try:
            if self._hang_s > 0:
                await self._listen(engine, closed, on_silence)
            return await closed
        finally:
            closed.cancel()

    async def _listen(self, engine: Engine, closed: asyncio.Future[VlmtuiError | None], on_silence: OnSilence) -> None:
        deaf_s = silent_s = asked_s = 0.0
        hangs = False
        while not (await asyncio.wait([closed], timeout=self._ping_every_s))[0]:
            began = time.monotonic()
            asked_s += self._ping_every_s
            try:
                await engine.ping()
                deaf_s = 0.0
                if asked_s >= self._hang_s / 3:
                    silent_s, asked_s = (await engine.status()).engine_silent_s, 0.0
            except VlmtuiError:
                deaf_s += self._ping_every_s + min(time.monotonic() - began, _LONGEST_ANSWER_S)
            longest = max(deaf_s, silent_s)
            if (longest >= self._hang_s) is not hangs and not closed.done():
                hangs = not hangs
                on_silence(_silent(engine, longest) if hangs else None)


def _silent(engine: Engine, seconds: float) -> VlmtuiError:
    return VlmtuiError(
        ErrorKind.ENGINE_DIED,
        f"The engine of {engine.spec.name} has not answered for {seconds:.0f} s.",
        hint="It may be stuck. The partial answer stays.",
        remedy=Remedy.RESTART_ENGINE,
    )
