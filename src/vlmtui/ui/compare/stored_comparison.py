"""The screen of a stored comparison, read only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from textual import on, work
from textual.app import App
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.prompt import RawPrompt, attachments_of
from vlmtui.domain.times import local_time
from vlmtui.inspection.comparison_pages import engine_titles
from vlmtui.inspection.folded_prompt import folded_runs
from vlmtui.inspection.prompt_turns import TurnPair
from vlmtui.inspection.replay import Comparison, Side
from vlmtui.session.changed_since import side_since
from vlmtui.session.compared_message import ComparedMessage
from vlmtui.session.difference import difference_of
from vlmtui.session.generation import PromptMode
from vlmtui.session.stored_comparisons import LoadedComparison, answer_of
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.compare.compare_pane import AnswerPane, PromptPane
from vlmtui.ui.compare.picture_strip import PictureStrip
from vlmtui.ui.compare.sides import TITLES, SidesScreen, View
from vlmtui.ui.compare.stored_turns import StoredTurns, stored_pairs
from vlmtui.ui.keys import key_of, with_keys
from vlmtui.ui.services import Services
from vlmtui.ui.terminal.key_queue import ask_user
from vlmtui.ui.widgets.dialogs import ChoiceScreen

_ANSWER_MAX = 24
"""Characters of an answer in the list."""


class StoredComparisonScreen(SidesScreen):
    """Read only. `run_again` returns the raw prompt's text; otherwise None."""

    SCOPE = "stored_comparison"
    BINDINGS = bindings(SCOPE)

    @dataclass
    class TurnsPaired(Message):
        """The turns of both prompts, in pairs."""

        pairs: Sequence[TurnPair]

    def __init__(self, services: Services, stored: LoadedComparison, message: ComparedMessage) -> None:
        """`message` as it would be sent now: an answer of other settings is marked."""
        turns = message.turns
        super().__init__(
            services,
            f"Comparison of {local_date_time(stored.created_ms)}",
            turns[-1].text,
            chat=[PromptPane(id="chat-prompt"), AnswerPane("", id="chat-answer")],
            raw=[PromptPane(id="raw-prompt"), AnswerPane("", id="raw-answer")],
            document=lambda: stored.document,
            landing=self._landing_of,
            pictures=_numbered(stored.document),
        )
        self.stored = stored
        self._turns, self._sampling = turns, message.conversation.settings.sampling
        self._folded: StoredTurns | None = None
        self.wants_again: str | None = None
        """The raw prompt's text, if it is to be run again."""

    def on_mount(self) -> None:
        self.show_settings(self.stored.document.sampling)
        names: tuple[PromptMode, ...] = ("chat", "raw")
        engines = engine_titles(self.stored.document)
        for name, side, engine in zip(names, self.stored.document.sides, engines, strict=False):
            self._show_side(name, side)
            head = Content.assemble(TITLES[name], (f" · {one_line(engine)}", "not bold $muted"))
            self.query_one(f"#{name}-head", Static).update(head)
        self.turn_to("chat")
        self._pair_turns()

    @on(SidesScreen.DifferenceWanted)
    def _difference_wanted(self) -> None:
        self._find_difference()

    def action_run_again(self) -> None:
        """Send both prompts again, with this comparison's raw prompt."""
        prompt = self.stored.document.sides[1].request
        if isinstance(prompt, RawPrompt):
            self.wants_again = prompt.text
            self.dismiss()
        else:
            self.tell("Its raw prompt was not stored as text.")

    def action_fold(self) -> None:
        """Show equal earlier turns in one line, or whole."""
        if self._folded is not None:
            self._folded.fold()

    def action_leave(self) -> None:
        self.dismiss()

    def _landing_of(self, view: View) -> Widget:
        if view == "difference":
            return self.query_one("#difference")
        return self.query_one(f"#{view}-prompt", PromptPane).children[-1]

    def _show_side(self, name: str, side: Side) -> None:
        answer = answer_of(side)
        own = attachments_of(side.request) if side.request else ()
        if answer.prompt is not None:
            numbered = _numbered(self.stored.document)
            runs = folded_runs(answer.prompt, own, numbered, frozenset())
            if name == "chat":
                self.query_one(PictureStrip).tell_tokens(answer.prompt, own)
            self.query_one(f"#{name}-prompt", PromptPane).show(runs)
        else:
            self.query_one(f"#{name}-prompt", PromptPane).tell("No prompt was rendered.")
        changed = side_since(self.stored.document, side, self._turns, self._sampling)
        stale = f"Stale: {one_line(changed)}. {{stored_comparison.run_again}} sends again." if changed else ""
        self.query_one(f"#{name}-answer", AnswerPane).begin(answer, mark=with_keys(self.app, stale))

    @work(group="turns")
    async def _pair_turns(self) -> None:
        pairs = await asyncio.to_thread(stored_pairs, self.stored.document, self.services.registry)
        if pairs:
            self.post_message(self.TurnsPaired(pairs))

    @on(TurnsPaired)
    def _turns_paired(self, event: TurnsPaired) -> None:
        left, right = (self.query_one(f"#{side}-prompt", PromptPane) for side in ("chat", "raw"))
        self._folded = StoredTurns(left, right, event.pairs, key_of(self.app, "stored_comparison.fold"))
        self._folded.show()

    @work(group="difference", exclusive=True)
    async def _find_difference(self) -> None:
        sides = self.stored.document.sides
        failed: list[PromptMode] = [side.mode for side in sides if side.finish_reason is None]
        found = await asyncio.to_thread(difference_of, sides, failed=failed)
        self.post_message(self.DifferenceKnown(msgspec.structs.replace(found, is_stored=True)))


async def choose_stored_comparison(app: App[Any], services: Services, message: ComparedMessage) -> str | None:
    """Show one of the turn's comparisons; return the raw prompt's text if it is to be run again.

    Await it in steps of `run_before_keys`. Raises VlmtuiError if the store cannot be read.
    """
    found = [one for one in await message.stored() if _is_pair(one.document)]
    if not found:
        app.notify("This message has no comparison yet.", markup=False)
        return None
    at = await ask_user(
        app,
        ChoiceScreen(
            "Comparisons of this message", [kept_line(len(found) - number, one) for number, one in enumerate(found)]
        ),
    )
    if at is None:
        return None
    shown = StoredComparisonScreen(services, found[at], message)
    await ask_user(app, shown)
    return shown.wants_again


def _numbered(document: Comparison) -> Sequence[Attachment]:
    """The attachments in the order of their numbers: that of the chat template."""
    first = document.sides[0]
    return attachments_of(first.request) if first.request else ()


def local_date_time(created_ms: int) -> str:
    """Return date and time in this machine's time zone."""
    return local_time(created_ms).strftime("%Y-%m-%d %H:%M")


def _is_pair(document: Comparison) -> bool:
    return [side.mode for side in document.sides] == ["chat", "raw"]


def kept_line(number: int, stored: LoadedComparison) -> Content:
    """Return the line of a comparison; `number` counts from the oldest, so that no two lines are equal."""
    found = stored.document.difference
    said = "not compared"
    if found is not None:
        prompts = "prompts identical" if found.prompts_identical else "prompts differ"
        said = f"{prompts}, {'answers identical' if found.answers_identical else 'answers differ'}"
    answer = " ".join(one_line(stored.document.sides[1].answer).split())
    answer = answer if len(answer) <= _ANSWER_MAX else f"{answer[: _ANSWER_MAX - 1]}…"
    when = local_time(stored.created_ms).strftime("%Y-%m-%d %H:%M:%S")
    return Content.assemble((f"{number}  {when}", "bold"), (f"  {said}  ", "$muted"), answer)
