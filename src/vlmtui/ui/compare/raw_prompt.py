"""The raw prompt of a comparison: its editor, the attachments of its placeholders, and findings about it."""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate

import msgspec
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option
from textual.widgets.text_area import Document

from vlmtui.inspection.prompt_turns import PlaceholderSlot, chip, special_pattern
from vlmtui.inspection.raw_prompt_check import Finding
from vlmtui.session.comparison import PromptComparison
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.widgets.long_lines import UndoArea

_CONTROL = {code: 0x2400 + code for code in range(0x20) if code != 0x09}
_ONE_CELL = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_CHECK_AFTER_S = 0.25
"""Seconds without typing before the text is checked."""
_LEGEND_MAX = 4


class Mark(msgspec.Struct, frozen=True):
    """A highlighted range of the text, in characters."""

    start: int
    end: int
    kind: str
    """`special`, `placeholder`, `surplus` (a placeholder without an attachment) or `change`."""


class RawEditor(UndoArea):
    """Highlights special tokens and placeholders. Enter breaks the line; Tab moves the focus. The cursor stays in
    view, even when the findings below take rows away."""

    BINDINGS = bindings("editor")
    DEFAULT_CSS = """
    RawEditor {
        height: 1fr;
        min-height: 3;
        border: none;
        padding: 0 1;
        background: $surface;
        scrollbar-size-vertical: 1;
        &:focus { border: none; }
        .text-area--placeholder { color: $faint; }
    }
    """

    class Resized(Message):
        """The editor has another size."""

    def __init__(self) -> None:
        super().__init__(
            compact=True,
            soft_wrap=True,
            tab_behavior="focus",
            show_line_numbers=True,
            highlight_cursor_line=False,
            placeholder="…",
        )
        self.set_reactive(TextArea.cursor_blink, False)
        self._marks: dict[int, list[tuple[int, int, str]]] = {}
        """Start, end and kind of the marks, by line."""
        self._placed: Sequence[Mark] = ()
        self._barred: AbstractSet[int] = frozenset()

    def on_resize(self) -> None:
        self.call_after_refresh(self.scroll_cursor_visible)
        self.post_message(self.Resized())

    async def on_key(self, event: events.Key) -> None:
        # Textual calls the text area's own handler after this one, unless prevented.
        if event.key.startswith("alt+"):
            # The event carries a letter, which the text area would type before bindings are checked.
            event.prevent_default()

    def mark(self, marks: Sequence[Mark]) -> None:
        """Highlight ranges of the current text, and no others."""
        self._placed = marks
        self._show_marks(marks)

    def mark_changes(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Highlight also the ranges that the other prompt does not have."""
        self._show_marks([*self._placed, *(Mark(start, end, "change") for start, end in ranges if end > start)])

    def _show_marks(self, marks: Sequence[Mark]) -> None:
        starts = self.line_starts()
        by_line: dict[int, list[tuple[int, int, str]]] = {}
        for mark in marks:
            line = bisect_right(starts, mark.start) - 1
            while line < len(starts) - 1 and starts[line] < mark.end:
                first, last = max(mark.start, starts[line]), min(mark.end, starts[line + 1])
                by_line.setdefault(line, []).append((first - starts[line], last - starts[line], mark.kind))
                line += 1
        self._marks = by_line
        self.notify_style_update()  # draw the lines again
        self.refresh()

    def get_line(self, line_index: int) -> Text:
        # Keep the number of characters, so that the cursor is at the right place; Rich would drop some.
        plain = _ONE_CELL.sub("\ufffd", self.document.get_line(line_index).translate(_CONTROL))
        line = Text(plain, end="", no_wrap=True)
        for start, end, kind in self._marks.get(line_index, ()):
            line.stylize(self._style(kind), start, end)
        return line

    def bar(self, rows: AbstractSet[int]) -> None:
        """Draw a bar beside the line numbers at these wrapped rows."""
        if rows != self._barred:
            self._barred = rows
            self.refresh()

    def render_line(self, y: int) -> Strip:
        strip, at = super().render_line(y), self.gutter_width - 2
        if at < 0 or y + self.scroll_offset.y not in self._barred:
            return strip
        ground = next((part.style for part in strip.crop(at, at + 1) if part.style), Style())
        style = Style(color=self.app.theme_variables.get("warning"), bgcolor=ground.bgcolor)
        return Strip.join([strip.crop(0, at), Strip([Segment("▌", style)]), strip.crop(at + 1)])

    def go_to(self, start: int, end: int) -> None:
        first, last = self._location_of(start), self._location_of(end)
        self.move_cursor(first)
        if end > start:
            self.move_cursor(last, select=True)
        self.scroll_cursor_visible()

    def replace_span(self, start: int, end: int, text: str) -> None:
        """Replace the text between two offsets; the cursor moves behind it. Can be undone."""
        self.replace(text, self._location_of(start), self._location_of(end), maintain_selection_offset=False)

    def fill(self, text: str) -> None:
        """Replace the whole text, so that undo restores the previous text."""
        if text != self.text:
            self.replace(text, (0, 0), self.document.end, maintain_selection_offset=False)
            self.move_cursor((0, 0))
            self.scroll_to(0, 0, animate=False)

    def line_starts(self) -> list[int]:
        """Return the offset of each line, and the offset after the last line."""
        assert isinstance(self.document, Document)
        gap = len(self.document.newline)
        return [0, *accumulate(len(line) + gap for line in self.document.lines)]

    def row_of(self, index: int, starts: Sequence[int]) -> int:
        """Return the wrapped row that shows the offset `index`. `starts`: the result of `line_starts`."""
        line = min(bisect_right(starts, index), len(starts) - 1) - 1
        return self.wrapped_document.location_to_offset((line, index - starts[line])).y

    def _location_of(self, index: int) -> tuple[int, int]:
        assert isinstance(self.document, Document)
        return self.document.get_location_from_index(index)

    def _style(self, kind: str) -> Style:
        colours = self.app.theme_variables
        match kind:
            case "special":
                return Style(color=colours.get("secondary"), bold=True)
            case "placeholder":
                return Style(color=colours.get("accent"), bgcolor=colours.get("panel"), bold=True)
            case "surplus":
                return Style(color=colours.get("error"), bold=True, strike=True)
            case _:
                return Style(color=colours.get("success"), bold=True, underline=True)


def marks_of(text: str, special: re.Pattern[str] | None, placed: Sequence[PlaceholderSlot]) -> list[Mark]:
    """Return marks for all placeholders, and for special tokens that are not part of a placeholder."""
    taken = [(one.start, one.end) for one in placed]
    marks = [
        Mark(match.start(), match.end(), "special")
        for match in (special.finditer(text) if special else ())
        if not any(start < match.end() and match.start() < end for start, end in taken)
    ]
    marks += [Mark(one.start, one.end, "placeholder" if one.attachment else "surplus") for one in placed]
    return marks


class FindingsList(OptionList):
    """The list below the editor of what may be wrong with the raw prompt. Hidden if there are no findings."""

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

    def show(self, text: str, findings: Sequence[Finding]) -> None:
        """List the findings about `text`. If the finding that the user visited last is among them, it stays the current
        one."""
        visited = self.current
        self.findings = list(findings)
        with self.prevent(OptionList.OptionHighlighted):
            self.clear_options()
            self.add_options([Option(_line(text, finding)) for finding in findings])
            self.highlighted = next((at for at, one in enumerate(findings) if visited and _same(one, visited)), None)
        self.display = bool(findings)

    @property
    def current(self) -> Finding | None:
        """The finding visited last."""
        return self.findings[self.highlighted] if self.highlighted is not None else None


class RawPane(Vertical):
    """Edits the raw prompt of a comparison. Edits count only after `put` has set the first text."""

    DEFAULT_CSS = """
    RawPane {
        height: 1fr;
        & > .legend { display: none; height: auto; padding: 0 1; color: $muted; }
        & > .refusal { display: none; height: auto; padding: 0 1; background: $error; color: $text; }
    }
    """

    class Edited(Message):
        """The draft's text changed."""

    class Checked(Message):
        """The text was checked."""

    def __init__(self, comparison: PromptComparison, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._comparison = comparison
        self.editor = RawEditor()
        self._legend = Static(classes="legend", markup=False)
        self._refusal = Static(classes="refusal", markup=False)
        self._listed = FindingsList()
        self._special = special_pattern(comparison.special_tokens())
        self._timer: Timer | None = None
        self._has_text = False

    def compose(self) -> ComposeResult:
        yield self.editor
        yield self._legend
        yield self._refusal
        yield self._listed

    @property
    def rows(self) -> int:
        """The rows that the text needs, with all that is below it."""
        below = (one.outer_size.height for one in (self._legend, self._listed) if one.display)
        return self.editor.wrapped_document.height + sum(below)

    @property
    def findings(self) -> Sequence[Finding]:
        return self._listed.findings

    def put(self, text: str) -> None:
        """Replace the editor's text; undo restores the previous one."""
        self._has_text = True
        self.editor.fill(text)
        self._changed()

    def refuse(self, why: str) -> None:
        """Show above the findings why the prompt was not sent, until it changes."""
        self._refusal.update(why)
        self._refusal.display = True

    def visit(self) -> None:
        """Move the cursor to the next finding; after the last, to the first."""
        if self.findings:
            at = self._listed.highlighted
            self._listed.highlighted = 0 if at is None else (at + 1) % len(self.findings)
            self._go_to_current()
            self.editor.focus()

    def fix(self) -> None:
        """Apply the fix of the current finding, or else of the first finding with a fix."""
        finding = self._listed.current or next((finding for finding in self.findings if finding.fix), None)
        if finding is not None:
            self._apply_fix(finding)

    @on(TextArea.Changed)
    def _changed(self, event: TextArea.Changed | None = None) -> None:
        """Copy the text to the draft; check it once nothing has changed for a while."""
        if event is not None:
            event.stop()
        if not self._has_text:
            return
        self._refusal.display = False
        text = self._comparison.draft.text = self.editor.text
        self._show_places(text, self._comparison.placeholders(text))
        self.post_message(self.Edited())
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(_CHECK_AFTER_S, self._check)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if self._listed.has_focus:
            self._go_to_current()

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.fix()

    def _go_to_current(self) -> None:
        if (finding := self._listed.current) is not None:
            self.editor.go_to(finding.start, finding.end)

    def _apply_fix(self, finding: Finding) -> None:
        if finding.fix is None:
            self.refuse("This finding has no fix: edit the text.")
            return
        self.editor.replace_span(finding.fix.start, finding.fix.end, finding.fix.replacement)
        # The other findings' offsets are outdated now.
        self._listed.show(self.editor.text, ())
        self.editor.focus()

    def _show_places(self, text: str, placed: Sequence[PlaceholderSlot]) -> None:
        """Highlight the placeholders, and list their attachments below the editor."""
        self.editor.mark(marks_of(text, self._special, placed))
        lines = [self._legend_line(text, one) for one in placed[:_LEGEND_MAX]]
        if len(placed) > _LEGEND_MAX:
            lines[-1] = Content.styled(f"… and {len(placed) - _LEGEND_MAX + 1} more placeholders", "$muted")
        self._legend.update(Content("\n").join(lines))
        self._legend.display = bool(lines)

    def _legend_line(self, text: str, placed: PlaceholderSlot) -> Content:
        shown = one_line(text[placed.start : placed.end])
        label = one_line(chip(placed.attachment, self._comparison.attachments))
        return Content.assemble((shown, "bold $accent on $panel"), f" = {label}")

    @work(group="check", exclusive=True)
    async def _check(self) -> None:
        text, comparison = self.editor.text, self._comparison
        findings = await asyncio.to_thread(comparison.check, text)
        if text == self.editor.text:
            self._listed.show(text, findings)
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


def _same(one: Finding, other: Finding) -> bool:
    return (one.kind, one.message) == (other.kind, other.message)
