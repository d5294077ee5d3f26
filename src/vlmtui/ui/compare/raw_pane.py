"""The raw prompt's editor, with its placeholders' attachments and its findings."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from vlmtui.inspection.prompt_turns import PlaceholderSlot, chip, placeholders, special_pattern
from vlmtui.inspection.raw_prompt_check import Finding
from vlmtui.session.comparison import CompareController
from vlmtui.text import one_line
from vlmtui.ui.compare.raw_editor import LineNote, RawEditor, marks_of

_CHECK_AFTER_S = 0.25
"""Seconds without typing before the text is checked."""
_LEGEND_MAX = 4


class FindingsList(OptionList):
    """The findings below the editor. Hidden without any."""

    DEFAULT_CSS = """
    FindingsList {
        display: none;
        height: auto;
        max-height: 6;
        border: none;
        padding: 0;
        background: $background;
        scrollbar-size-vertical: 1;
        &:focus { border: none; }
        & > .option-list--option { padding: 0 1; }
    }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.findings: list[Finding] = []
        self.current = -1
        """Index of the finding visited last; -1: none."""

    def show(self, text: str, findings: Sequence[Finding]) -> None:
        """Show the findings of `text`. The visited one stays visited if it is still there."""
        visited = self.findings[self.current] if self.current >= 0 else None
        self.findings = list(findings)
        with self.prevent(OptionList.OptionHighlighted):
            self.clear_options()
            self.add_options([Option(_line(text, finding)) for finding in findings])
            self.current = next((at for at, one in enumerate(findings) if visited and _same(one, visited)), -1)
            self.highlighted = self.current if self.current >= 0 else None
        self.display = bool(findings)

    def visit(self, number: int) -> Finding | None:
        """Visit a finding; None if there is none with this number, from 0."""
        if not 0 <= number < len(self.findings):
            return None
        self.current = number
        with self.prevent(OptionList.OptionHighlighted):
            self.highlighted = number
        return self.findings[number]

    def to_fix(self) -> Finding | None:
        """Return the visited finding, or else the first with a fix."""
        if self.current >= 0:
            return self.findings[self.current]
        return next((finding for finding in self.findings if finding.fix), None)


class RawPane(Vertical):
    """Edits the controller's draft. Ignores edits until `put` sets the first text."""

    DEFAULT_CSS = """
    RawPane {
        height: 1fr;
        & > .legend { display: none; height: auto; padding: 0 1; color: $muted; }
    }
    """

    class Edited(Message):
        """The draft's text changed."""

    class Checked(Message):
        """The text was checked."""

    def __init__(self, controller: CompareController, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._controller = controller
        self.editor = RawEditor()
        self._legend = Static(classes="legend", markup=False)
        self._listed = FindingsList()
        self._special = special_pattern(controller.special_tokens())
        self._timer: Timer | None = None
        self._has_text = False
        self.sought = ""
        """The text looked for last."""

    def compose(self) -> ComposeResult:
        yield self.editor
        yield self._legend
        yield self._listed

    @property
    def findings(self) -> Sequence[Finding]:
        """The findings of the last check."""
        return self._listed.findings

    def on_mount(self) -> None:
        self.editor.keep_whole(self._special)

    def put(self, text: str) -> None:
        """Replace the editor's text; undo restores the previous one."""
        self._has_text = True
        self.editor.fill(text)
        self._changed()

    def visit(self) -> None:
        """Move the cursor to the next finding, after the last to the first."""
        finding = self._listed.visit(self._listed.current + 1) or self._listed.visit(0)
        if finding is not None:
            self._go_to(finding)
            self.editor.focus()

    def find(self, text: str) -> bool:
        """Select the next place of this text, from the cursor on; False where there is none."""
        self.sought = text
        pattern, written = re.compile(re.escape(text), re.IGNORECASE), self.editor.text
        found = pattern.search(written, self.editor.caret) or pattern.search(written)
        if found is not None:
            self.editor.go_to(found.start(), found.end())
        return found is not None

    def fix(self) -> None:
        """Apply the fix of the visited finding, or of the first one with a fix."""
        finding = self._listed.to_fix()
        if finding is not None:
            self._mend(finding)

    @on(TextArea.Changed)
    def _changed(self, event: TextArea.Changed | None = None) -> None:
        """Copy the text to the draft; check it once nothing has changed for a while."""
        if event is not None:
            event.stop()
        if not self._has_text:
            return
        text = self._controller.draft.text = self.editor.text
        given = self._controller.raw_attachments()
        placed = placeholders(text, self._controller.input.family, given)
        self._show_places(text, placed, is_final=sum(one.attachment is not None for one in placed) == len(given))
        self.post_message(self.Edited())
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(_CHECK_AFTER_S, self._check)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        finding = self._listed.visit(event.option_index) if self._listed.has_focus else None
        if finding is not None:
            self._go_to(finding)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        finding = self._listed.visit(event.option_index)
        if finding is not None:
            self._mend(finding)

    def _go_to(self, finding: Finding) -> None:
        self.editor.go_to(finding.start, finding.end)

    def _mend(self, finding: Finding) -> None:
        if finding.fix is None:
            self.notify("This finding has no fix: edit the text.", timeout=6, markup=False)
            return
        self.editor.replace_span(finding.fix.start, finding.fix.end, finding.fix.replacement)
        # The other findings' offsets are outdated now.
        self._listed.show(self.editor.text, ())
        self.editor.annotate({})
        self.editor.focus()

    def _show_places(self, text: str, placed: Sequence[PlaceholderSlot], *, is_final: bool = True) -> None:
        """Show what the placeholders stand for. `is_final`: False while placeholders are missing, and the check has not
        found which."""
        self.editor.mark(marks_of(text, self._special, placed))
        lines = [self._stands_for(text, one, is_final=is_final) for one in placed[:_LEGEND_MAX]]
        if len(placed) > _LEGEND_MAX:
            lines[-1] = Content.styled(f"… and {len(placed) - _LEGEND_MAX + 1} more placeholders", "$muted")
        self._legend.update(Content("\n").join(lines))
        self._legend.display = bool(lines)

    def _stands_for(self, text: str, placed: PlaceholderSlot, *, is_final: bool) -> Content:
        shown = one_line(text[placed.start : placed.end])
        label = one_line(chip(placed.attachment, self._controller.input.attachments)) if is_final else "…"
        return Content.assemble((shown, "bold $accent on $panel"), f" = {label}")

    @work(group="check", exclusive=True)
    async def _check(self) -> None:
        text, controller = self.editor.text, self._controller
        findings = await asyncio.to_thread(controller.check, text)
        placed = await asyncio.to_thread(controller.placeholders, text)
        if text == self.editor.text:
            self._listed.show(text, findings)
            self.editor.annotate(_line_notes(text, findings))
            self._show_places(text, placed)
            self.post_message(self.Checked())


def _line(text: str, finding: Finding) -> Content:
    row = text.count("\n", 0, finding.start) + 1
    sign, colour = ("✗", "$text-error") if finding.blocks else ("!", "$text-warning")
    fix = f"  → {one_line(finding.fix.label)}" if finding.fix else ""
    return Content.assemble(
        (f"{sign} ", f"bold {colour}"),
        (f"line {row}: ", "$muted"),
        one_line(finding.message),
        (fix, "$text-accent"),
    )


def _line_notes(text: str, findings: Sequence[Finding]) -> dict[int, LineNote]:
    """Return what is said beside each line, by its number from 0: its first finding, one that blocks before others,
    and how many there are more."""
    by_line: dict[int, list[Finding]] = {}
    for finding in findings:
        by_line.setdefault(text.count("\n", 0, finding.start), []).append(finding)
    notes: dict[int, LineNote] = {}
    for line, found in by_line.items():
        first = next((finding for finding in found if finding.blocks), found[0])
        more = f" (+{len(found) - 1})" if len(found) > 1 else ""
        notes[line] = LineNote(f"{one_line(first.message)}{more}", first.blocks)
    return notes


def _same(one: Finding, other: Finding) -> bool:
    return (one.kind, one.message) == (other.kind, other.message)
