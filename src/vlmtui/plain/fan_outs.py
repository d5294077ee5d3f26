"""One message sent several ways at once, the answers one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from vlmtui.config.trust import TrustStore
from vlmtui.engine.machine import Machine
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.answer_diff import tally_text
from vlmtui.inspection.comparison_pages import difference_lines
from vlmtui.plain.answer_lines import AnswerLines
from vlmtui.plain.messages import Messages
from vlmtui.plain.parts import Parts, RunCommand
from vlmtui.registry.match import Model
from vlmtui.session.compared_message import ComparedMessage
from vlmtui.session.engine_lanes import LaneEngines, engines_of
from vlmtui.session.fan_out import FanOut, choose_lane
from vlmtui.session.fan_out_setup import look_plan, planned_fan_out
from vlmtui.session.lane_plan import ENGINE, Plan, why_identical
from vlmtui.session.lanes import Lane
from vlmtui.session.model_switch import memory_need
from vlmtui.session.plan_text import parse_plan
from vlmtui.text import is_number, one_line


class FanOutCommands:
    """Fans out the draft, or else the last message."""

    def __init__(self, parts: Parts, messages: Messages) -> None:
        self._parts = parts
        self._messages = messages

    @property
    def commands(self) -> Mapping[str, RunCommand]:
        return {
            "fan_out": self.fan_out,
            "look": self.look,
        }

    async def fan_out(self, argument: str) -> None:
        """Send the message by a plan, such as `seed=1,2,3`; without one, ask for it."""
        text = argument or await self._parts.output.ask("Plan, as in seed=1,2,3: ")
        if text:
            await self._run(parse_plan(text), ComparedMessage.of(self._parts.chat))

    async def look(self, argument: str) -> None:
        """Send the message again without its pictures, and with changed ones."""
        message = ComparedMessage.of(self._parts.chat)
        await self._run(look_plan(message), message)

    async def _run(self, plan: Plan, message: ComparedMessage) -> None:
        parts, output = self._parts, self._parts.output
        if message.exchange is None:
            await self._messages.check_room()
        engines = None
        if plan.parameter == ENGINE:
            engines = await self.engines_of({str(one): str(one) for one in plan.values})
            if engines is None:
                return
        media = parts.services.paths.media
        fan_out = await planned_fan_out(plan, message, parts.controller, media=media, engines=engines)
        if problem := why_identical(plan, parts.chat.settings.sampling):
            output.tell(problem, severity="warning")
        with parts.work.stopping(fan_out.lanes.stop):
            running = asyncio.ensure_future(fan_out.run())
            try:
                for number, lane in enumerate(fan_out.lanes, 1):
                    output.line(f"== {number} {one_line(lane.spec.label)} ==")
                    self.tell_waiting(lane)
                    lines = AnswerLines(output, lane.answer, shows_reasoning=False)
                    await lines.wait()
                    lines.end()
            finally:
                await running
        await self._tell_difference(fan_out)
        await self._choose(fan_out, message)

    async def engines_of(
        self, names: Mapping[str, str], check: Callable[[LaneEngines], None] = lambda engines: None
    ) -> LaneEngines | None:
        """Return the engines of lanes, by their labels; before further ones are loaded here, tell what memory they take
        and ask how. `check` raises VlmtuiError for those that can't be used. None if the user chose none. Raises
        VlmtuiError."""
        parts, services, output = self._parts, self._parts.services, self._parts.output
        servers, trust = services.settings.engines, TrustStore(services.paths)
        engines = await engines_of(names, parts.controller, services.registry, servers, trust, self._return_to)
        check(engines)
        if not engines.to_load:
            return engines
        need = await asyncio.to_thread(lambda: memory_need(engines.to_load, Machine.measure()))
        wanted = [name for label, name in names.items() if engines.loaded(label) is None]
        output.tell(f"Load {' and '.join(map(one_line, wanted))}? {need.text}")
        beside = "Load beside what is loaded" + ("" if need.fits else " (it probably does not fit)")
        after = "One after the other: unload what is loaded once it has answered"
        ways = (beside, after) if need.fits else (after, beside)
        chosen = await output.choose(ways)
        if chosen is None:
            return None
        engines.one_by_one = ways[chosen] == after
        return engines

    def tell_waiting(self, lane: Lane) -> None:
        """Say what a lane waits for before it is sent."""
        if lane.waits_for and lane.is_running:
            self._parts.output.tell(f"Waits for {one_line(lane.waits_for)}.")

    def _return_to(self, model: Model) -> None:
        """Load the model again that made room for another one."""
        self._parts.start(self._load_again(model))

    async def _load_again(self, model: Model) -> None:
        await self._parts.controller.return_to(model)
        await self._parts.controller.watch()

    async def _tell_difference(self, fan_out: FanOut) -> None:
        output = self._parts.output
        output.line("== Difference ==")
        output.tell(tally_text([lane.answer.text for lane in fan_out.lanes]))
        output.lines(difference_lines(await asyncio.to_thread(fan_out.document)))
        try:
            scores = await fan_out.scores()
        except VlmtuiError as error:
            output.tell_error(error)
            return
        for lane, score in zip(fan_out.lanes, scores, strict=True):
            if score is not None:
                output.tell(f"{one_line(lane.spec.label)}: the first answer is {score.times} as likely.")
        if said := fan_out.verdict(scores):
            output.tell(said)

    async def _choose(self, fan_out: FanOut, message: ComparedMessage) -> None:
        """Continue with one of the answers, if the user names one; otherwise the conversation stays as it was."""
        self._parts.output.tell(f"A number, 1 to {len(fan_out.lanes)}, continues with that answer; Enter with none.")
        given = await self._parts.output.ask("Answer: ")
        if is_number(given) and 1 <= int(given) <= len(fan_out.lanes):
            model = self._parts.controller.require_model()
            exchange = await choose_lane(fan_out, int(given) - 1, message, model)
            branches = f" ({found})" if (found := exchange.branches()) else ""
            self._parts.output.tell(f"The chat continues with answer {given}{branches}.")
