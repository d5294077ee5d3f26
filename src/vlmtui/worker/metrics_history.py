"""The engine's metrics of the last minutes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from vlmtui.domain.failure import Failure
from vlmtui.domain.metrics import EngineMetrics, MetricsSample
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.protocol.messages import MetricsReport

_SAMPLES = 150
"""Five minutes of one every two seconds."""
_ANSWER_S = 10.0


class MetricsHistory:
    """Asks the engine now and then, while somebody follows or it has work: an engine does not tell by itself.

    Not when its work begins, for reading metrics would delay the first token."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[EngineMetrics]],
        *,
        every_s: Callable[[], float],
        is_wanted: Callable[[], bool],
        tell: Callable[[MetricsReport], None],
    ) -> None:
        """`every_s` returns the seconds until the next sample. `tell` gets each new sample, or why there is none."""
        self._ask = ask
        self._every_s = every_s
        self._is_wanted = is_wanted
        self._tell = tell
        self._samples: deque[MetricsSample] = deque(maxlen=_SAMPLES)
        self._changed = asyncio.Event()
        self._now = asyncio.Event()

    @property
    def so_far(self) -> MetricsReport:
        """The samples of the last minutes."""
        return MetricsReport(samples=tuple(self._samples))

    def wake(self) -> None:
        """What `is_wanted` says may have changed."""
        self._changed.set()

    def ask_now(self) -> None:
        """Take a sample at once."""
        self._changed.set()
        self._now.set()

    async def run(self) -> None:
        """Take samples for ever."""
        while True:
            while not self._is_wanted():
                self._changed.clear()
                await self._changed.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s()):
                    await self._now.wait()
            self._now.clear()
            self._tell(await self._sample())

    async def _sample(self) -> MetricsReport:
        try:
            async with asyncio.timeout(_ANSWER_S):
                found = MetricsSample(at=time.time(), metrics=await self._ask())
        except TimeoutError:
            error = VlmtuiError(ErrorKind.ENGINE_BUSY, "The engine did not tell its metrics in time.")
            return MetricsReport(failure=Failure.of(error))
        except VlmtuiError as error:
            return MetricsReport(failure=Failure.of(error))
        self._samples.append(found)
        return MetricsReport(samples=(found,))
