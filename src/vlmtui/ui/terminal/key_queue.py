"""Makes keys act one after the other, however fast they arrive: a key waits until the effect of the last is done.

Text that is typed before the app's first screen is ready waits for it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, TypeVar

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.worker import WorkType

Steps = Callable[[], Coroutine[None, None, None]]
Deliver = Callable[[events.Event], Awaitable[None]]
Input = events.Key | events.Paste
Node = TypeVar("Node", bound=DOMNode)
Result = TypeVar("Result")

TURNS = 20
"""Turns for which a key may delay the next keys. After that they act anyway; none is lost."""
TURN_S = 0.05
"""Seconds of a turn. Turns are counted, not time: while the process is suspended, no key can act."""
_BEFORE_KEYS = "before keys"
_keys_wait_for: ContextVar[asyncio.Future[None]] = ContextVar("keys_wait_for")

_PAUSE_S = 1.0
"""After so many seconds without text, the user has stopped typing."""
_BREAKS = ("enter", "shift+enter", "ctrl+j", "alt+enter")
"""The keys that send a message, or break a line in it."""


class KeyQueue:
    """Delivers a key or paste when the effect of the previous one is done.

    Textual delivers every key at once to the focused widget, and looks up bindings only after the key has bubbled up to
    the app. If several keys arrive together, as over a slow connection, a later key can overtake an earlier one: a
    letter is typed before the cursor has moved, or into a screen that is being closed.

    Text and Enter wait until `open`, which the app calls when its first screen can take them. A dialog takes them
    before.
    """

    def __init__(self, app: App[Any], deliver: Deliver, *, turns: int = TURNS, is_open: bool = True) -> None:
        """`deliver`: `on_event` of Textual's app. `turns`: for how many turns, of `TURN_S` seconds each, a key may
        delay the next keys. `is_open`: False if text waits for `open`."""
        self._app = app
        self._deliver = deliver
        self._turns = turns
        self.is_open = is_open
        """False while text waits for `open`."""
        self._held: list[Input] = []
        """What was typed before `open`."""
        self._typed_at = time.monotonic()
        """When text was typed last, or the app was started."""
        self._waiting: deque[Input] = deque()
        self._waits_for: set[asyncio.Future[None]] = set()
        self._acting: asyncio.Task[None] | None = None
        """Runs from the delivery of a key until the next key may be delivered."""

    async def take(self, event: events.Event) -> None:
        """Handle an event of the app's `on_event`: keys and pastes may wait, others are delivered at once."""
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await self._deliver(event)
        elif self._acting is not None or self._waiting:
            self._waiting.append(event)
        else:
            await self._act_on(event)

    def open(self, draft: str = "") -> None:
        """Deliver the text that was held, and hold none from now on. Behind a draft, Enter breaks the line: the user
        did not see what it would send."""
        held, self._held, self.is_open = self._held, [], True
        if held and draft:
            gap = [] if draft[-1].isspace() else [events.Key("space", " ")]
            held = [*gap, *map(_without_sending, held)]
        self._waiting.extendleft(reversed(held))
        if self._acting is None:
            self._app.call_later(self._deliver_next)

    def take_text(self) -> str:
        held, self._held = self._held, []
        return "".join(map(_text_of, held))

    async def pause(self) -> None:
        """Wait until the user has not typed text for a second, before a question that no key has caused."""
        while True:
            await _messages_handled(self._app)
            rest_s = self._typed_at + _PAUSE_S - time.monotonic()
            if rest_s <= 0:
                return
            await asyncio.sleep(rest_s)

    def _holds(self, event: Input) -> bool:
        """Note text that is typed, and return whether it is held. Backspace removes the last character."""
        is_backspace = isinstance(event, events.Key) and event.key == "backspace"
        if not (_text_of(event) or is_backspace):
            return False
        self._typed_at = time.monotonic()
        if self.is_open or (self._app.screen_stack and isinstance(self._app.screen, ModalScreen)):
            return False
        if not is_backspace:
            self._held.append(event)
        elif self._held:
            last = self._held.pop()
            if isinstance(last, events.Paste) and len(last.text) > 1:
                self._held.append(events.Paste(last.text[:-1]))
        return True

    def wait_for(self, is_done: asyncio.Future[None]) -> None:
        """Delay the next keys until a future is done."""
        self._waits_for.add(is_done)
        is_done.add_done_callback(self._waits_for.discard)

    async def _act_on(self, event: Input) -> None:
        if self._holds(event):
            return
        if not self._app.screen_stack:
            await self._deliver(event)
            return
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
        self._app.call_later(self._acted if acted.done() else self._deliver_all)
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

    async def _acted(self) -> None:
        self._acting = None
        await self._deliver_next()

    async def _deliver_next(self) -> None:
        while self._waiting and self._acting is None and self._app.screen_stack:
            await self._act_on(self._waiting.popleft())

    async def _deliver_all(self) -> None:
        self._acting = None
        self._waits_for.clear()
        while self._waiting and self._app.screen_stack:
            event = self._waiting.popleft()
            if not self._holds(event):
                await self._deliver(event)


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


def _is_typed(target: Widget, event: Input) -> bool:
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


def _text_of(event: Input) -> str:
    """Return the text that a key or paste adds to the composer; empty if it is no text."""
    if isinstance(event, events.Paste):
        return event.text
    return (event.character or "") if event.is_printable else "\n" if event.key in _BREAKS else ""


def _without_sending(event: Input) -> Input:
    is_enter = isinstance(event, events.Key) and event.key == "enter"
    return events.Key("shift+enter", None) if is_enter else event
