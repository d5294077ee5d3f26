"""Keys that arrive all at once in a small app with screens, fields, and actions that take a while."""

from __future__ import annotations

import asyncio
import time

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Input, Static

from tests.support.waiting import until
from vlmtui.ui.terminal.key_queue import TURN_S, TURNS, KeyQueue, ask_user, run_before_keys


class Field(Screen[object]):
    """A dialog with a text field."""

    BINDINGS = [Binding("escape", "dismiss('')", "Back")]

    def compose(self) -> ComposeResult:
        yield Input()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class Small(App[None]):
    """An app that records the keys pressed on its first screen."""

    BINDINGS = [
        Binding("o", "open", "Open"),
        Binding("f6", "note('f6')", "Note", priority=True),
        Binding("p", "prepare", "Open after a while"),
        Binding("r", "refuse", "Do not open"),
        *(Binding(letter, f"note('{letter}')", letter) for letter in "xyz"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.key_queue = KeyQueue(self, super().on_event)
        self.noted: list[str] = []
        self.released = asyncio.Event()

    async def on_event(self, event: events.Event) -> None:
        await self.key_queue.take(event)

    def compose(self) -> ComposeResult:
        yield Static()

    def action_note(self, what: str) -> None:
        self.noted.append(f"{what} in {self.screen.query_one(Input).value!r}" if self.screen.query(Input) else what)

    def action_open(self) -> None:
        self.push_screen(Field(), lambda answer: self.noted.append(f"answer {answer!r}"))

    def action_prepare(self) -> None:
        async def steps() -> None:
            await self._take_a_while()
            self.noted.append(f"answer {await ask_user(self, Field())!r}")

        run_before_keys(self, steps)

    def action_refuse(self) -> None:
        async def steps() -> None:
            await self._take_a_while()
            self.noted.append("refused")

        run_before_keys(self, steps)

    async def _take_a_while(self) -> None:
        """Wait longer than the direct effect of a key lasts."""
        for _ in range(200):
            await asyncio.sleep(0)

    def come(self, *keys: str) -> None:
        """Press all keys at once, as they arrive over a slow connection."""
        for key in keys:
            self.post_message(events.Key(key, key if len(key) == 1 else None))


@pytest.mark.parametrize(
    ("keys", "noted"),
    [
        ("x y z x", ["x", "y", "z", "x"]),
        ("o a b left c enter x", ["answer 'acb'", "x"]),
        ("o a escape x", ["answer ''", "x"]),
        ("o a f6 b escape f6", ["f6 in 'a'", "answer ''", "f6"]),
        ("o escape o x enter y", ["answer ''", "answer 'x'", "y"]),
        ("o enter enter x", ["answer ''", "x"]),
        ("p a x enter y", ["answer 'ax'", "y"]),
        ("r x p escape r y", ["refused", "x", "answer ''", "refused", "y"]),
    ],
)
async def test_each_key_acts_on_the_result_of_the_previous_key(keys: str, noted: list[str]) -> None:
    app = Small()
    async with app.run_test() as pilot:
        app.come(*keys.split())
        await until(pilot, lambda: len(app.noted) >= len(noted))
        await pilot.pause()
        assert app.noted == noted


async def test_a_paste_keeps_its_place() -> None:
    app = Small()
    async with app.run_test() as pilot:
        app.come("o", "a", "left")
        app.post_message(events.Paste("pasted "))
        app.come("b", "enter")
        await until(pilot, lambda: bool(app.noted))
        assert app.noted == ["answer 'pasted ba'"]


@pytest.mark.slow
async def test_a_process_that_stands_still_changes_no_order() -> None:
    app = Small()
    async with app.run_test() as pilot:
        app.come("o", *"abc", *["left"] * 3, "d", "enter")
        for _ in range(3):
            await asyncio.sleep(0)
            time.sleep(TURNS * TURN_S + 0.1)
        await until(pilot, lambda: app.noted == ["answer 'dabc'"])


async def test_an_endless_key_handler_delays_other_keys_only_for_a_while() -> None:
    class Stuck(Static, can_focus=True):
        async def on_key(self, event: events.Key) -> None:
            if event.key == "w":
                await app.released.wait()

    app = Small()
    async with app.run_test() as pilot:
        stuck = Stuck()
        await app.mount(stuck)
        app.set_focus(stuck)
        app.come("w", *"xyz", "f6", "f6")
        try:
            async with asyncio.timeout(20):
                while len(app.noted) < 2:  # the pilot would wait for what is stuck
                    await asyncio.sleep(0.01)
            assert app.noted == ["f6", "f6"], "what the app takes itself"
        finally:
            app.released.set()
        await until(pilot, lambda: app.noted == ["f6", "f6", "x", "y", "z"])
        app.come("x", "y")
        await until(pilot, lambda: app.noted[5:] == ["x", "y"])


async def test_the_focused_widget_may_vanish_meanwhile() -> None:
    class Vanishing(Static, can_focus=True):
        def on_key(self, event: events.Key) -> None:
            self.remove()

    app = Small()
    async with app.run_test() as pilot:
        vanishing = Vanishing()
        await app.mount(vanishing)
        app.set_focus(vanishing)
        app.come("a", "x", "y")
        await until(pilot, lambda: app.noted == ["x", "y"])
