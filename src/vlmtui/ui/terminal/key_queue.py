"""Makes keys act one after the other, however fast they arrive."""

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
"""Loop turns for which an unfinished key delays the next ones. After that they act anyway; none is lost."""
TURN_S = 0.05
"""Length of a turn in seconds. Turns are counted instead of measuring time: while the process is suspended, no key
can act."""
_BEFORE_KEYS = "before keys"
_keys_wait_for: ContextVar[asyncio.Future[None]] = ContextVar("keys_wait_for")


class KeyQueue:
    """Delivers a key or paste when everything caused by the previous one is done.

    Textual delivers each at once to the focused widget, and looks up bindings after the key has bubbled up to the app.
    When several arrive together, as over a slow connection, a later one can overtake an earlier one: a letter is typed
    before the cursor has moved, or goes to a screen that is being closed.
    """

    def __init__(self, app: App[Any], deliver: Deliver, *, turns: int = TURNS) -> None:
        """`deliver` is the `on_event` of Textual's app. `turns`: loop turns for which a key may delay the next ones."""
        self._app = app
        self._deliver = deliver
        self._turns = turns
        self._waiting: deque[events.Key | events.Paste] = deque()
        self._held_by: set[asyncio.Future[None]] = set()
        self._acting: asyncio.Task[None] | None = None
        """Runs from the delivery of a key until the next may be delivered."""

    async def take(self, event: events.Event) -> None:
        """Accept every event of the app, in its `on_event`; events other than keys and pastes pass through."""
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded or not self._app.screen_stack:
            await self._deliver(event)
        elif self._acting is not None:
            self._waiting.append(event)
        else:
            await self._act_on(event)

    def wait_for(self, is_done: asyncio.Future[None]) -> None:
        """Delay the next keys until this is done, as part of the current key's effect."""
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

    async def _acted(self, target: DOMNode, screens: Sequence[Screen[Any]]) -> None:
        await _risen(target)  # the key itself
        await self._settled(target)  # the messages that it caused
        if self._app.screen_stack and self._app.screen not in screens:
            await self._settled(self._app.screen)  # the screen that it opened

    async def _settled(self, node: DOMNode) -> None:
        """Wait until a node has handled its messages, and the tasks that hold back further keys are done."""
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


def run_before_keys(node: DOMNode, steps: Steps, *, exclusive: bool = False) -> None:
    """Run steps started by a key, in the background until the node ends. Further keys wait until the steps are done,
    or until they ask on another screen. `exclusive` cancels earlier steps of the node."""
    is_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        _keys_wait_for.set(is_done)
        try:
            await steps()
        finally:
            _settle(is_done)

    queue = getattr(node.app, "key_queue", None)
    if isinstance(queue, KeyQueue):
        queue.wait_for(is_done)
    work: WorkType[None] = run
    node.run_worker(work, group=_BEFORE_KEYS, description=_BEFORE_KEYS, exclusive=exclusive)


def before_keys(steps: Callable[[Node], Coroutine[None, None, None]]) -> Callable[[Node], None]:
    """Return a method that runs these steps of a node by `run_before_keys`, and cancels earlier ones."""

    @wraps(steps)
    def run(node: Node) -> None:
        run_before_keys(node, partial(steps, node), exclusive=True)

    return run


async def ask_user(app: App[Any], screen: Screen[Result]) -> Result | None:
    """Show a screen that receives the next keys, and return its result. Raises LookupError outside the steps of
    `run_before_keys`: keys would not have waited."""
    is_done = _keys_wait_for.get()
    answer = app.push_screen(screen, wait_for_dismiss=True)
    _settle(is_done)
    return await asyncio.shield(answer)  # the screen may still return its result after these steps were cancelled


def _settle(is_done: asyncio.Future[None]) -> None:
    if not is_done.done():
        is_done.set_result(None)


def _is_written(target: Widget, event: events.Key | events.Paste) -> bool:
    """Return True for a letter typed into a text field: several letters need no waiting, and are painted together."""
    return isinstance(event, events.Key) and target.check_consume_key(event.key, event.character)


async def _risen(node: DOMNode | None) -> None:
    """Wait until a node, its parent and so on have handled their earlier messages. A bubbling message takes the same
    way, ahead."""
    while node is not None:
        is_done = asyncio.Event()
        if node.call_later(is_done.set):  # unless it is being removed
            await is_done.wait()
        node = node.parent
