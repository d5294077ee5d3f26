"""Makes keys act one after the other, however fast they arrive: a key waits until the effect of the last is done.

Text that is typed before there is a composer waits for it (`TypedAhead`): while the app starts or a model loads."""

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
Input = events.Key | events.Paste
Node = TypeVar("Node", bound=DOMNode)
Result = TypeVar("Result")

TURNS = 20
"""Turns for which a key may delay the next keys. After that they act anyway; none is lost."""
TURN_S = 0.05
"""Seconds of a turn. Turns are counted, not time: while the process is suspended, no key can act."""
_BEFORE_KEYS = "before keys"
_keys_wait_for: ContextVar[asyncio.Future[None]] = ContextVar("keys_wait_for")

_BURST_S = 1.0
"""A key within so many seconds of text belongs to it, and does not answer a question that has just appeared."""
_BREAKS = ("shift+enter", "ctrl+j", "alt+enter")
"""The keys that break a line in the composer."""
_SCOPES = ("", "model_list", "loading", "choice", "chat")
"""The screens on which text is kept if nothing takes it; "" is the empty screen before the first of ours."""


class KeyQueue:
    """Delivers a key or paste when the effect of the previous one is done.

    Textual delivers every key at once to the focused widget, and looks up bindings only after the key has bubbled up to
    the app. If several keys arrive together, as over a slow connection, a later key can overtake an earlier one: a
    letter is typed before the cursor has moved, or into a screen that is being closed.
    """

    def __init__(
        self,
        app: App[Any],
        deliver: Deliver,
        *,
        turns: int = TURNS,
        keeps: Callable[[Input], bool] = lambda event: False,
    ) -> None:
        """`deliver`: `on_event` of Textual's app. `turns`: for how many turns, of `TURN_S` seconds each, a key may
        delay the next keys. `keeps`: keeps a key or paste for later, and returns True, or returns False."""
        self._app = app
        self._deliver = deliver
        self._keeps = keeps
        self._turns = turns
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

    def put_back(self, kept: Sequence[Input]) -> None:
        """Deliver keys and pastes that were kept, before those that wait."""
        self._waiting.extendleft(reversed(kept))
        if self._acting is None:
            self._app.call_later(self._deliver_next)

    def wait_for(self, is_done: asyncio.Future[None]) -> None:
        """Delay the next keys until a future is done."""
        self._waits_for.add(is_done)
        is_done.add_done_callback(self._waits_for.discard)

    async def _act_on(self, event: Input) -> None:
        if self._keeps(event):
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
            if not self._keeps(event):
                await self._deliver(event)


class TypedAhead:
    """Owns the typed keys and pastes until the composer takes them, each once and in order.

    It keeps them while it is waiting, from its creation or `wait` to `give`: text, line breaks and Enter that nothing
    on the screen takes. The composer gets the events themselves, so that Enter sends and a pasted path is attached.
    """

    def __init__(self, app: App[Any], on_change: Callable[[], None]) -> None:
        """`on_change`: called when the text has changed."""
        self._app = app
        self._on_change = on_change
        self._is_waiting = True
        self._is_starting = True
        """True until the screen with which the app starts is there. Only then does a list of models take text."""
        self._events: list[Input] = []

    @property
    def text(self) -> str:
        """The kept text."""
        return "".join(event.text if isinstance(event, events.Paste) else _character(event) for event in self._events)

    def wait(self) -> None:
        """Keep text from now on: the composer is about to go."""
        self._is_waiting = True
        self.started()

    def started(self) -> None:
        """Note that the app shows the screen with which it starts: what is typed from now on is meant for it."""
        self._is_starting = False

    def take(self, event: Input) -> bool:
        """Keep a key or paste that is text and that nothing on the screen takes; return whether it is kept. Backspace
        removes the last character."""
        if not self._is_waiting or self._is_taken(event):
            return False
        if isinstance(event, events.Paste) or (event.is_printable and event.character):
            self._events.append(event)
        elif not self._events:
            return False
        elif event.key == "enter" or event.key in _BREAKS:
            self._events.append(event)
        elif event.key == "backspace":
            self._remove_last()
        else:
            return False
        self._on_change()
        return True

    def take_text(self) -> str:
        """Return the kept text, and forget it."""
        text = self.text
        self._events.clear()
        return text

    def show(self, queue: KeyQueue) -> None:
        """Give what is kept to the screen, and go on waiting."""
        self.started()
        queue.put_back(self._events)
        self._events = []

    def give(self, queue: KeyQueue, draft: str) -> None:
        """Give what is kept to the composer, which is there and has `draft` as its text. Behind a draft, Enter breaks
        the line: the user did not see what it would send."""
        self._is_waiting = False
        if self._events and draft:
            gap = [] if draft[-1].isspace() else [events.Key("space", " ")]
            self._events = [*gap, *map(_without_sending, self._events)]
        self.show(queue)

    def _is_taken(self, event: Input) -> bool:
        """Return whether something on the screen takes a key or paste."""
        if not self._app.screen_stack:
            return False
        screen = self._app.screen
        scope = getattr(screen, "SCOPE", "")
        if scope not in _SCOPES:
            return True
        if scope == "chat" or (scope == "model_list" and self._is_starting):  # it is not ready, or a question comes
            return False
        focused = self._app.focused
        if focused is not None and focused.check_consume_key("x", "x"):
            return True
        if isinstance(event, events.Paste) or (scope == "loading" and self._events and event.is_printable):
            return False
        if scope == "choice" and self._events and event.time - self._events[-1].time < _BURST_S:
            return False  # it was typed before the question could be read
        binding = screen.active_bindings.get(event.key)
        return binding is not None and binding.enabled

    def _remove_last(self) -> None:
        last = self._events.pop()
        if isinstance(last, events.Paste) and len(last.text) > 1:
            self._events.append(events.Paste(last.text[:-1]))


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


def _character(event: events.Key) -> str:
    return event.character if event.is_printable and event.character else "\n"


def _without_sending(event: Input) -> Input:
    is_enter = isinstance(event, events.Key) and event.key == "enter"
    return events.Key("shift+enter", None) if is_enter else event
