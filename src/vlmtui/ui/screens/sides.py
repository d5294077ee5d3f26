"""What the screens of a comparison share: two sides beside each other, their difference, and the export."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.replay import Comparison
from vlmtui.ui.controllers.compare_difference import Difference
from vlmtui.ui.controllers.compare_export import SUFFIXES, export
from vlmtui.ui.screens.asking import NameScreen
from vlmtui.ui.services import Services
from vlmtui.ui.text import one_line
from vlmtui.ui.widgets.diff_view import DiffView
from vlmtui.ui.widgets.key_bar import KeyBar

NARROW = 100
"""Columns below which one side is shown at a time."""
View = Literal["chat", "raw", "difference"]
_NARROW_TABS: tuple[tuple[View, str], ...] = (("chat", "Chat"), ("raw", "Raw"), ("difference", "Difference"))
_WIDE_TABS: tuple[tuple[View, str], ...] = (("chat", "Chat and raw"), ("difference", "Difference"))

SIDES_BINDINGS = [
    Binding("f6", "next_view", "Next view", id="compare.view", tooltip="Show the other side.", priority=True),
    Binding("d", "difference", "Difference", id="compare.difference", tooltip="Where they differ.", show=False),
    Binding("f2", "export", "Export", id="compare.export", tooltip="Markdown, HTML or JSON.", priority=True),
]


class SidesScreen(Screen[None]):
    """Left the chat template, right the raw prompt. `view` is what is looked at."""

    HINT = "F6 turns"
    """Keys that the footer has no room for."""
    CSS_PATH = "compare.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-wide")]

    @dataclass
    class DifferenceKnown(Message):
        """Where the sides differ."""

        difference: Difference

    @dataclass
    class Told(Message):
        """Something for the user to know."""

        text: str
        error: VlmtuiError | None = None

    def __init__(self, services: Services, title: str, question: str) -> None:
        super().__init__()
        self.services = services
        self.view: View = "chat"
        self._heading = title
        self._question = question

    @abstractmethod
    def chat_side(self) -> ComposeResult:
        """The widgets of the left side, below its head."""

    @abstractmethod
    def raw_side(self) -> ComposeResult:
        """The widgets of the right side, below its head."""

    @abstractmethod
    def document(self) -> Comparison | None:
        """What is exported; None while there is nothing. Slow."""

    @abstractmethod
    def landing(self, view: View) -> Widget:
        """What has the focus when a view is turned to."""

    @abstractmethod
    def difference_wanted(self) -> None:
        """The difference is looked at: find it, and post `DifferenceKnown`."""

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(self._heading, id="title", markup=False)
            yield Static(one_line(self._question), id="question", markup=False)
            yield Static(id="settings", markup=False)
        yield Static(id="tabs", markup=False)
        with Horizontal(id="panes"):
            with Vertical(id="chat-side", classes="side"):
                yield Static("Chat template", id="chat-head", classes="head", markup=False)
                yield from self.chat_side()
            with Vertical(id="raw-side", classes="side"):
                yield Static("Raw prompt", id="raw-head", classes="head", markup=False)
                yield from self.raw_side()
        yield DiffView(id="difference")
        yield KeyBar()

    @property
    def is_narrow(self) -> bool:
        return self.app.size.width < NARROW

    @property
    def tabs(self) -> Sequence[tuple[View, str]]:
        """What can be turned to at this width."""
        return _NARROW_TABS if self.is_narrow else _WIDE_TABS

    def on_resize(self) -> None:
        self._show_tabs()

    @on(DifferenceKnown)
    def _difference_known(self, event: DifferenceKnown) -> None:
        self.query_one(DiffView).show(event.difference)

    @on(Told)
    def _told(self, event: Told) -> None:
        if event.error is not None:
            self.tell_error(event.error)
        else:
            self.notify(one_line(event.text), timeout=6, markup=False)

    def turn_to(self, view: View) -> None:
        """Show a view and give it the focus."""
        self.view = view
        self.set_class(view == "difference", "-shows-difference")
        self.set_class(view == "raw", "-shows-raw")
        self._show_tabs()
        self.landing(view).focus()
        if view == "difference":
            self.difference_wanted()

    def action_next_view(self) -> None:
        """Turn to the next view; after the last comes the first."""
        views = [view for view, _ in self.tabs]
        at = views.index(self.view) if self.view in views else 0
        self.turn_to(views[(at + 1) % len(views)])

    def action_difference(self) -> None:
        """To the difference, and back."""
        self.turn_to("chat" if self.view == "difference" else "difference")

    def action_export(self) -> None:
        """Write the comparison into a file."""
        self._export()

    def tell_error(self, error: VlmtuiError) -> None:
        self.notify(one_line(str(error)), severity="error", timeout=10, markup=False)

    def show_settings(self, sampling: Sampling, *extra: str) -> None:
        """Say how the answers are made."""
        parts = ["model's temperature" if sampling.temperature is None else f"temperature {sampling.temperature:g}"]
        parts += [f"seed {sampling.seed}"] if sampling.seed is not None else []
        self.query_one("#settings", Static).update(" · ".join((*parts, *extra)))

    def _show_tabs(self) -> None:
        shown: list[tuple[str, str]] = []
        views = [view for view, _ in self.tabs]
        current = self.view if self.view in views else views[0]
        for view, title in self.tabs:
            shown += [(f" {title} ", "bold $accent on $panel" if view == current else "$muted"), (" ", "")]
        self.query_one("#tabs", Static).update(Content.assemble(*shown, (f" {self.HINT}", "$faint")))

    @work(group="modal", exclusive=True)
    async def _export(self) -> None:
        document = await asyncio.to_thread(self.document)
        if document is None:
            self.post_message(self.Told("There is nothing to export before both are asked."))
            return
        hint = f"{', '.join(SUFFIXES)}: for people, for a browser with its images, to be run again."
        name = await self.app.push_screen_wait(NameScreen("Export to", value="comparison.html", hint=hint))
        if name is None:
            return
        try:
            written = await asyncio.to_thread(export, document, Path(name), self.services.paths.media)
        except VlmtuiError as error:
            self.post_message(self.Told("", error))
            return
        self.post_message(self.Told(f"Written: {written}"))
