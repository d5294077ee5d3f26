"""Keys that act one after the other, however fast they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, runtime_checkable

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import WorkType

Deliver = Callable[[events.Event], Awaitable[None]]
Result = TypeVar("Result")

TURNS = 20
"""How many turns of the loop a key that comes to no end holds the others. Then they wait no more; none is lost."""
TURN_S = 0.05
"""The length of such a turn in seconds. They are counted, and not the clock asked: while the whole process stands
still, no key can act."""
_BEFORE_KEYS = "before keys"
_keys_wait_for: ContextVar[asyncio.Future[None]] = ContextVar("keys_wait_for")


@runtime_checkable
class HasKeyQueue(Protocol):
    """An app whose keys wait for each other."""

    key_queue: KeyQueue


class KeyQueue:
    """Hands a key, or a paste, on when what the one before did is done.

    Textual hands each at once to what has the focus, and asks for bindings when the key has gone all the way up from
    there to the app. When several come at once, as they do over a slow connection, a later one then acts before an
    earlier one: a letter is written before the cursor has moved, or goes to a screen that is being left.
    """

    def __init__(self, app: App[Any], deliver: Deliver, *, turns: int = TURNS) -> None:
        """`deliver` is what takes an event where there is no queue: the `on_event` of Textual's own app. `turns`: how
        many turns of the loop a key may hold the others."""
        self._app = app
        self._deliver = deliver
        self._turns = turns
        self._waiting: deque[events.Key | events.Paste] = deque()
        self._held_by: set[asyncio.Future[None]] = set()
        self._acting: asyncio.Task[None] | None = None
        """From the moment one is taken up until the next may be."""

    async def take(self, event: events.Event) -> None:
        """Take every event of the app, in its `on_event`; what is no key goes on at once."""
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded or not self._app.screen_stack:
            await self._deliver(event)
        elif self._acting is not None:
            self._waiting.append(event)
        else:
            await self._act_on(event)

    def wait_for(self, is_done: asyncio.Future[None]) -> None:
        """Hold the next keys until this is done, as a part of what the key does that is acting."""
        self._held_by.add(is_done)
        is_done.add_done_callback(self._held_by.discard)

    async def _act_on(self, event: events.Key | events.Paste) -> None:
        target, screens = self._app.focused or self._app.screen, self._app.screen_stack
        await self._deliver(event)
        while _is_written(target, event) and self._waiting and _is_written(target, self._waiting[0]):
            await self._deliver(self._waiting.popleft())
        self._acting = asyncio.create_task(self._follow(self._acted(target, screens)))

    async def _follow(self, acting: Coroutine[Any, Any, None]) -> None:
        acted = asyncio.create_task(acting)
        for _ in range(self._turns):
            if acted.done():
                break
            await asyncio.wait({acted}, timeout=TURN_S)
        self._app.call_later(self._take_one if acted.done() else self._take_all)
        acted.cancel()

    async def _acted(self, target: MessagePump, screens: Sequence[Screen[Any]]) -> None:
        await _risen(target)  # the key
        await self._settled(target)  # the messages that came of it
        if self._app.screen_stack and self._app.screen not in screens:
            await self._settled(self._app.screen)  # the screen that came of it

    async def _settled(self, node: MessagePump) -> None:
        """Wait until a node has done what it had to do, and what it let the keys wait for."""
        await _risen(node)
        while self._held_by:
            await asyncio.wait(self._held_by)
            await _risen(node)

    async def _take_one(self) -> None:
        self._acting = None
        if self._waiting and self._app.screen_stack:
            await self._act_on(self._waiting.popleft())

    async def _take_all(self) -> None:
        self._acting = None
        self._held_by.clear()
        while self._waiting and self._app.screen_stack:
            await self._deliver(self._waiting.popleft())


def run_before_keys(
    node: DOMNode, steps: Callable[[], Coroutine[None, None, None]], *, exclusive: bool = False
) -> None:
    """Run steps that a key asked for, beside everything else; they end with the node. The next keys wait until they are
    done, or until they ask on another screen. `exclusive` ends those that the node began before."""
    is_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        _keys_wait_for.set(is_done)
        try:
            await steps()
        finally:
            _settle(is_done)

    app = node.app
    if isinstance(app, HasKeyQueue):
        app.key_queue.wait_for(is_done)
    work: WorkType[None] = run
    node.run_worker(work, group=_BEFORE_KEYS, exclusive=exclusive)


async def ask_user(app: App[Any], screen: Screen[Result]) -> Result | None:
    """Show a screen, which the next keys go to, and return what is chosen there. Raises LookupError outside the steps
    of `run_before_keys`: keys would not have waited."""
    is_done = _keys_wait_for.get()
    answer = app.push_screen(screen, wait_for_dismiss=True)
    _settle(is_done)
    return await asyncio.shield(answer)  # the screen can still give its answer when these steps were ended


def _settle(is_done: asyncio.Future[None]) -> None:
    if not is_done.done():
        is_done.set_result(None)


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
