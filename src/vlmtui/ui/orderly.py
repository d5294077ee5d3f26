"""Keys that act one after the other, however fast they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence, Set
from typing import Any, TypeVar

from textual import events
from textual.app import App
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import Worker

ReturnType = TypeVar("ReturnType")

OPENING = "modal"
"""The group of every worker that shows a screen and waits for what is chosen there: keys wait for that screen."""
_LOOKS, _LOOK_S = 20, 0.05
"""How often it is looked whether a key has acted, and how far apart. Then the others wait no more; none is lost."""
_SOON_S = 0.005


class OrderlyApp(App[ReturnType]):
    """Takes a key, or a paste, when what the one before did is done.

    Textual hands each at once to what has the focus, and asks for bindings when the key has gone all the way up from
    there to the app. When several come at once, as they do over a slow connection, a later one then acts before an
    earlier one: a letter is written before the cursor has moved, or goes to a screen that is being left.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[events.Key | events.Paste] = deque()
        self._acting: asyncio.Task[None] | None = None
        """From the moment one is taken up until the next may be."""

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded or not self.screen_stack:
            await super().on_event(event)
        elif self._acting is not None:
            self._waiting.append(event)
        else:
            await self._take(event)

    async def _take(self, event: events.Key | events.Paste) -> None:
        target = self.focused or self.screen
        screens, workers = self.screen_stack, set(self.workers)
        await super().on_event(event)
        while _is_written(target, event) and self._waiting and _is_written(target, self._waiting[0]):
            await super().on_event(self._waiting.popleft())
        self._acting = asyncio.create_task(self._follow(self._acted(target, screens, workers)))

    async def _follow(self, acting: Coroutine[Any, Any, None]) -> None:
        acted = asyncio.create_task(acting)
        for _ in range(_LOOKS):  # not by the clock alone: when the whole process stands still, nothing can act
            if acted.done():
                break
            await asyncio.wait({acted}, timeout=_LOOK_S)
        self.call_later(self._take_one if acted.done() else self._take_all)
        acted.cancel()

    async def _acted(self, target: MessagePump, screens: Sequence[Screen[Any]], workers: Set[Worker[Any]]) -> None:
        await _risen(target)  # the key
        await _risen(target)  # the messages that came of it
        opening = [worker for worker in self.workers if worker.group == OPENING and worker not in workers]
        while (  # noqa: ASYNC110 - no event tells of both
            self.screen_stack and self.screen in screens and not all(worker.is_finished for worker in opening)
        ):
            await asyncio.sleep(_SOON_S)
        if self.screen_stack and self.screen not in screens:
            await _risen(self.screen)  # the screen that came of it

    async def _take_one(self) -> None:
        self._acting = None
        if self._waiting and self.screen_stack:
            await self._take(self._waiting.popleft())

    async def _take_all(self) -> None:
        self._acting = None
        while self._waiting and self.screen_stack:
            await super().on_event(self._waiting.popleft())


def _is_written(target: Widget, event: events.Key | events.Paste) -> bool:
    """Whether it is a letter for a field: a row of them needs no waiting, and is painted together."""
    return isinstance(event, events.Key) and target.check_consume_key(event.key, event.character)


async def _risen(node: MessagePump | None) -> None:
    """Wait until a node, then its parent and so on have done what they had to do before. A message that bubbles goes
    the same way, ahead."""
    while node is not None:
        is_done = asyncio.Event()
        if node.call_later(is_done.set):  # not when it is being removed
            await is_done.wait()
        node = node._parent
