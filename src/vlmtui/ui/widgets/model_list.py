"""The list of models, in columns that follow the width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from vlmtui.domain.engine import LoadSpec
from vlmtui.engine.fit import Fit, judge
from vlmtui.engine.machine import Machine
from vlmtui.ui.choices import Choice
from vlmtui.ui.text import one_line

_TAKES, _SIZE, _CONTEXT, _FITS, _STATE = 17, 5, 7, 9, 7
_GAP = 2
_MARK = "▌"
_FIXED = _TAKES + _SIZE + _CONTEXT + _FITS + _STATE + 5 * _GAP
_MIN_TITLE = 12
_TITLE = 30
"""A title's width where there is room for the model's name beside it."""
_MIN_NAME = 24
_FIT_STYLES = {
    Fit.YES: "$text-success",
    Fit.SEVERAL: "$text-warning",
    Fit.NO: "$text-error",
    Fit.UNKNOWN: "$muted",
}
_FIT_MARKS = {Fit.YES: "✓ fits", Fit.SEVERAL: "✓ n GPUs", Fit.NO: "✗ too big", Fit.UNKNOWN: "?"}


def size_text(parameters_b: float | None) -> str:
    """Billions of parameters for people: `7.6B`, `3M`, `?`."""
    if parameters_b is None:
        return "?"
    if parameters_b < 0.1:
        return f"{parameters_b * 1000:.3g}M"
    return f"{parameters_b:.3g}B"


def context_text(tokens: int | None) -> str:
    """Tokens of context for people: `4k`, `128k`, `?`."""
    if tokens is None:
        return "?"
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)


def takes_text(choice: Choice) -> str:
    """What a model takes: `image ×8 video ×2`."""
    return " ".join(f"{modality} ×{takes.max_items}" for modality, takes in choice.family.takes.items())


def row(choice: Choice, machine: Machine | None, width: int, *, marked: bool = False) -> Content:
    """One line of the list, a mark and `width` cells wide. The mark tells the highlight where colours cannot."""
    title_width, name_width = _first_columns(width)
    name = f"{' ' * _GAP}{_cell(one_line(choice.model.spec.name), name_width)}" if name_width else ""
    fits = judge(choice.model, machine).fit if machine else Fit.UNKNOWN
    gap = " " * _GAP
    line = Content.assemble(
        (_MARK if marked else " ", "$text-accent"),
        (_cell(one_line(choice.title), title_width), "bold" if choice.current else ""),
        (name, "$muted"),
        gap,
        (_cell(takes_text(choice), _TAKES), "$muted"),
        gap,
        size_text(choice.parameters_b).rjust(_SIZE),
        gap,
        (context_text(choice.context).rjust(_CONTEXT), "$muted"),
        gap,
        (_cell(_FIT_MARKS[fits], _FITS), _FIT_STYLES[fits]),
        gap,
        (_cell(choice.state, _STATE), _state_style(choice)),
    )
    return line.truncate(max(1, width + 1), ellipsis=True)


def _state_style(choice: Choice) -> str:
    if choice.running or choice.current:
        return "$text-accent"
    return "$text-error" if choice.closed else "$muted"


def header(width: int) -> Content:
    """The names of the columns, above `row`."""
    gap = " " * _GAP
    title, name = _first_columns(width)
    cells = (
        "Model".ljust(title),
        *(["Name".ljust(name)] if name else []),
        "Takes".ljust(_TAKES),
        "Size".rjust(_SIZE),
        "Context".rjust(_CONTEXT),
        "Memory".ljust(_FITS),
        "State",
    )
    return Content.styled(gap.join(cells), "$muted")


def _first_columns(width: int) -> tuple[int, int]:
    """The widths of the title and of the model's name; 0: no room for the name."""
    room = max(_MIN_TITLE, width - _FIXED)
    if room < _TITLE + _GAP + _MIN_NAME:
        return room, 0
    return _TITLE, room - _TITLE - _GAP


def _cell(text: str, width: int) -> str:
    content = Content(text)
    return content.truncate(width, ellipsis=True).plain + " " * max(0, width - content.cell_length)


class ModelHeader(Static):
    """The columns' names; as wide as the list's rows."""

    DEFAULT_CSS = "ModelHeader { height: 1; padding: 0 2 0 1; text-wrap: nowrap; }"

    def on_resize(self, event: events.Resize) -> None:
        self.update(header(event.size.width - 3))


class ModelList(OptionList, can_focus=False):
    """The models on offer. The filter line keeps the focus; the screen moves the highlight."""

    DEFAULT_CSS = """
    ModelList {
        height: 1fr;
        border: none;
        padding: 0;
        background: $background;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        text-wrap: nowrap;
        & > .option-list--option { padding: 0 1 0 0; }
        & > .option-list--option-highlighted {
            background: $block-cursor-background;
            color: $block-cursor-foreground;
        }
    }
    """

    @dataclass
    class Highlighted(Message):
        """Another model is highlighted; None when there is none."""

        choice: Choice | None

    @dataclass
    class Chosen(Message):
        """A model is to be loaded."""

        choice: Choice

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.rows: list[Choice] = []
        self.machine: Machine | None = None
        self._marked: int | None = None
        self._width = 0
        """Cells a row has; 0 before the first layout."""

    @property
    def chosen(self) -> Choice | None:
        """The highlighted model."""
        return self.rows[self.highlighted] if self.highlighted is not None and self.rows else None

    def show(self, rows: Sequence[Choice], machine: Machine | None, *, prefer: LoadSpec | None = None) -> None:
        """Show these; the highlight stays on the model it is on, or goes to the preferred one, or to the first."""
        wanted = self.chosen.model.spec if self.chosen else prefer
        self.rows, self.machine = list(rows), machine
        self._fill()
        specs = [row.model.spec for row in self.rows]
        kept = specs.index(wanted) if wanted in specs else 0
        self.highlighted = kept if self.rows else None
        self.post_message(self.Highlighted(self.chosen))

    def watch_highlighted(self, highlighted: int | None) -> None:
        """Move the mark along."""
        before, self._marked = self._marked, highlighted
        if before is not None and before != highlighted:
            self._mark(before, marked=False)
        if highlighted is not None:
            self._mark(highlighted, marked=True)
        super().watch_highlighted(highlighted)

    def on_resize(self) -> None:
        width = self.scrollable_content_region.width - 2
        if width != self._width:
            self._width = width
            highlighted = self.highlighted
            self._fill()
            self.highlighted = highlighted

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self.post_message(self.Highlighted(self.chosen))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self.chosen is not None:
            self.post_message(self.Chosen(self.chosen))

    def _fill(self) -> None:
        self._marked = None
        self.set_options(Option(self._line(choice)) for choice in self.rows)

    def _mark(self, index: int, *, marked: bool) -> None:
        if index < len(self.rows):
            self.replace_option_prompt_at_index(index, self._line(self.rows[index], marked=marked))

    def _line(self, choice: Choice, *, marked: bool = False) -> Content:
        """Its row; before the first layout only a place for one, which nobody sees."""
        return row(choice, self.machine, self._width, marked=marked) if self._width else Content(" ")
