"""The layout that both comparison screens share, and the screen of a stored comparison."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from textual import events, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from vlmtui.domain.conversation import Attachment, RawPrompt, attachments_of
from vlmtui.domain.sampling import Sampling
from vlmtui.domain.times import local_time
from vlmtui.errors import VlmtuiError
from vlmtui.export.comparison import engine_titles, export_comparison
from vlmtui.inspection.prompt_turns import PromptTurn, TurnPair, aligned, folded_runs, prompt_parts, rendered_turns
from vlmtui.inspection.replay import Comparison, Side
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.registry.schema import Family
from vlmtui.registry.unlisted import unlisted_family
from vlmtui.session.comparison import ComparedMessage, Difference, LoadedComparison, answer_of, difference_of
from vlmtui.session.generation import PromptMode
from vlmtui.text import cut, one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.compare.answers import LEFT, RIGHT, AnswerPane, PictureStrip, difference_blocks, verdict_lines
from vlmtui.ui.compare.raw_prompt import RawPane
from vlmtui.ui.compare.turns import PromptView, turn_blocks
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.keys import hint, key_of
from vlmtui.ui.terminal.key_queue import ask_user, before_keys
from vlmtui.ui.widgets.clicks import clickable, clicked, is_click
from vlmtui.ui.widgets.dialogs import ChoiceScreen, NameScreen
from vlmtui.ui.widgets.footer_bar import FooterBar

if TYPE_CHECKING:
    from vlmtui.ui.app import VlmtuiApp

NARROW = 100
"""Columns below which only one side is shown."""
TALL = 36
"""Rows from which on a wide screen shows the prompts above their difference."""
View = Literal["chat", "raw", "difference"]
TITLES: Mapping[PromptMode, str] = {"chat": "Chat template", "raw": "Raw prompt"}
_NARROW_TABS: Mapping[View, str] = {"chat": "Chat", "raw": "Raw", "difference": "Difference"}
_WIDE_TABS: Mapping[View, str] = {"chat": "Chat and raw", "difference": "Difference"}
_ANSWER_MAX = 24
"""Maximum characters of an answer in the list of stored comparisons."""


class SidesScreen(Screen[None]):
    """The base class of the comparison screens. They show the chat template on the left and the raw prompt on the
    right, or the difference of both."""

    HINT: tuple[str, ...] = ("sides.next_view",)
    """Ids of actions whose keys are shown beside the tabs, since the footer has no room."""
    CSS_PATH = "screen.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (TALL, "-tall")]

    def __init__(
        self,
        title: str,
        question: str,
        pictures: Sequence[Attachment],
        prompts: Mapping[PromptMode, PromptView | RawPane],
    ) -> None:
        """`pictures`: the attachments to show above the footer, numbered from 1."""
        super().__init__()
        self.view: View = "chat"
        self.prompts = prompts
        self._heading = title
        self._question = question
        self._pictures = pictures

    @property
    def main_app(self) -> VlmtuiApp:
        return cast("VlmtuiApp", self.app)

    def document(self) -> Comparison | None:
        """Return the comparison to export, None if there is none. Slow for long prompts."""
        raise NotImplementedError

    def landing(self, view: View) -> Widget:
        """Return the widget that gets the focus when `view` is shown."""
        return self.query_one("#difference") if view == "difference" else self.prompts[view]

    def find_difference(self) -> object:
        """Compute the difference in the background, then call `show_difference`."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(self._heading, id="title", markup=False)
            yield Static(one_line(self._question), id="question", markup=False)
            yield Static(id="settings", markup=False)
        yield Static(id="verdict", markup=False)
        yield Static(id="tabs", markup=False)
        with Horizontal(id="panes"):
            for mode, title in TITLES.items():
                with Vertical(id=f"{mode}-side", classes="side"):
                    yield Static(title, id=f"{mode}-head", classes="head", markup=False)
                    yield self.prompts[mode]
                    yield AnswerPane(id=f"{mode}-answer")
        yield DocumentView(has_edge=False, can_focus=True, id="difference")
        yield PictureStrip(self._pictures)
        yield FooterBar()

    @property
    def is_narrow(self) -> bool:
        return self.app.size.width < NARROW

    @property
    def tabs(self) -> Mapping[View, str]:
        """The views available at this width, with their titles."""
        return _NARROW_TABS if self.is_narrow else _WIDE_TABS

    async def on_resize(self) -> None:
        self._show_tabs()
        for pane in self.query(AnswerPane):
            pane.give_room()
        await self.query_one(PictureStrip).fit(self.size.height)
        self.call_after_refresh(self.fit_prompts)

    def fit_prompts(self) -> None:
        """On a large screen make the prompts as high as their text; the difference gets the rows below them."""
        panes = self.query_one("#panes")
        if not (self.has_class("-wide") and self.has_class("-tall")):
            panes.styles.height = "1fr"
            return
        answers = max(pane.outer_size.height if pane.display else 0 for pane in self.query(AnswerPane))
        rows = max(prompt.rows for prompt in self.prompts.values())
        panes.styles.height = min(1 + max(3, rows) + answers, self.size.height * 3 // 5)

    def show_difference(self, difference: Difference) -> None:
        """Show where prompts and answers differ, and underline the words that differ."""
        self.query_one("#difference", DocumentView).show(*difference_blocks(self.app, difference))
        self.query_one("#verdict", Static).update(verdict_lines(self.app, difference))
        if difference.answers is not None:
            self.answer_pane("chat").mark(difference.answers, 0, f"underline {LEFT}")
            self.answer_pane("raw").mark(difference.answers, 1, f"underline {RIGHT}")

    def show_head(self, mode: PromptMode, said: str) -> None:
        """Show the title of one side, followed by the note `said`."""
        told = Content.styled(f" · {said}" if said else "", "not bold $muted")
        self.query_one(f"#{mode}-head", Static).update(Content.assemble(TITLES[mode], told))

    def answer_pane(self, mode: PromptMode) -> AnswerPane:
        return self.query_one(f"#{mode}-answer", AnswerPane)

    async def on_click(self, event: events.Click) -> None:
        """Handle a click: on a tab, show its view; on folded turns, unfold them; on a side's title, focus the side; on
        the verdict, show the difference."""
        id, told = clicked(self, event).id, event.style.meta
        wanted = "difference" if id == "verdict" else told.get("view")
        view = next((view for view in self.tabs if view == wanted), None)
        if not is_click(self, event):
            return
        if view is not None:
            self.turn_to(view)
        elif "fold" in told:
            await self.run_action("screen.fold")
        elif id == "chat-head":
            self.prompts["chat"].focus()
        elif id == "raw-head":
            self.landing("raw").focus()

    def turn_to(self, view: View) -> None:
        self.view = view
        self.set_class(view == "difference", "-shows-difference")
        self.set_class(view == "raw", "-shows-raw")
        self._show_tabs()
        self.landing(view).focus()
        if view == "difference":
            self.find_difference()

    def action_next_view(self) -> None:
        views = list(self.tabs)
        at = views.index(self.view) if self.view in views else 0
        self.turn_to(views[(at + 1) % len(views)])

    def action_difference(self) -> None:
        """Show the difference, or return to both sides."""
        self.turn_to("chat" if self.view == "difference" else "difference")

    @before_keys
    async def action_export(self) -> None:
        document = await asyncio.to_thread(self.document)
        if document is None:
            self.main_app.tell("There is nothing to export before both prompts are sent.")
        else:
            await ask_export(self.main_app, document, "comparison.html")

    def show_settings(self, sampling: Sampling) -> None:
        self.query_one("#settings", Static).update(" · ".join(sampling.described()))

    def _show_tabs(self) -> None:
        shown: list[Content | str] = []
        current = self.view if self.view in self.tabs else "chat"
        for view, title in self.tabs.items():
            style = "bold $accent on $panel" if view == current else "$muted"
            shown += [clickable(f" {title} ", style, view=view), " "]
        self.query_one("#tabs", Static).update(Content.assemble(*shown, (f" {hint(self.app, *self.HINT)}", "$faint")))


async def ask_export(app: VlmtuiApp, document: Comparison, name: str) -> None:
    """Ask for a file, suggesting `name`, and write a comparison to it."""
    hint = ".md to read · .html with images · .json to check again"
    chosen = await ask_user(app, NameScreen("Export to", value=name, hint=hint))
    if chosen is None:
        return
    try:
        written = await asyncio.to_thread(export_comparison, document, Path(chosen), app.services.paths.media)
    except VlmtuiError as error:
        app.tell_error(error)
    else:
        app.tell(f"Written: {written}")


class StoredComparisonScreen(SidesScreen):
    """A comparison from the store, read-only."""

    SCOPE = "stored_comparison"
    BINDINGS = bindings(SCOPE)

    def __init__(self, stored: LoadedComparison, question: str) -> None:
        self._views = [PromptView(id=f"{mode}-prompt", follows=True) for mode in TITLES]
        title = f"Comparison of {local_date_time(stored.created_ms)}"
        super().__init__(title, question, _numbered(stored.document), dict(zip(TITLES, self._views, strict=True)))
        self.stored = stored
        self._pairs: Sequence[TurnPair] = ()
        self._is_folded = True
        self.wants_again: str | None = None
        """The raw prompt, if the user wants to send both prompts again."""

    def document(self) -> Comparison:
        return self.stored.document

    def on_mount(self) -> None:
        document = self.stored.document
        self.show_settings(document.sampling)
        for view, side, engine in zip(self._views, document.sides, engine_titles(document), strict=False):
            self._show_side(view, side)
            self.show_head(side.mode, one_line(engine))
        self.turn_to("chat")
        self._pair_turns()
        self.find_difference()

    def action_run_again(self) -> None:
        prompt = self.stored.document.sides[1].request
        if isinstance(prompt, RawPrompt):
            self.wants_again = prompt.text
            self.dismiss()
        else:
            self.main_app.tell("Its raw prompt was not stored as text.")

    def action_fold(self) -> None:
        self._is_folded = not self._is_folded
        self._show_turns()

    def action_leave(self) -> None:
        self.dismiss()

    def _show_side(self, view: PromptView, side: Side) -> None:
        answer = answer_of(side)
        own = attachments_of(side.request) if side.request else ()
        if answer.prompt is not None:
            view.show_runs(folded_runs(answer.prompt, own, _numbered(self.stored.document), frozenset()))
            if side.mode == "chat":
                self.query_one(PictureStrip).tell_tokens(answer.prompt, own)
        else:
            view.tell("No prompt was rendered.")
        self.answer_pane(side.mode).begin(answer)

    def _show_turns(self) -> None:
        key = key_of(self.app, "stored_comparison.fold")
        for number, view in enumerate(self._views if self._pairs else ()):
            blocks = turn_blocks(self._pairs, number, is_folded=self._is_folded, key=key)
            view.show(*(block for block, _ in blocks))
        self.call_after_refresh(self.fit_prompts)

    @work(group="turns")
    async def _pair_turns(self) -> None:
        self._pairs = await asyncio.to_thread(_stored_pairs, self.stored.document, self.main_app.services.registry)
        self._show_turns()

    @work(group="difference", exclusive=True)
    async def find_difference(self) -> None:
        sides = self.stored.document.sides
        failed: list[PromptMode] = [side.mode for side in sides if side.finish_reason is None]
        found = await asyncio.to_thread(difference_of, sides, failed=failed)
        self.show_difference(found)


def _stored_pairs(document: Comparison, registry: Registry) -> list[TurnPair]:
    """Return the corresponding turns of both prompts; empty if a side has no prompt. If the model has no record, turns
    begin at the heads that most families share. Blocking: reads the model's files."""
    try:
        family = resolve(registry, document.model).family
    except VlmtuiError:
        family = unlisted_family(document.model)
    numbered = _numbered(document)
    left, right = (_turns(side, numbered, family) for side in document.sides[:2])
    return aligned(left, right) if left and right else []


def _turns(side: Side, numbered: Sequence[Attachment], family: Family) -> list[PromptTurn]:
    ready = answer_of(side).prompt
    own = attachments_of(side.request) if side.request else ()
    return rendered_turns(prompt_parts(ready, own, numbered, family, frozenset()), family) if ready else []


async def choose_stored_comparison(app: VlmtuiApp, message: ComparedMessage) -> str | None:
    """Let the user choose one of the message's stored comparisons, and show it. Return its raw prompt if the user wants
    to send both prompts again, or else None.

    Await it within `run_before_keys`. Raises VlmtuiError if the store can't be read.
    """
    found = [one for one in await message.stored() if _is_pair(one.document)]
    if not found:
        app.tell("This message has no comparison yet.")
        return None
    at = await ask_user(
        app,
        ChoiceScreen(
            "Comparisons of this message", [stored_line(len(found) - number, one) for number, one in enumerate(found)]
        ),
    )
    if at is None:
        return None
    shown = StoredComparisonScreen(found[at], message.turns[-1].text)
    await ask_user(app, shown)
    return shown.wants_again


def _numbered(document: Comparison) -> Sequence[Attachment]:
    """Return the attachments in the order of their numbers, which is their order in the chat template's prompt."""
    first = document.sides[0]
    return attachments_of(first.request) if first.request else ()


def local_date_time(created_ms: int) -> str:
    """Return date and time in this machine's time zone."""
    return local_time(created_ms).strftime("%Y-%m-%d %H:%M")


def _is_pair(document: Comparison) -> bool:
    return [side.mode for side in document.sides] == ["chat", "raw"]


def stored_line(number: int, stored: LoadedComparison) -> Content:
    """Return the line of a stored comparison in a list. `number`: its number, counted from the oldest; it makes all
    lines different."""
    found = stored.document.difference
    said = "not compared"
    if found is not None:
        prompts = "prompts identical" if found.prompts_identical else "prompts differ"
        said = f"{prompts}, {'answers identical' if found.answers_identical else 'answers differ'}"
    answer = cut(" ".join(one_line(stored.document.sides[1].answer).split()), _ANSWER_MAX)
    when = local_time(stored.created_ms).strftime("%Y-%m-%d %H:%M:%S")
    return Content.assemble((f"{number}  {when}", "bold"), (f"  {said}  ", "$muted"), answer)
