"""The screen of a stored comparison, read only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from textual import on, work
from textual.app import App
from textual.content import Content

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.prompt import RawPrompt, attachments_of
from vlmtui.domain.times import local_time
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.comparison_pages import engine_titles
from vlmtui.inspection.prompt_turns import PromptTurn, TurnPair, aligned, folded_runs, prompt_parts, rendered_turns
from vlmtui.inspection.replay import Comparison, Side
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.registry.schema import Family
from vlmtui.session.comparison import ComparedMessage, LoadedComparison, answer_of, difference_of
from vlmtui.session.fan_out import side_since
from vlmtui.session.generation import PromptMode
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.compare.answers import AnswerPane
from vlmtui.ui.compare.picture_strip import PictureStrip
from vlmtui.ui.compare.sides import SidesScreen
from vlmtui.ui.compare.turns import PromptView, turn_blocks
from vlmtui.ui.keys import key_of, with_keys
from vlmtui.ui.services import Services
from vlmtui.ui.terminal.key_queue import ask_user
from vlmtui.ui.widgets.dialogs import ChoiceScreen

_ANSWER_MAX = 24
"""Characters of an answer in the list."""


class StoredComparisonScreen(SidesScreen):
    """Read only."""

    SCOPE = "stored_comparison"
    BINDINGS = bindings(SCOPE)

    def __init__(self, services: Services, stored: LoadedComparison, message: ComparedMessage) -> None:
        """`message` as it would be sent now: an answer of other settings is marked."""
        turns = message.turns
        self._prompts = [PromptView(id=f"{mode}-prompt", follows=True) for mode in ("chat", "raw")]
        super().__init__(
            services,
            f"Comparison of {local_date_time(stored.created_ms)}",
            turns[-1].text,
            chat=[self._prompts[0], AnswerPane(id="chat-answer")],
            raw=[self._prompts[1], AnswerPane(id="raw-answer")],
            document=lambda: stored.document,
            landing=lambda view: self.query_one("#difference" if view == "difference" else f"#{view}-prompt"),
            pictures=_numbered(stored.document),
        )
        self.stored = stored
        self._turns, self._sampling = turns, message.conversation.settings.sampling
        self._pairs: Sequence[TurnPair] = ()
        self._is_folded = True
        self.wants_again: str | None = None
        """The raw prompt's text, if it is to be run again."""

    def on_mount(self) -> None:
        document = self.stored.document
        self.show_settings(document.sampling)
        for view, side, engine in zip(self._prompts, document.sides, engine_titles(document), strict=False):
            self._show_side(view, side)
            self.show_head(side.mode, one_line(engine))
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
        changed = side_since(self.stored.document, side, self._turns, self._sampling)
        stale = f"Stale: {one_line(changed)}. {{stored_comparison.run_again}} sends again." if changed else ""
        self.answer_pane(side.mode).begin(answer, warning=with_keys(self.app, stale))

    def _show_turns(self) -> None:
        key = key_of(self.app, "stored_comparison.fold")
        for number, view in enumerate(self._prompts if self._pairs else ()):
            blocks = turn_blocks(self._pairs, number, is_folded=self._is_folded, key=key)
            view.show(*(block for block, _ in blocks))

    @work(group="turns")
    async def _pair_turns(self) -> None:
        self._pairs = await asyncio.to_thread(_stored_pairs, self.stored.document, self.services.registry)
        self._show_turns()

    @work(group="difference", exclusive=True)
    async def _find_difference(self) -> None:
        sides = self.stored.document.sides
        failed: list[PromptMode] = [side.mode for side in sides if side.finish_reason is None]
        found = await asyncio.to_thread(difference_of, sides, failed=failed)
        self.show_difference(msgspec.structs.replace(found, is_stored=True))


def _stored_pairs(document: Comparison, registry: Registry) -> list[TurnPair]:
    """Return the turns of both prompts in pairs; none where the model is not known any more, or a side has no prompt.
    Slow: reads the model's files."""
    try:
        family = resolve(registry, document.model).family
    except VlmtuiError:
        return []
    numbered = _numbered(document)
    left, right = (_turns(side, numbered, family) for side in document.sides[:2])
    return aligned(left, right) if left and right else []


def _turns(side: Side, numbered: Sequence[Attachment], family: Family) -> list[PromptTurn]:
    ready = answer_of(side).prompt
    own = attachments_of(side.request) if side.request else ()
    return rendered_turns(prompt_parts(ready, own, numbered, family, frozenset()), family) if ready else []


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
