"""The raw prompt's editor, with its placeholders' attachments and its findings."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static, TextArea

from vlmtui.inspection.findings import Finding
from vlmtui.inspection.folded_prompt import PlaceholderSlot, chip, placeholders, special_pattern
from vlmtui.session.comparison import CompareController
from vlmtui.text import one_line
from vlmtui.ui.compare.findings_list import FindingsList, line_notes
from vlmtui.ui.compare.raw_editor import RawEditor, marks_of

_CHECK_AFTER_S = 0.25
"""Seconds without typing before the text is checked."""
_LEGEND_MAX = 4


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

    @dataclass
    class Checked(Message):
        """The text was checked."""

        text: str
        findings: Sequence[Finding]
        placed: Sequence[PlaceholderSlot]

    class NoFix(Message):
        """The finding has no fix."""

    def __init__(self, controller: CompareController, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._controller = controller
        self._special = special_pattern(controller.special_tokens())
        self._timer: Timer | None = None
        self._has_text = False
        self.sought = ""
        """What was looked for last."""

    def compose(self) -> ComposeResult:
        yield RawEditor()
        yield Static(classes="legend", markup=False)
        yield FindingsList()

    @property
    def editor(self) -> RawEditor:
        return self.query_one(RawEditor)

    @property
    def findings(self) -> Sequence[Finding]:
        """The findings of the last check."""
        return self.query_one(FindingsList).findings

    def on_mount(self) -> None:
        self.editor.keep_whole(self._special)

    def put(self, text: str) -> None:
        """Replace the editor's text; undo restores the previous one."""
        self._has_text = True
        self.editor.fill(text)
        self._changed()

    def visit(self) -> None:
        """Move the cursor to the next finding."""
        finding = self.query_one(FindingsList).visit(1)
        if finding is not None:
            self.editor.go_to(finding.start, finding.end)
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
        finding = self.query_one(FindingsList).to_fix()
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

    @on(Checked)
    def _checked(self, event: Checked) -> None:
        if event.text == self.editor.text:
            self.query_one(FindingsList).show(event.text, event.findings)
            self.editor.annotate(line_notes(event.text, event.findings))
            self._show_places(event.text, event.placed)

    @on(FindingsList.Visited)
    def _visited(self, event: FindingsList.Visited) -> None:
        self.editor.go_to(event.finding.start, event.finding.end)

    @on(FindingsList.FixChosen)
    def _fix_chosen(self, event: FindingsList.FixChosen) -> None:
        self._mend(event.finding)

    def _mend(self, finding: Finding) -> None:
        if finding.fix is None:
            self.post_message(self.NoFix())
            return
        self.editor.replace_span(finding.fix.start, finding.fix.end, finding.fix.replacement)
        # The other findings' offsets are outdated now.
        self.query_one(FindingsList).show(self.editor.text, ())
        self.editor.annotate({})
        self.editor.focus()

    def _show_places(self, text: str, placed: Sequence[PlaceholderSlot], *, is_final: bool = True) -> None:
        """Show what the placeholders stand for. `is_final`: False while placeholders are missing, and the check has not
        found which."""
        self.editor.mark(marks_of(text, self._special, placed))
        lines = [self._legend(text, one, is_final=is_final) for one in placed[:_LEGEND_MAX]]
        if len(placed) > _LEGEND_MAX:
            lines[-1] = Content.styled(f"… and {len(placed) - _LEGEND_MAX + 1} more placeholders", "$muted")
        legend = self.query_one(".legend", Static)
        legend.update(Content("\n").join(lines))
        legend.display = bool(lines)

    def _legend(self, text: str, placed: PlaceholderSlot, *, is_final: bool) -> Content:
        shown = one_line(text[placed.start : placed.end])
        label = one_line(chip(placed.attachment, self._controller.input.attachments)) if is_final else "…"
        return Content.assemble((shown, "bold $accent on $panel"), f" = {label}")

    @work(group="check", exclusive=True)
    async def _check(self) -> None:
        text, controller = self.editor.text, self._controller
        findings = await asyncio.to_thread(controller.check, text)
        self.post_message(self.Checked(text, findings, await asyncio.to_thread(controller.placeholders, text)))
