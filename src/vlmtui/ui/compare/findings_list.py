"""The list of findings below the raw prompt's editor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import on
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from vlmtui.inspection.findings import Finding
from vlmtui.text import one_line
from vlmtui.ui.compare.raw_editor import LineNote


class FindingsList(OptionList):
    """Hidden without findings. Highlighting a finding shows its place, Enter applies its fix."""

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

    @dataclass
    class Visited(Message):
        """The user highlighted this finding."""

        finding: Finding

    @dataclass
    class FixChosen(Message):
        """Apply this finding's fix."""

        finding: Finding

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
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

    def visit(self, step: int) -> Finding | None:
        """Go to the next or previous finding, wrapping around; None without findings."""
        if not self.findings:
            return None
        self.current = (max(self.current, -1 if step > 0 else 0) + step) % len(self.findings)
        with self.prevent(OptionList.OptionHighlighted):
            self.highlighted = self.current
        return self.findings[self.current]

    def to_fix(self) -> Finding | None:
        """Return the visited finding, or else the first with a fix."""
        if self.current >= 0:
            return self.findings[self.current]
        return next((finding for finding in self.findings if finding.fix), None)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if self.has_focus and event.option_index < len(self.findings):
            self.current = event.option_index
            self.post_message(self.Visited(self.findings[self.current]))

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.current = event.option_index
        self.post_message(self.FixChosen(self.findings[self.current]))


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


def line_notes(text: str, findings: Sequence[Finding]) -> dict[int, LineNote]:
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


def warning_of(findings: Sequence[Finding]) -> str:
    """Return the note that a prompt was sent with these findings; empty without any."""
    if not findings:
        return ""
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"! Sent with a warning: {one_line(findings[0].message)}{more}"
