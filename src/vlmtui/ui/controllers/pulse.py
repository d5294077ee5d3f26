"""Whether a loaded engine still answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError

BEAT_S = 1.0
"""From one ping to the next."""
_LONGEST_BEAT_S = 7.0
"""What a ping without an answer counts at most: when this process itself was stopped, nobody was silent meanwhile."""

OnSilence = Callable[[VlmtuiError | None], None]
"""Called with an error when an engine has been silent for too long, and with None when it answers again."""


class Pulse:
    """Pings an engine once a second, and asks its worker now and then whether the engine itself shows signs of life.

    `hang_s`: an engine that is silent for so many seconds is said to hang; 0: never.
    """

    def __init__(self, hang_s: float) -> None:
        self._hang_s = hang_s

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
        while not (await asyncio.wait([closed], timeout=BEAT_S))[0]:
            began = time.monotonic()
            asked_s += BEAT_S
            try:
                await engine.ping()
                deaf_s = 0.0
                if asked_s >= self._hang_s / 3:
                    silent_s, asked_s = (await engine.status()).engine_silent_s, 0.0
            except VlmtuiError:
                deaf_s += min(BEAT_S + time.monotonic() - began, _LONGEST_BEAT_S)
            longest = max(deaf_s, silent_s)
            if (longest >= self._hang_s) is not hangs and not closed.done():
                hangs = not hangs
                on_silence(_silent(engine, longest) if hangs else None)


def _silent(engine: Engine, seconds: float) -> VlmtuiError:
    return VlmtuiError(
        ErrorKind.ENGINE_DIED,
        f"The engine of {engine.spec.name} has not answered for {seconds:.0f} s.",
        hint="It may be stuck: F5 ends it and starts it again. What has come of the answer stays.",
    )
