"""Notices when nothing goes on any more on Ray, which by itself may wait for ever."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from vlmtui.config.duration import describe_duration
from vlmtui.errors import ErrorKind, VlmtuiError

LIMIT_S = 1800.0
"""Seconds without any progress after which a batch is given up, unless told otherwise."""
_LOOK_S = 5.0
_ASK_S = 5.0
"""How long the counter may take to answer."""

_T = TypeVar("_T")


class Counter:
    """Runs as an actor: counts what the others tell it that they have done."""

    def __init__(self) -> None:
        self._count = 0

    def add(self) -> None:
        self._count += 1

    def count(self) -> int:
        return self._count


def start_counter(ray: Any) -> Any:
    """Start a counter, which takes no processor."""
    return ray.remote(num_cpus=0)(Counter).remote()


def read_counter(ray: Any, counter: Any) -> int | None:
    """Return its count; None if it does not answer. Blocking, for a few seconds at most."""
    try:
        count: int = ray.get(counter.count.remote(), timeout=_ASK_S)
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError):
        return None
    return count


async def until_still(progress: Callable[[], object], limit_s: float) -> None:
    """Return once what `progress` returns, in a thread, has been the same for so many seconds."""
    last, since = await in_own_thread(progress), time.monotonic()
    while time.monotonic() - since < limit_s:
        await asyncio.sleep(min(_LOOK_S, limit_s / 4))
        seen = await in_own_thread(progress)
        if seen is not None and seen != last:
            last, since = seen, time.monotonic()


def in_own_thread(work: Callable[[], _T]) -> asyncio.Future[_T]:
    """Run something that may never return in a thread that the process does not wait for when it ends."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def tell(done: concurrent.futures.Future[_T]) -> None:
        if future.done():
            return
        if (error := done.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(done.result())

    def run() -> None:
        done: concurrent.futures.Future[_T] = concurrent.futures.Future()
        try:
            done.set_result(work())
        except Exception as error:  # who waits raises it
            done.set_exception(error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, done)

    threading.Thread(target=run, name="ray", daemon=True).start()
    return future


def stalled(limit_s: float) -> VlmtuiError:
    """Return the error for a batch in which nothing goes on."""
    message = f"No actor on Ray has loaded or answered anything for {describe_duration(limit_s)}."
    hint = "See Ray's own logs, --actors, --actor-cpus and --actor-gpus; --give-up-after waits longer."
    return VlmtuiError(ErrorKind.ENGINE_DIED, message, hint=hint)
