"""What the model was given and what it answered, in words: prompt, tokens, media, template, sampling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import cast

from vlmtui.errors import bad_input
from vlmtui.files import write_numbered
from vlmtui.media.describe import clock
from vlmtui.plain.parts import Parts, RunCommand
from vlmtui.session.answer_places import places_of
from vlmtui.session.lint import lint_model
from vlmtui.session.media_facts import media_facts, media_items
from vlmtui.session.past_prompt import (
    exchange_numbered,
    family_of,
    made_here,
    prompt_again,
    report_of,
    request_again,
)
from vlmtui.session.prompt_report import (
    PARTS,
    Part,
    PromptReport,
    answer_tokens,
    part_file,
    part_text,
    prompt_pieces,
    rendered_again,
    with_logprobs,
)
from vlmtui.text import is_number, one_line, quoted

_TOKENS = 400
"""Most tokens that are written; the file has all."""
_WORDS = 12


class InspectionCommands:
    """Inspects a message: the last one, or the one with a number."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @property
    def commands(self) -> Mapping[str, RunCommand]:
        return {
            "inspect": self.inspect,
            "lint": self.check_template,
            "where": self.show_places,
            "locate": self.write_location_prompt,
            "seen": self.show_model_view,
            "heat": self.show_occlusion,
        }

    async def inspect(self, argument: str) -> None:
        """Show what the model was given: `/inspect`, `/inspect 2`, `/inspect 2 tokens`, `/inspect save prompt`."""
        words = argument.split()
        part = cast(Part, next((word for word in words if word in PARTS), "prompt"))
        number = next((word for word in words if is_number(word)), "")
        unknown = [word for word in words if word not in (*PARTS, "save", "again", "logprobs", number)]
        if unknown:
            hint = (
                f"Parts: {', '.join(PARTS)}; `save` writes one to a file, `again` renders it now, `logprobs` repeats."
            )
            raise bad_input(f"There is no part {one_line(unknown[0])} to inspect.", hint=hint)
        report = await self._report(number, words)
        if "save" in words:
            data = part_text(report, part).encode("utf-8", "replace")
            path = await asyncio.to_thread(write_numbered, Path.cwd(), part_file(report, part), data)
            self._parts.output.tell(f"Saved {one_line(str(path))}")
            return
        self._parts.output.line(f"== {report.title}: {part} ==")
        lines = await asyncio.to_thread(lambda: list(_part_lines(report, part)))
        self._parts.output.lines(lines or ["Nothing is known of it."])
        if len(words) == len([word for word in words if word == number]):
            self._parts.output.tell(f"Other parts: /inspect {number or 'NUMBER'} {' | '.join(PARTS[1:])}")

    async def check_template(self, argument: str) -> None:
        """Check the chat template of the loaded model."""
        output, reader = self._parts.output, self._parts.services.reader
        model = self._parts.controller.require_model()
        if reader is None:
            raise bad_input("Nothing here reads a model's files.")
        check = partial(lint_model, model, reader, trust_remote_code=model.spec.trust_remote_code)
        report = await asyncio.to_thread(check)
        for found in report.findings:
            place = f"line {found.line}: " if found.line is not None else ""
            output.tell(f"{place}{one_line(found.message)}", severity="warning")
            output.lines(f"  {one_line(text)}" for text in (found.why, found.mend) if text)
        count = len(report.findings)
        output.tell(f"{count or 'No'} finding{'s' * (count > 1)} · {one_line(report.scope)}")

    async def show_places(self, argument: str) -> None:
        """List the boxes and points that an answer names."""
        parts, output = self._parts, self._parts.output
        known = await report_of(parts.chat, exchange_numbered(parts.chat, argument), parts.controller.info)
        places = places_of(known, family_of(known, parts.controller.model, parts.services.registry))
        output.tell(f"On {one_line(places.image.name)}, {places.image.width} × {places.image.height} pixels.")
        if places.marks or not places.ranges:
            output.tell(f"Read as {places.convention}; {places.inside} of {len(places.marks)} lie in the picture.")
        for number, one in enumerate(places.placed, 1):
            corners = ", ".join(f"{value:.0f}" for value in one.xyxy)
            label = one_line(one.mark.label) or one.mark.kind
            medium, second = places.medium_of(number - 1)
            place = f" at {clock(second)}" if medium.modality == "video" else ""
            if medium is not places.image:
                place = f" on {one_line(medium.name)}"
            clipped = " (clipped)" if one.is_clipped else ""
            output.line(f"  {number} {label}: {one.mark.kind} {corners}{place}{clipped}")
        for span in places.ranges:
            output.line(f"  {clock(span.start_s)} to {clock(span.end_s)}: {one_line(span.label)}")
        output.lines(f"  unreadable: {quoted(places.answer[start:end])}" for start, end in places.unreadable)

    async def write_location_prompt(self, argument: str) -> None:
        """Write the model's prompt for the place of something into the draft."""
        model = self._parts.controller.require_model()
        grounding = model.family.grounding
        known = grounding.prompt_for(argument or "each object") if grounding is not None else ""
        if not known:
            raise bad_input(f"No record says how {one_line(model.family.title)} is asked for places.")
        self._parts.chat.draft.text += known
        self._parts.draft_changed()

    async def show_model_view(self, argument: str) -> None:
        """Say what the model's processor made of each attachment."""
        from vlmtui.session.model_view import ask_model_view  # NumPy takes a while to import

        parts, output = self._parts, self._parts.output
        engine = parts.controller.require_engine()
        _, prompt = await prompt_again(parts.chat, exchange_numbered(parts.chat, argument), parts.controller)
        views = await ask_model_view(engine, prompt, parts.services.paths.seen)
        for view in views:
            item = view.attachment
            output.line(f"{one_line(item.name)}: sent as {item.width} × {item.height} pixels")
            for number, one in enumerate(view.medium.pictures, 1):
                place = f", {one.length:,} tokens from {one.offset:,}" if one.offset is not None else ""
                output.line(f"  seen {number}: {one.width} × {one.height} pixels{place} · {one_line(one.path)}")
            if view.medium.left_out:
                output.line(f"  … and {view.medium.left_out:,} more")

    async def show_occlusion(self, argument: str) -> None:
        """Measure which part of the picture an answer depends on."""
        from vlmtui.session.occlusion import occlusion_map, occlusion_plan

        parts, output = self._parts, self._parts.output
        engine = parts.controller.require_engine()
        known, prompt = await prompt_again(parts.chat, exchange_numbered(parts.chat, argument), parts.controller)
        plan = occlusion_plan(known, prompt, engine)
        output.tell(f"{plan.cost} Ctrl+C stops it.")
        measured = await occlusion_map(
            engine, plan, parts.services.paths.seen, _every_tenth(output.tell, plan.requests)
        )
        box, drop = measured.hottest()
        output.tell(f"The whole answer depends most on {_box(box)}: {drop:.2f} nats less likely without it.")
        for word, tokens in plan.words()[:_WORDS]:
            box, drop = measured.hottest(tokens)
            output.line(f"  {quoted(word)}: {_box(box)}, {drop:.2f} nats")
        output.line("Drop by part of the picture, in nats, from the top left:")
        output.lines("  " + " ".join(f"{cell:6.2f}" for cell in row) for row in measured.heat())

    async def _report(self, number: str, words: list[str]) -> PromptReport:
        parts = self._parts
        exchange = exchange_numbered(parts.chat, number)
        known = await report_of(parts.chat, exchange, parts.controller.info)
        if "again" in words:
            family = parts.controller.require_model().family
            request = request_again(parts.chat, exchange, known, family)
            known = await rendered_again(parts.controller.require_engine(), known, request)
        if "logprobs" in words:
            known = await with_logprobs(parts.controller.require_engine(), known)
        return made_here(known, family_of(known, parts.controller.model, parts.services.registry))


def _part_lines(report: PromptReport, part: Part) -> Iterator[str]:
    """Yield a part for reading. Hostile: the terminal makes control characters visible."""
    match part:
        case "prompt" if report.made_here and not report.text:
            yield "The engine tells no prompt. The family's record makes this of the messages:"
            yield report.made_here
        case "tokens":
            pieces = prompt_pieces(report)
            for piece in pieces[:_TOKENS]:
                yield f"  {quoted(piece.text)} {piece.ids[0]}" + (
                    f" × {len(piece.ids):,}" if len(piece.ids) > 1 else ""
                )
            if len(pieces) > _TOKENS:
                yield f"  … and {len(pieces) - _TOKENS:,} more; /inspect save tokens writes all."
        case "media":
            for item in media_items(report):
                yield f"{item.number}"
                yield from (f"  {name}: {one_line(value)}" for name, value in media_facts(item))
        case "answer":
            for token in answer_tokens(report):
                share = f" {token.probability:.1%}" if token.probability is not None else ""
                others = ", ".join(f"{quoted(text)} {one:.1%}" for text, _, one in token.alternatives)
                yield f"  {quoted(token.text)} {token.id}{share}" + (f" ({others})" if others else "")
        case _:
            text = part_text(report, part)
            if text:
                yield text


def _every_tenth(tell: Callable[[str], object], total: int) -> Callable[[int], None]:
    """Return what tells the progress of `total` steps in about ten lines."""
    every = max(1, total // 10)

    def progressed(done: int) -> None:
        if done % every == 0 or done == total:
            tell(f"  {done:,} of {total:,} scored")

    return progressed


def _box(box: tuple[int, int, int, int]) -> str:
    left, top, right, bottom = box
    return f"x {left} to {right}, y {top} to {bottom}"
