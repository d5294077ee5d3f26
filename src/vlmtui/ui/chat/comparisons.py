"""The actions that open comparisons (chat template and raw prompt) and fan-outs (one message, several answers)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from textual.timer import Timer

from vlmtui.config.trust import TrustStore
from vlmtui.domain.capabilities import lack
from vlmtui.domain.conversation import all_attachments
from vlmtui.engine.machine import Machine
from vlmtui.registry.match import Model
from vlmtui.session.comparison import (
    ComparedMessage,
    PromptComparison,
    RawDrafts,
)
from vlmtui.session.fan_out import ENGINE, PICTURE, FanOut, Plan, choose_lane, look_plan, parse_plan, planned_fan_out
from vlmtui.session.lanes import InFlightRequest, LaneEngines, engines_of
from vlmtui.session.models import memory_need
from vlmtui.text import one_line
from vlmtui.ui.chat.part import ChatPart, dialog

if TYPE_CHECKING:
    from vlmtui.ui.chat.screen import ChatScreen

_WRITE_AFTER_S = 1.0


class FanOuts(ChatPart):
    """Sends one message several ways at once (a fan-out), e.g. with several seeds. Keeps the newest fan-out until the
    conversation continues with one of its answers."""

    def __init__(self, screen: ChatScreen) -> None:
        super().__init__(screen)
        self._open: tuple[FanOut, ComparedMessage] | None = None
        """The newest fan-out without a chosen answer, and its message."""

    @dialog
    async def action_fan_out(self, text: str = "") -> None:
        """Send the draft or the last message several ways at once. `text`: the plan, e.g. `seed=1,2`; empty: a form
        asks."""
        self._screen.take_composer_text()
        message = self._screen.compared_message()
        fan_out = self._earlier(message) if not text else None
        if fan_out is None:
            plan = await self._plan(text, message)
            fan_out = await self._planned(plan, message) if plan is not None else None
        if fan_out is not None:
            await self._show(fan_out, message)

    @dialog
    async def action_look(self) -> None:
        self._screen.take_composer_text()
        await self.look_at(self._screen.compared_message())

    async def look_at(self, message: ComparedMessage) -> bool:
        """Send this message with its images, without them, and with changed images. Return True if the conversation
        continues with one of the answers. Raises VlmtuiError."""
        fan_out = self._earlier(message)
        if fan_out is None or fan_out.plan.parameter != PICTURE:
            fan_out = await self._planned(look_plan(message), message)
        return fan_out is not None and await self._show(fan_out, message)

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
            plan = look_plan(message) if chosen == "look" else await self._plan("", message)
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
        settings = self._chat.settings
        return await self._app.plan_fan_out(
            message.turns[-1].text,
            settings.sampling,
            no_seeds=no_seeds,
            system=settings.system_prompt,
            has_pictures=bool(all_attachments(message.turns)),
        )

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
        if plan.parameter == ENGINE:
            engines = await self._engines_of({str(one): str(one) for one in plan.values})
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
        """Compare the chat template with a raw prompt, for the draft or the last message; with `engine=A,B`, the
        answers of two engines."""
        if text:
            self._screen.fan_outs.action_fan_out(text)
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
            look=partial(self._screen.fan_outs.look_at, message),
        )
        self._write_raw()
        self._screen.prompt_cost.count_soon()
