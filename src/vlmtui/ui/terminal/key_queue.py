"""Makes keys act one after the other, however fast they arrive: a key waits until the effect of the last is done."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, TypeVar

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import WorkType

Steps = Callable[[], Coroutine[None, None, None]]
Deliver = Callable[[events.Event], Awaitable[None]]
Node = TypeVar("Node", bound=DOMNode)
Result = TypeVar("Result")

TURNS = 20
"""Turns for which a key may delay the next keys. After that they act anyway; none is lost."""
TURN_S = 0.05
"""Seconds of a turn. Turns are counted, not time: while the process is suspended, no key can act."""
_BEFORE_KEYS = "before keys"
_keys_wait_for: ContextVar[asyncio.Future[None]] = ContextVar("keys_wait_for")


class KeyQueue:
    """Delivers a key or paste when the effect of the previous one is done.

    Textual delivers every key at once to the focused widget, and looks up bindings only after the key has bubbled up to
    the app. If several keys arrive together, as over a slow connection, a later key can overtake an earlier one: a
    letter is typed before the cursor has moved, or into a screen that is being closed.
    """

    def __init__(self, app: App[Any], deliver: Deliver, *, turns: int = TURNS) -> None:
        """`deliver`: `on_event` of Textual's app. `turns`: for how many turns, of `TURN_S` seconds each, a key may
        delay the next keys."""
        self._app = app
        self._deliver = deliver
        self._turns = turns
        self._waiting: deque[events.Key | events.Paste] = deque()
        self._waits_for: set[asyncio.Future[None]] = set()
        self._acting: asyncio.Task[None] | None = None
        """Runs from the delivery of a key until the next key may be delivered."""

    async def take(self, event: events.Event) -> None:
        """Handle an event of the app's `on_event`: keys and pastes may wait, others are delivered at once."""
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded or not self._app.screen_stack:
            await self._deliver(event)
        elif self._acting is not None:
            self._waiting.append(event)
        else:
            await self._act_on(event)

    def wait_for(self, is_done: asyncio.Future[None]) -> None:
        """Delay the next keys until a future is done."""
        self._waits_for.add(is_done)
        is_done.add_done_callback(self._waits_for.discard)

    async def _act_on(self, event: events.Key | events.Paste) -> None:
        target, screens = self._app.focused or self._app.screen, self._app.screen_stack
        await self._deliver(event)
        while _is_typed(target, event) and self._waiting and _is_typed(target, self._waiting[0]):
            await self._deliver(self._waiting.popleft())
        self._acting = asyncio.create_task(self._follow(self._effect_done(target, screens)))

    async def _follow(self, acting: Coroutine[Any, Any, None]) -> None:
        acted = asyncio.create_task(acting)
        for _ in range(self._turns):
            if acted.done():
                break
            await asyncio.wait({acted}, timeout=TURN_S)
        self._app.call_later(self._deliver_next if acted.done() else self._deliver_all)
        acted.cancel()

    async def _effect_done(self, target: DOMNode, screens: Sequence[Screen[Any]]) -> None:
        await _messages_handled(target)  # the key itself
        await self._settled(target)  # the messages that it caused
        if self._app.screen_stack and self._app.screen not in screens:
            await self._settled(self._app.screen)  # the screen that it opened

    async def _settled(self, node: DOMNode) -> None:
        """Wait until a node has handled its messages, and all futures of `wait_for` are done."""
        await _messages_handled(node)
        while self._waits_for:
            await asyncio.wait(self._waits_for)
            await _messages_handled(node)

    async def _deliver_next(self) -> None:
        self._acting = None
        if self._waiting and self._app.screen_stack:
            await self._act_on(self._waiting.popleft())

    async def _deliver_all(self) -> None:
        self._acting = None
        self._waits_for.clear()
        while self._waiting and self._app.screen_stack:
            await self._deliver(self._waiting.popleft())


def run_before_keys(node: DOMNode, steps: Steps, *, exclusive: bool = False) -> None:
    """Run a coroutine function because of a key, as a Textual worker of `node`. Further keys wait until it ends, or
    calls `ask_user`. `exclusive`: first cancel those of this node that still run."""
    is_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        _keys_wait_for.set(is_done)
        try:
            await steps()
        finally:
            _finish(is_done)

    queue = getattr(node.app, "key_queue", None)
    if isinstance(queue, KeyQueue):
        queue.wait_for(is_done)
    work: WorkType[None] = run
    node.run_worker(work, group=_BEFORE_KEYS, description=_BEFORE_KEYS, exclusive=exclusive)


def before_keys(steps: Callable[[Node], Coroutine[None, None, None]]) -> Callable[[Node], None]:
    """Decorate an async method: calling it runs it with `run_before_keys`, and cancels earlier runs."""

    @wraps(steps)
    def run(node: Node) -> None:
        run_before_keys(node, partial(steps, node), exclusive=True)

    return run


async def ask_user(app: App[Any], screen: Screen[Result]) -> Result | None:
    """Show a screen, and return its result. The screen gets the keys that wait. Call it only inside `run_before_keys`:
    elsewhere no keys wait, and it raises LookupError."""
    is_done = _keys_wait_for.get()
    answer = app.push_screen(screen, wait_for_dismiss=True)
    _finish(is_done)
    return await asyncio.shield(answer)  # the screen may return its result after the caller was cancelled


def _finish(is_done: asyncio.Future[None]) -> None:
    if not is_done.done():
        is_done.set_result(None)


def _is_typed(target: Widget, event: events.Key | events.Paste) -> bool:
    """Return whether a key is a character for a text field. Such keys do not wait, and are painted together."""
    return isinstance(event, events.Key) and target.check_consume_key(event.key, event.character)


async def _messages_handled(node: DOMNode | None) -> None:
    """Wait until a node, and then each of its ancestors in turn, has handled the messages in its queue. Messages bubble
    in the same order, so those that bubble are handled, too."""
    while node is not None:
        is_done = asyncio.Event()
        if node.call_later(is_done.set):  # unless it is being removed
            await is_done.wait()
        node = node.parent
