"""The base of comparison screens: two sides, their difference, and the export."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.inspection.replay import Comparison
from vlmtui.session.comparison import Difference
from vlmtui.session.comparison_export import export_comparison
from vlmtui.session.generation import PromptMode
from vlmtui.text import one_line
from vlmtui.ui.compare.answers import AnswerMarks, AnswerPane
from vlmtui.ui.compare.difference import DiffView, divergence_line
from vlmtui.ui.compare.picture_strip import PictureStrip
from vlmtui.ui.keys import error_text, hint, with_remedy
from vlmtui.ui.services import Services
from vlmtui.ui.terminal.key_queue import ask_user, before_keys
from vlmtui.ui.widgets.clicks import clickable, clicked, is_click
from vlmtui.ui.widgets.dialogs import NameScreen
from vlmtui.ui.widgets.divider import Divider
from vlmtui.ui.widgets.footer_bar import FooterBar

NARROW = 100
"""Columns below which only one side is shown."""
_NARROWEST_SIDE = 24
"""Columns that a side keeps when the line between both is dragged."""
TALL = 36
"""Rows from which on a wide screen shows the prompts above their difference."""
View = Literal["chat", "raw", "difference"]
TITLES: Mapping[PromptMode, str] = {"chat": "Chat template", "raw": "Raw prompt"}
_NARROW_TABS: tuple[tuple[View, str], ...] = (("chat", "Chat"), ("raw", "Raw"), ("difference", "Difference"))
_WIDE_TABS: tuple[tuple[View, str], ...] = (("chat", "Chat and raw"), ("difference", "Difference"))


class SidesScreen(Screen[None]):
    """The chat template on the left, the raw prompt on the right. `view` is the current view."""

    HINT: tuple[str, ...] = ("sides.next_view",)
    """Actions shown beside the tabs, as the footer has no room."""
    CSS_PATH = "screen.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (TALL, "-tall")]

    class DifferenceWanted(Message):
        """The difference is shown. Answer with `show_difference`."""

    def __init__(
        self,
        services: Services,
        title: str,
        question: str,
        *,
        chat: Sequence[Widget],
        raw: Sequence[Widget],
        document: Callable[[], Comparison | None],
        landing: Callable[[View], Widget],
        pictures: Sequence[Attachment] = (),
    ) -> None:
        """`chat` and `raw` are the widgets of the sides, below their titles. `document` returns the comparison to
        export (slow; None if there is none); `landing` returns the widget to focus in a view. `pictures` are
        numbered by position."""
        super().__init__()
        self.services = services
        self.view: View = "chat"
        self._heading = title
        self._question = question
        self._chat = chat
        self._raw = raw
        self._document = document
        self._landing = landing
        self._pictures = pictures
        self._marks: AnswerMarks | None = None

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(self._heading, id="title", markup=False)
            yield Static(one_line(self._question), id="question", markup=False)
            yield Static(id="settings", markup=False)
        yield Static(id="tabs", markup=False)
        with Horizontal(id="panes"):
            with Vertical(id="chat-side", classes="side"):
                yield Static(TITLES["chat"], id="chat-head", classes="head", markup=False)
                yield from self._chat
            yield Divider(id="between")
            with Vertical(id="raw-side", classes="side"):
                yield Static(TITLES["raw"], id="raw-head", classes="head", markup=False)
                yield from self._raw
        yield Static(id="divergence", markup=False)
        yield DiffView(id="difference")
        yield PictureStrip(self._pictures, cache=self.services.paths.thumbnails)
        yield FooterBar()

    @property
    def is_narrow(self) -> bool:
        return self.app.size.width < NARROW

    @property
    def words_are_marked(self) -> bool:
        """Whether the words in which the whole answers differ are marked."""
        return self._marks is not None and self._marks.are_final

    @property
    def tabs(self) -> Sequence[tuple[View, str]]:
        """Return the views available at this width."""
        return _NARROW_TABS if self.is_narrow else _WIDE_TABS

    async def on_resize(self) -> None:
        self._show_tabs()
        for pane in self.query(AnswerPane):
            pane.give_room()
        await self.query_one(PictureStrip).fit(self.size.height)

    def show_difference(self, difference: Difference) -> None:
        """Show the difference of the prompts and of the answers, and the first one below the answers."""
        self.query_one(DiffView).show_difference(difference)
        line, found = self.query_one("#divergence", Static), divergence_line(difference)
        line.update(found)
        line.set_class(bool(found), "-filled")

    def show_head(self, mode: PromptMode, said: str) -> None:
        """Show a side's title, and what is said of it."""
        told = Content.styled(f" · {said}" if said else "", "not bold $muted")
        self.query_one(f"#{mode}-head", Static).update(Content.assemble(TITLES[mode], told))

    def answer_pane(self, mode: PromptMode) -> AnswerPane:
        return self.query_one(f"#{mode}-answer", AnswerPane)

    @on(AnswerPane.Grown)
    def _answer_grown(self) -> None:
        if self._marks is None:
            self._marks = AnswerMarks(self.answer_pane("chat"), self.answer_pane("raw"))
        self._marks.grown()

    @on(Divider.Dragged)
    def _divider_dragged(self, event: Divider.Dragged) -> None:
        panes = self.query_one("#panes").region
        left = min(max(event.column - panes.x, _NARROWEST_SIDE), panes.width - 1 - _NARROWEST_SIDE)
        self._share_width(left, panes.width - 1 - left)

    @on(Divider.WidthsWanted)
    def _same_widths_wanted(self) -> None:
        self._share_width(1, 1)

    def _share_width(self, chat: int, raw: int) -> None:
        """Give the sides these shares of the width, which they keep when the terminal changes its size."""
        self.query_one("#chat-side").styles.width = f"{chat}fr"
        self.query_one("#raw-side").styles.width = f"{raw}fr"

    async def on_click(self, event: events.Click) -> None:
        """A tab turns to its view, the line of folded turns unfolds them, the heading of a side goes there, the line
        of the first difference to the difference."""
        id, told = clicked(self, event).id, event.style.meta
        wanted = "difference" if id == "divergence" else told.get("view")
        view = next((view for view, _ in self.tabs if view == wanted), None)
        if not is_click(self, event):
            return
        if view is not None:
            self.turn_to(view)
        elif "fold" in told:
            await self.run_action("screen.fold")
        elif id == "chat-head":
            self.query_one("#chat-prompt").focus()
        elif id == "raw-head":
            self._landing("raw").focus()

    def turn_to(self, view: View) -> None:
        """Show a view and focus it."""
        self.view = view
        self.set_class(view == "difference", "-shows-difference")
        self.set_class(view == "raw", "-shows-raw")
        self._show_tabs()
        self._landing(view).focus()
        if view == "difference":
            self.post_message(self.DifferenceWanted())

    def action_next_view(self) -> None:
        """Show the next view, wrapping around."""
        views = [view for view, _ in self.tabs]
        at = views.index(self.view) if self.view in views else 0
        self.turn_to(views[(at + 1) % len(views)])

    def action_difference(self) -> None:
        """Show the difference, or return from it."""
        self.turn_to("chat" if self.view == "difference" else "difference")

    @before_keys
    async def action_export(self) -> None:
        """Write the comparison to a file."""
        document = await asyncio.to_thread(self._document)
        if document is None:
            self.tell("There is nothing to export before both prompts are sent.")
            return
        hint = ".md to read · .html with images · .json to replay"
        name = await ask_user(self.app, NameScreen("Export to", value="comparison.html", hint=hint))
        if name is None:
            return
        try:
            written = await asyncio.to_thread(export_comparison, document, Path(name), self.services.paths.media)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        self.tell(f"Written: {written}")

    def tell(self, text: str, error: VlmtuiError | None = None, *, remedy: Remedy | None = None) -> None:
        """Show a line with the key that remedies it, or an error."""
        if error is not None:
            self.tell_error(error)
        else:
            self.notify(with_remedy(self.app, one_line(text), remedy), timeout=6, markup=False)

    def tell_error(self, error: VlmtuiError) -> None:
        """Show an error with its remedy."""
        self.notify(error_text(self.app, error), severity="error", timeout=10, markup=False)

    def show_settings(self, sampling: Sampling, *extra: str) -> None:
        """Show the answers' sampling."""
        self.query_one("#settings", Static).update(" · ".join((*sampling.described(), *extra)))

    def _show_tabs(self) -> None:
        shown: list[Content | str] = []
        views = [view for view, _ in self.tabs]
        current = self.view if self.view in views else views[0]
        for view, title in self.tabs:
            style = "bold $accent on $panel" if view == current else "$muted"
            shown += [clickable(f" {title} ", style, view=view), " "]
        self.query_one("#tabs", Static).update(Content.assemble(*shown, (f" {hint(self.app, *self.HINT)}", "$faint")))
