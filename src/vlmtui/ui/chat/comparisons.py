"""The actions that open comparisons (chat template and raw prompt) and fan-outs (one message, several answers)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static

from vlmtui.config.trust import TrustStore
from vlmtui.domain.capabilities import lack
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.machine import Machine
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.registry.match import Model
from vlmtui.session.comparison import (
    ComparedMessage,
    PromptComparison,
    RawDrafts,
)
from vlmtui.session.dials import ParameterHelp
from vlmtui.session.fan_out import (
    FanOut,
    Plan,
    choose_lane,
    parse_plan,
    planned_fan_out,
    why_identical,
)
from vlmtui.session.lanes import InFlightRequest, LaneEngines, engines_of
from vlmtui.session.models import memory_need
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.chat.part import ChatPart, dialog
from vlmtui.ui.chat.suggestions import ParameterCompletion, SuggestionMenu, matching_parameters
from vlmtui.ui.terminal.key_queue import ask_user
from vlmtui.ui.widgets.dialogs import DialogPanel
from vlmtui.ui.widgets.line_editing import LineInput

if TYPE_CHECKING:
    from vlmtui.ui.chat.screen import ChatScreen

_WRITE_AFTER_S = 1.0
_FAN = "/fan "
_SEEDS = "seed=1..4 temperature=0.8"
_TEMPERATURES = "temperature=0,0.7,1.2"


class PlanScreen(ModalScreen[Plan | None]):
    """Asks for a fan-out's plan in one line, completes it, and shows how many requests it sends. Returns None if the
    user cancels."""

    DEFAULT_CSS = """
    PlanScreen {
        align: center middle;
        background: $background 60%;
        & #title { text-style: bold; }
        & Input, & Input:focus { height: 1; margin-top: 1; border: none; padding: 0 1; background: $panel; }
        & #told { margin: 1 0; height: auto; max-height: 3; color: $muted; }
        & #told.-problem { color: $text-error; }
        & SuggestionMenu { height: 8; margin: 0; }
    }
    """
    SCOPE = "fan_plan"
    BINDINGS = bindings(SCOPE)

    def __init__(
        self, known: Callable[[], Mapping[str, ParameterHelp]], sampling: Sampling, *, no_seeds: str = ""
    ) -> None:
        """`known`: returns the parameters that can be set. `sampling`: the conversation's. `no_seeds`: why seeds can't
        be varied; empty if they can."""
        super().__init__()
        self._no_seeds = no_seeds
        self._known = known
        self._sampling = sampling

    def compose(self) -> ComposeResult:
        with DialogPanel():
            yield Static("Fan out: parameters with their values", id="title", markup=False)
            yield LineInput(_SEEDS if not self._no_seeds else _TEMPERATURES, compact=True)
            yield Static(id="told", markup=False)
            yield SuggestionMenu()

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._read()

    @on(Input.Changed)
    def _changed(self) -> None:
        self._read()

    @on(Input.Submitted)
    def _given(self) -> None:
        plan = self._read()
        if plan is not None:
            self.dismiss(plan)

    @on(OptionList.OptionSelected)
    def action_complete(self) -> None:
        chosen, line = self.query_one(SuggestionMenu).chosen, self.query_one(Input)
        if isinstance(chosen, ParameterCompletion):
            line.value = chosen.text.removeprefix(_FAN)
            line.cursor_position = len(line.value)

    def action_move(self, way: str) -> None:
        getattr(self.query_one(SuggestionMenu), f"action_{way}")()

    def action_cancel(self) -> None:
        self.dismiss(None)

    def _read(self) -> Plan | None:
        """Show the number of requests, or the problem; offer what completes the line. Return the plan if it is
        valid."""
        text, told = self.query_one(Input).value, self.query_one("#told", Static)
        offered = matching_parameters(_FAN + text, self._known)
        self.query_one(SuggestionMenu).show_parameters([one for one in offered if one.text != _FAN + text])
        try:
            plan = parse_plan(text)
            if self._no_seeds and "seed" in plan.varied:
                raise bad_input(self._no_seeds)
        except VlmtuiError as error:
            told.update(one_line(error.message) if text.strip() else f"For instance {_SEEDS}")
            told.set_class(bool(text.strip()), "-problem")
            return None
        doubt = why_identical(plan, self._sampling)
        told.update(" · ".join(filter(None, (f"Enter sends {len(plan.combinations)} requests at once.", doubt))))
        told.remove_class("-problem")
        return plan


class FanOuts(ChatPart):
    """Sends one message several ways at once (a fan-out), e.g. with several seeds. Keeps the newest fan-out until the
    conversation continues with one of its answers."""

    def __init__(self, screen: ChatScreen) -> None:
        super().__init__(screen)
        self._open: tuple[FanOut, ComparedMessage] | None = None
        """The newest fan-out without a chosen answer, and its message."""

    @dialog
    async def action_fan_out(self, text: str = "") -> None:
        """Send the draft or the last message several ways at once. `text`: the plan, e.g. `seed=1,2`; empty: a line
        asks."""
        self._screen.take_composer_text()
        message = self._screen.compared_message()
        fan_out = self._earlier(message) if not text else None
        if fan_out is None:
            plan = await self._plan(text, message)
            fan_out = await self._planned(plan, message) if plan is not None else None
        if fan_out is not None:
            await self._show(fan_out, message)

    async def _show(self, fan_out: FanOut, message: ComparedMessage) -> bool:
        """Show a fan-out. If the user requests another one from its screen, show that one. Return True if the
        conversation continues with one of the answers. Raises VlmtuiError."""
        while True:
            self._open = (fan_out, message)
            chosen = await self._app.open_fan_out(fan_out)
            if chosen is None:
                return False
            if isinstance(chosen, int):
                break
            self._open = None
            plan = await self._plan("", message)
            if plan is None:
                return False
            planned = await self._planned(plan, message)
            if planned is None:
                return False
            fan_out = planned
        await choose_lane(fan_out, chosen, message, self._engines.require_model())
        self._open = None
        await self._screen.show_conversation()
        return True

    def _earlier(self, message: ComparedMessage) -> FanOut | None:
        """Return the newest fan-out if it sent the same message, or else None."""
        if self._open is None:
            return None
        fan_out, before = self._open
        is_same = before.exchange is message.exchange and before.turns == message.turns
        return fan_out if is_same else None

    async def _plan(self, text: str, message: ComparedMessage) -> Plan | None:
        if text:
            return parse_plan(text)
        no_seeds = lack(self._engines.info, "seed")
        screen = PlanScreen(self._screen.known_parameters, self._chat.settings.sampling, no_seeds=no_seeds)
        return await ask_user(self._app, screen)

    async def _engines_of(self, names: Mapping[str, str]) -> LaneEngines | None:
        """Return the engines of a fan-out that asks several models. `names`: the model or server behind each label of
        an answer. If models must be loaded, show the memory that they need and ask how to load them; return None if the
        user cancels. Raises VlmtuiError."""
        services = self._screen.services
        trust, servers = TrustStore(services.paths), services.settings.engines
        engines = await engines_of(names, self._engines, services.registry, servers, trust, self._return_to)
        if not engines.to_load:
            return engines
        need = await asyncio.to_thread(lambda: memory_need(engines.to_load, Machine.measure()))
        wanted = " and ".join(one_line(name) for label, name in names.items() if engines.loaded(label) is None)
        beside = "Load beside the loaded models" + ("" if need.fits else " (it probably does not fit)")
        after = "One after the other: unload each model once it has answered"
        ways = (*((beside, after) if need.fits else (after, beside)), "Back")
        chosen = await self._app.choose(f"Load {wanted}. {need.text}", ways)
        if chosen is None or ways[chosen] == "Back":
            return None
        engines.one_by_one = ways[chosen] == after
        return engines

    def _return_to(self, model: Model) -> None:
        """Load the chat's model again, which was unloaded to make room for another model."""
        self._screen.start(partial(self._load_again, model), "engine")

    async def _load_again(self, model: Model) -> None:
        if await self._engines.return_to(model):
            await self._engines.watch()

    async def _planned(self, plan: Plan, message: ComparedMessage) -> FanOut | None:
        if message.exchange is None:
            self._screen.prompt_cost.check_room()
        engines = None
        if plan.engines:
            engines = await self._engines_of(plan.engines)
            if engines is None:
                return None
        media = self._screen.services.paths.media
        return await planned_fan_out(plan, message, self._engines, media=media, engines=engines)


class Comparisons(ChatPart):
    """Opens comparisons, sends the compared message, and stores the raw prompt."""

    def __init__(self, screen: ChatScreen) -> None:
        super().__init__(screen)
        self._raw_drafts = RawDrafts(screen.services.paths)
        self._raw_timer: Timer | None = None

    def action_compare(self, text: str = "") -> None:
        """Compare the chat template with a raw prompt, for the draft or the last message; with a plan, such as
        `engine=A,B` or `seed=1..3`, the answers of a fan-out."""
        if text:
            self._app.run_action_id("fan_out", text)
            return
        self._screen.take_composer_text()
        self._screen.start_dialog(self._compare)

    @dialog
    async def action_comparisons(self) -> None:
        last = self._screen.marked.exchange if self._screen.marked is not None else self._chat.last
        if last is None:
            self._app.tell("There is no comparison yet.")
            return
        raw = await self._app.choose_comparison(ComparedMessage(self._chat, last))
        if raw is not None:
            self._screen.start_dialog(partial(self._compare, raw))

    def _send(self, message: ComparedMessage, comparison: PromptComparison) -> InFlightRequest:
        """Send the draft as the conversation's next message, with the comparison's seed. Raises VlmtuiError."""
        self._screen.prompt_cost.check_room()
        chat, engines = self._chat, self._engines
        written, text, was_editing = chat.draft.words, chat.draft.text, chat.editing is not None
        exchange = chat.begin(
            engines.require_model(),
            engines.info,
            seed=comparison.sampling.seed,
            logprobs=comparison.alternatives,
        )
        self._screen.panel.take_text(written, text)
        self._screen.sender.open_exchange(exchange, rebuild=was_editing)
        return message.sent(exchange)

    def _raw_edited(self) -> None:
        """Store the raw prompt within a second."""
        if self._raw_timer is None:
            self._raw_timer = self._screen.set_timer(_WRITE_AFTER_S, self._write_raw)

    def _write_raw(self) -> None:
        self._screen.start(self._store_raw, "raw")

    async def _store_raw(self) -> None:
        self._raw_timer = None
        await self._raw_drafts.write(self._chat.live)

    async def _compare(self, raw: str | None = None) -> None:
        message = self._screen.compared_message()
        draft = await self._raw_drafts.of(self._chat.live)
        families = tuple(self._screen.services.registry.values())
        comparison = PromptComparison.of(message, draft, self._engines, families)
        if raw is not None:
            draft.text, draft.filled, draft.origin, draft.saved_as = raw, "", "", ""
        await self._app.open_comparison(
            comparison,
            message,
            send=partial(self._send, message, comparison),
            on_edit=self._raw_edited,
        )
        self._write_raw()
        self._screen.prompt_cost.count_soon()
