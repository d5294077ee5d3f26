"""The list of models, in columns that follow the width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from vlmtui.domain.engine import LoadSpec
from vlmtui.engine.machine import Machine
from vlmtui.engine.memory_fit import Fit, check_fit
from vlmtui.session.models import Choice
from vlmtui.text import one_line

if TYPE_CHECKING:
    from vlmtui.engine.remote_models import Server

_TAKES, _SIZE, _CONTEXT, _FITS, _STATE = 17, 5, 7, 9, 7
_GAP = 2
_MARK = "▌"
_FIXED = _TAKES + _SIZE + _CONTEXT + _FITS + _STATE + 5 * _GAP
_MIN_TITLE = 12
_TITLE = 30
"""Width of a title if the model's name is shown beside it."""
_MIN_NAME = 24
_FIT_STYLES = {
    Fit.YES: "$text-success",
    Fit.SEVERAL: "$text-warning",
    Fit.NO: "$text-error",
    Fit.UNKNOWN: "$muted",
}
_FIT_MARKS = {Fit.YES: "✓ fits", Fit.SEVERAL: "✓ n GPUs", Fit.NO: "✗ too big", Fit.UNKNOWN: "?"}


def lines_of(rows: Sequence[Choice]) -> list[int | str]:
    """Return what each line shows: the index of a row, or a heading where servers' models begin and end."""
    lines: list[int | str] = []
    elsewhere = False
    for index, choice in enumerate(rows):
        if elsewhere != (choice.server is not None):
            elsewhere = not elsewhere
            lines.append("On other machines" if elsewhere else "On this machine")
        lines.append(index)
    return lines


def size_text(parameters_b: float | None) -> str:
    """Format billions of parameters: `7.6B`, `3M`, `?`."""
    if parameters_b is None:
        return "?"
    if parameters_b < 0.1:
        return f"{parameters_b * 1000:.3g}M"
    return f"{parameters_b:.3g}B"


def context_text(tokens: int | None) -> str:
    """Format a context length in tokens: `4k`, `128k`, `?`."""
    if tokens is None:
        return "?"
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)


def takes_text(choice: Choice) -> str:
    """Return what a model accepts: `image ×8 video ×2`."""
    return " ".join(f"{modality} ×{takes.max_items}" for modality, takes in choice.family.takes.items())


def row(choice: Choice, machine: Machine | None, width: int, *, marked: bool = False) -> Content:
    """Return one row, a mark and `width` cells. The mark shows the highlight without colours."""
    title_width, name_width = _first_columns(width)
    gap = " " * _GAP
    name = f"{gap}{_cell(one_line(choice.model.spec.name), name_width)}" if name_width else ""
    fits = check_fit(choice.model, machine).fit if machine and choice.server is None else Fit.UNKNOWN
    fits_text = _FIT_MARKS[fits] if choice.server is None else _latency_text(choice.server)
    # Use as few pieces as styles: this list is part of the first paint.
    line = Content.assemble(
        (_MARK if marked else " ", "$text-accent"),
        (_cell(one_line(choice.title), title_width), "bold" if choice.current else ""),
        (f"{name}{gap}{_cell(takes_text(choice), _TAKES)}{gap}", "$muted"),
        size_text(choice.parameters_b).rjust(_SIZE),
        (f"{gap}{context_text(choice.context).rjust(_CONTEXT)}{gap}", "$muted"),
        (_cell(fits_text, _FITS), _FIT_STYLES[fits]),
        (f"{gap}{_cell(choice.state, _STATE)}", _state_style(choice)),
    )
    return line if line.cell_length <= width + 1 else line.truncate(max(1, width + 1), ellipsis=True)


def _latency_text(server: Server) -> str:
    """Return how soon a server answered, in the place of its memory, which is not known here."""
    return "" if server.facts is None else f"{server.facts.latency_s * 1000:.0f} ms"


def _state_style(choice: Choice) -> str:
    if choice.running or choice.current:
        return "$text-accent"
    return "$text-error" if choice.closed else "$muted"


def header(width: int) -> Content:
    """Return the column names, above `row`."""
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
    """Return the widths of the title and of the model's name; 0: no room for the name."""
    room = max(_MIN_TITLE, width - _FIXED)
    if room < _TITLE + _GAP + _MIN_NAME:
        return room, 0
    return _TITLE, room - _TITLE - _GAP


def _cell(text: str, width: int) -> str:
    cells = cell_len(text)
    return text + " " * (width - cells) if cells <= width else Content(text).truncate(width, ellipsis=True).plain


class ModelHeader(Widget):
    """The column names, as wide as the list's rows."""

    DEFAULT_CSS = "ModelHeader { height: 1; padding: 0 2 0 1; text-wrap: nowrap; }"

    def render(self) -> Content:
        return header(self.size.width)


class ModelList(ScrollView):
    """The models, one row each, those of servers below a heading; only rows in view are rendered. The filter keeps the
    focus, and the screen moves the highlight."""

    can_focus = False
    ALLOW_SELECT = False
    COMPONENT_CLASSES = {"model-list--highlighted", "model-list--hover"}
    DEFAULT_CSS = """
    ModelList {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        & > .model-list--highlighted {
            background: $block-cursor-background;
            color: $block-cursor-foreground;
        }
        & > .model-list--hover { background: $block-hover-background; }
    }
    """

    highlighted: reactive[int | None] = reactive(None, repaint=False)
    _hovered: reactive[int | None] = reactive(None, repaint=False)

    class Highlighted(Message):
        """Another model is highlighted."""

        def __init__(self, choice: Choice | None) -> None:
            """`choice`: None if there is none."""
            super().__init__()
            self.choice = choice

    class Chosen(Message):
        """Load this model."""

        def __init__(self, choice: Choice) -> None:
            super().__init__()
            self.choice = choice

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: list[Choice] = []
        self._lines: list[int | str] = []
        self.machine: Machine | None = None

    @property
    def chosen(self) -> Choice | None:
        """The highlighted model."""
        return self.rows[self.highlighted] if self.highlighted is not None and self.rows else None

    def show(self, rows: Sequence[Choice], machine: Machine | None, *, prefer: LoadSpec | None = None) -> None:
        """Show these; keep the highlighted model, or highlight the preferred one, or the first."""
        wanted = self.chosen.model.spec if self.chosen else prefer
        self.rows, self.machine = list(rows), machine
        self._lines = lines_of(self.rows)
        self.virtual_size = Size(0, len(self._lines))
        same = (index for index, row in enumerate(self.rows) if row.model.spec == wanted)
        named = (index for index, row in enumerate(self.rows) if wanted and row.model.spec.name == wanted.name)
        kept = next(same, next(named, 0))
        self.set_reactive(ModelList.highlighted, kept if self.rows else None)
        self.call_after_refresh(self._keep_in_view)
        self.refresh()
        self.post_message(self.Highlighted(self.chosen))

    def watch_highlighted(self, before: int | None, now: int | None) -> None:
        self._refresh_lines(before, now)
        self._keep_in_view()
        self.post_message(self.Highlighted(self.chosen))

    def watch__hovered(self, before: int | None, now: int | None) -> None:
        self._refresh_lines(before, now)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._hovered = self._row_at(event.y)

    def on_leave(self) -> None:
        self._hovered = None

    def on_click(self, event: events.Click) -> None:
        index = self._row_at(event.y)
        if index is not None:
            self.highlighted = index
            self.post_message(self.Chosen(self.rows[index]))

    def render_line(self, y: int) -> Strip:
        shown, width, style = self._line_at(y), self.scrollable_content_region.width, self.visual_style
        if shown is None:
            return Strip.blank(width, style.rich_style)
        if isinstance(shown, str):
            line = Content.styled(f" {shown}", "$muted italic")
        else:
            if shown == self.highlighted:
                style = self.get_visual_style("model-list--highlighted")
            elif shown == self._hovered:
                style = self.get_visual_style("model-list--hover")
            line = row(self.rows[shown], self.machine, width - 2, marked=shown == self.highlighted)
        # `Visual.to_strips` handles wrapping, links and selections, which these rows do not have.
        pieces = line.render(style, end="", parse_style=self.app.stylesheet.parse_style)
        strip = Strip([Segment(text, of_text.rich_style) for text, of_text in pieces])
        return strip.adjust_cell_length(width, style.rich_style)

    def action_move(self, how: str) -> None:
        """Move the highlight: `up`, `down`, `page_up`, `page_down`, `first` or `last`. `up` and `down` wrap around."""
        count, index = len(self.rows), self.highlighted
        if index is None or not count:
            return
        page = max(1, self.scrollable_content_region.height)
        match how:
            case "up" | "down":
                self.highlighted = (index + (1 if how == "down" else -1)) % count
            case "first" | "last":
                self.highlighted = 0 if how == "first" else count - 1
            case _:
                self.highlighted = min(max(0, index + (page if how == "page_down" else -page)), count - 1)

    def _line_at(self, y: int) -> int | str | None:
        """Return the index of the row, or the heading, in this line of the view; None below the last."""
        number = y + round(self.scroll_y)
        return self._lines[number] if number < len(self._lines) else None

    def _row_at(self, y: int) -> int | None:
        """Return the model in this line of the view; None on a heading and below the last."""
        shown = self._line_at(y)
        return shown if isinstance(shown, int) else None

    def _refresh_lines(self, *indices: int | None) -> None:
        for index in indices:
            if index is not None and index in self._lines:
                self.refresh_line(self._lines.index(index))

    def _keep_in_view(self) -> None:
        if self.highlighted is not None:
            number = self._lines.index(self.highlighted)
            # The first row below a heading, and the list's first, bring the heading into view.
            headed = number > 0 and isinstance(self._lines[number - 1], str)
            region = Region(0, number - headed, 1, 1 + headed)
            self.scroll_to_region(region, animate=False, force=True)
