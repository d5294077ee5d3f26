"""Chat template and raw prompt, one after the other, and their difference in words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from vlmtui.errors import bad_input
from vlmtui.inspection.answer_diff import AnswerDiff
from vlmtui.inspection.comparison_pages import difference_lines, engine_titles, side_title
from vlmtui.inspection.raw_prompt_check import Finding
from vlmtui.plain.answer_lines import AnswerLines
from vlmtui.plain.fan_outs import FanOutCommands
from vlmtui.plain.messages import Messages
from vlmtui.plain.parts import Parts, RunCommand
from vlmtui.reading import read_whole
from vlmtui.session.compared_message import ComparedMessage
from vlmtui.session.comparison import CompareController
from vlmtui.session.comparison_setup import comparison_of_message, require_family
from vlmtui.session.conversation_list import ago
from vlmtui.session.engine_names import HERE
from vlmtui.session.exchange import Exchange
from vlmtui.session.kept_comparison import adopt_side, keep_comparison
from vlmtui.session.lanes import InFlightRequest
from vlmtui.session.raw_draft import RawDrafts
from vlmtui.session.side_engines import choose_side_engines, read_side_engines
from vlmtui.text import one_line, quoted

_RAW_BYTES_MAX = 10_000_000
_DIFFERENCES = 20
"""Most differing places that are quoted."""


class ComparisonCommands:
    """Compares the draft, or else the last message."""

    def __init__(self, parts: Parts, messages: Messages, fan_outs: FanOutCommands) -> None:
        self._parts = parts
        self._messages = messages
        self._fan_outs = fan_outs
        self._raw_drafts = RawDrafts(parts.services.paths)

    @property
    def commands(self) -> Mapping[str, RunCommand]:
        return {
            "compare": self.compare,
            "comparisons": self.show_stored,
        }

    async def compare(self, argument: str) -> None:
        """Compare with a raw prompt: the stored one, or (`@FILE`) a file's. `chat=NAME` and `raw=NAME` give a side an
        engine of its own; `engine=A,B` compares engines."""
        engines, file = read_side_engines(argument)
        if file and not file.startswith("@"):
            await self._fan_outs.fan_out(argument)
            return
        parts = self._parts
        message = ComparedMessage.of(parts.chat)
        draft = await self._raw_drafts.of(parts.chat.live)
        families = tuple(parts.services.registry.values())
        controller = comparison_of_message(message, draft, parts.controller, families)
        if file:
            draft.fill(await asyncio.to_thread(_read_raw, Path(file[1:]).expanduser()), file[1:])
        elif not draft.text or not draft.is_edited:
            draft.fill(*await controller.template_text(parts.controller.require_engine))
        if engines:
            check = partial(require_family, family=controller.input.family)
            await choose_side_engines(controller, engines, lambda names: self._fan_outs.engines_of(names, check))
            if controller.engines is None and set(engines.values()) != {HERE}:
                return
        await self._run(controller, message)
        await self._raw_drafts.write(parts.chat.live)

    async def show_stored(self, argument: str) -> None:
        """Show the comparisons stored with the last message."""
        chat, output = self._parts.chat, self._parts.output
        found = await ComparedMessage(chat, chat.last).stored() if chat.last is not None else []
        if not found:
            output.tell("The last message has no comparison. /compare makes one.")
        for one in reversed(found):
            output.line(f"Comparison of {ago(one.created_ms)}:")
            for side, engine in zip(one.document.sides, engine_titles(one.document), strict=True):
                output.lines(
                    [
                        f"== {one_line(side_title(side))} · {one_line(engine)} ==",
                        side.answer or f"(failed: {side.failure})",
                    ]
                )
            output.line("== Difference ==")
            output.lines(difference_lines(one.document))

    async def _run(self, controller: CompareController, message: ComparedMessage) -> None:
        output, parts = self._parts.output, self._parts
        findings = controller.prepare()
        engine = parts.controller.require_engine()
        is_draft = message.exchange is None and controller.sends_draft
        in_flight, asking = await self._send(controller, message) if is_draft else (None, None)
        controller.begin(engine, in_flight)

        async def stop() -> None:
            await controller.stop("chat", "raw")

        with parts.work.stopping(stop):
            both = asyncio.ensure_future(controller.answer())
            try:
                for side in controller.sides:
                    own = one_line(controller.engine_names[side.mode]) if controller.engines is not None else ""
                    title = "Chat template" if side.mode == "chat" else "Raw prompt"
                    output.line(f"== {' · '.join(filter(None, (title, own)))} ==")
                    if side.mode == "raw":
                        output.lines(_finding(one) for one in findings)
                    assert side.lane is not None
                    self._fan_outs.tell_waiting(side.lane)
                    lines = AnswerLines(output, side.lane.answer, shows_reasoning=True)
                    await lines.wait()
                    lines.end()
                    if own and side.lane.info is not None:
                        output.line(f"[{one_line(controller.engine_facts(side))}]")
            finally:
                await both
                if asking is not None:
                    await asking
        document = await asyncio.to_thread(controller.document)
        output.line("== Difference ==")
        output.lines(difference_lines(document))
        found = await asyncio.to_thread(controller.difference)
        if found.answers is not None:
            output.lines(difference_words(found.answers, "chat only", "raw only"))
        await keep_comparison(controller, message, parts.controller.require_model)
        raw = controller.raw.lane
        if raw is None or controller.raw.has_failed or not raw.answer.text:
            return
        if await output.confirm("Continue with the raw answer?"):
            await adopt_side(controller, message, controller.raw, parts.controller.require_model)
            self._tell_branch(message.exchange)

    async def _send(
        self, controller: CompareController, message: ComparedMessage
    ) -> tuple[InFlightRequest, asyncio.Task[None]]:
        """Send the draft as the conversation's next message, with the comparison's seed."""
        parts = self._parts
        await self._messages.check_room()
        exchange = parts.chat.begin(
            parts.controller.require_model(),
            parts.controller.info,
            seed=controller.sampling.seed,
            logprobs=controller.alternatives,
        )
        asking = parts.start(parts.chat.answer(parts.controller.require_engine(), exchange))
        return message.sent(exchange), asking

    def _tell_branch(self, exchange: Exchange | None) -> None:
        if exchange is not None:
            place = exchange.answer_siblings
            self._parts.output.tell(f"The raw answer is now answer {place.position}/{place.count} of this chat.")


def difference_words(found: AnswerDiff, left: str, right: str) -> Iterator[str]:
    """Yield the places where two answers differ; `left` and `right` name the sides."""
    places = [span for span in found.spans if span.operation != "equal"]
    for span in places[:_DIFFERENCES]:
        sides = [f"{name}: {quoted(text)}" for name, text in ((left, span.left), (right, span.right)) if text]
        yield "  " + " · ".join(sides)
    if len(places) > _DIFFERENCES:
        yield f"  … and {len(places) - _DIFFERENCES} more differences"


def _finding(finding: Finding) -> str:
    return f"Warning: {one_line(finding.message)}"


def _read_raw(path: Path) -> str:
    data = read_whole(path, bytes_max=_RAW_BYTES_MAX)
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise bad_input(f"{one_line(str(path))} is not UTF-8 text.", detail=str(error)) from error
