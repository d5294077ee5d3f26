"""A comparison that was kept, to be looked at again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.engine import RawPrompt
from vlmtui.engine.session import PromptMode
from vlmtui.inspection.replay import Comparison, Side
from vlmtui.ui.controllers.compare_difference import difference_of
from vlmtui.ui.controllers.compared_side import reopened
from vlmtui.ui.controllers.compared_turn import ComparedTurn, KeptComparison
from vlmtui.ui.controllers.folded_prompt import attachments_of, folded_runs
from vlmtui.ui.screens.asking import ChoiceScreen
from vlmtui.ui.screens.sides import SIDES_BINDINGS, SidesScreen, View
from vlmtui.ui.services import Services
from vlmtui.ui.text import one_line
from vlmtui.ui.widgets.compare_pane import AnswerPane, PromptPane


class KeptComparisonScreen(SidesScreen):
    """Read only. Dismissed by `run_again`, it gives the raw prompt's text; else None."""

    BINDINGS = [
        Binding("ctrl+r,f5,ctrl+enter", "run_again", "Run again", id="kept.again", tooltip="Ask both once more."),
        *SIDES_BINDINGS,
        Binding("escape", "leave", "Back", id="kept.leave", tooltip="Close it."),
    ]

    def __init__(self, services: Services, kept: KeptComparison, question: str) -> None:
        super().__init__(services, f"Comparison of {when(kept.created_ms)}", question)
        self.kept = kept
        self.wants_again: str | None = None
        """The raw prompt's text, where it is to be run again."""

    def chat_side(self) -> ComposeResult:
        yield PromptPane(id="chat-prompt")
        yield AnswerPane("", id="chat-answer")

    def raw_side(self) -> ComposeResult:
        yield PromptPane(id="raw-prompt")
        yield AnswerPane("", id="raw-answer")

    def landing(self, view: View) -> Widget:
        if view == "difference":
            return self.query_one("#difference")
        return self.query_one(f"#{view}-prompt", PromptPane).children[-1]

    def on_mount(self) -> None:
        self.show_settings(self.kept.document.sampling)
        names = ("chat", "raw")
        for name, side in zip(names, self.kept.document.sides, strict=False):
            self._show_side(name, side)
        self.turn_to("chat")

    def document(self) -> Comparison:
        return self.kept.document

    def difference_wanted(self) -> None:
        self._find_difference()

    def action_run_again(self) -> None:
        """Ask both once more, with the raw prompt of this comparison."""
        prompt = self.kept.document.sides[1].request
        if isinstance(prompt, RawPrompt):
            self.wants_again = prompt.text
            self.dismiss()
        else:
            self.post_message(self.Told("Its raw prompt was not kept as text."))

    def action_leave(self) -> None:
        """Close it."""
        self.dismiss()

    def _show_side(self, name: str, side: Side) -> None:
        compared = reopened(side)
        own = attachments_of(side.request) if side.request else ()
        if compared.prompt is not None:
            runs = folded_runs(compared.prompt, own, self._conversation(), frozenset())
            self.query_one(f"#{name}-prompt", PromptPane).show(runs)
        else:
            self.query_one(f"#{name}-prompt", PromptPane).tell("No prompt was made.")
        if compared.answer is not None:
            self.query_one(f"#{name}-answer", AnswerPane).begin(compared.answer)

    def _conversation(self) -> Sequence[Attachment]:
        """In the order that numbers them: the chat template's."""
        first = self.kept.document.sides[0]
        return attachments_of(first.request) if first.request else ()

    @work(group="difference", exclusive=True)
    async def _find_difference(self) -> None:
        sides = self.kept.document.sides
        failed: list[PromptMode] = [side.mode for side in sides if side.finish_reason is None]
        self.post_message(self.DifferenceKnown(await asyncio.to_thread(difference_of, sides, failed=failed)))


async def choose_kept(screen: Screen[None], services: Services, turn: ComparedTurn) -> str | None:
    """Let the user look at one of the turn's comparisons; the raw prompt's text where it is to be run again.

    To be awaited in a worker. Raises VlmtuiError where the store cannot be read.
    """
    found = [one for one in await turn.kept() if _is_pair(one.document)]
    if not found:
        screen.notify("This message has no comparison yet.", markup=False)
        return None
    at = await screen.app.push_screen_wait(ChoiceScreen("Comparisons of this message", [_line(one) for one in found]))
    if at is None:
        return None
    shown = KeptComparisonScreen(services, found[at], turn.turns()[-1].text)
    await screen.app.push_screen_wait(shown)
    return shown.wants_again


def when(created_ms: int) -> str:
    """Date and time of day, here."""
    return datetime.fromtimestamp(created_ms / 1000).strftime("%Y-%m-%d %H:%M")


def _is_pair(document: Comparison) -> bool:
    return [side.mode for side in document.sides] == ["chat", "raw"]


def _line(kept: KeptComparison) -> Content:
    found = kept.document.difference
    said = "not compared"
    if found is not None:
        prompts = "same prompts" if found.prompts_identical else "other prompts"
        said = f"{prompts}, {'same answers' if found.answers_identical else 'other answers'}"
    answer = " ".join(one_line(kept.document.sides[1].answer).split())[:24]
    return Content.assemble((when(kept.created_ms), "bold"), (f"  {said}  ", "$muted"), answer)
