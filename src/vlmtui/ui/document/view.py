"""The widget that shows a document, and the pace at which growing text is shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment, Segments
from rich.style import Style as RichStyle
from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBarRender
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

from vlmtui.ui.document.document import Block, Document, Place
from vlmtui.ui.document.lines import BLANK, Line, Lines, PictureLine, as_written, places_of

EDGE = 2
"""Columns for the bar at the left edge and the gap beside it."""
_DRAWN_MAX = 400
"""Most lines whose drawn strips are kept: more than a screen has, but each is a hundred objects for the garbage
collector."""
_SLICE_S = 0.01
"""Seconds of layout after which keys are handled."""
_PAUSE_S = 0.01
"""Least seconds between two slices of layout. A key needs several turns of the event loop; none should wait for two."""
_FIRST_PAUSE_S = 0.15
"""Seconds before the first slice of a long text, so that the key that caused it has an effect first."""
_REDRAW_S = 0.3
"""Least seconds between two redraws while the end of the document grows in slices."""
INTERVAL_S = 0.1
"""Least seconds between two updates of a growing text."""
_PAUSE_FACTOR = 4.0
"""Pause after an update of a growing text, as a multiple of the time that the update took. Keys are handled then."""
_SEARCH_S = 0.05
"""Most seconds of layout before a search."""
_BAR = "▌"
_MARK = "█"


Parts = tuple[tuple[int, int, int], ...]


class Hit(NamedTuple):
    """A match of a search."""

    block: Block
    parts: Parts
    """(Line of the block, first character, the one after the last) for each line of the match."""
    number: int = 0
    """The number of this match, from 1."""
    total: int = 0
    """The number of all matches."""


def _place(start: int, parts: Parts) -> tuple[int, int]:
    return start + parts[0][0], parts[0][1]


class _Anchor(NamedTuple):
    """A line that stays where it is in the view when lines above it are added or removed."""

    block: Block
    number: int
    """The line's index in its block."""
    from_end: int
    """The number of lines of the block from this line to its end."""
    line: Line | None
    below_top: int
    """Lines from the top of the view to this line."""

    @property
    def now(self) -> int:
        """The line's present index in its block, which changes when lines above it are added or removed."""
        lines, number = self.block.lines, self.number
        if self.line is not None and not (number < len(lines) and lines[number].same_as(self.line)):
            moved = len(lines) - self.from_end
            if moved >= 0 and lines[moved].same_as(self.line):
                return moved
        return min(number, len(lines))


class _MarkedBar(ScrollBarRender):
    """A scroll bar with a line where a match of a search is."""

    def __init__(self, view: DocumentView, **options: Any) -> None:
        super().__init__(**options)
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for bar in super().__rich_console__(console, options):
            assert isinstance(bar, Segments)
            colour = self._view.get_component_rich_style("document--hit").color
            last = len(bar.segments) - 1
            for at in {min(line * (last + 1) // self.virtual_size, last) for line in self._view.hit_lines()}:
                style = bar.segments[at].style or RichStyle()
                back = style.color if style.reverse else style.bgcolor
                bar.segments[at] = Segment("━", RichStyle(color=colour, bgcolor=back, meta=style.meta))
            yield bar


class DocumentView(ScrollView, can_focus=False):
    """Shows a document. Only the lines in view are drawn.

    The view follows the end of the document until the user scrolls up, and again when the user returns to the end.
    While it does not follow, text that grows above the view does not move the lines in view. Text that is selected with
    the mouse is copied unwrapped.
    """

    DEFAULT_CSS = """
    DocumentView {
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size: 0 1;
        scrollbar-gutter: stable;
        & > .document--marked { background: $boost; }
        & > .document--found { background: $warning 40%; text-style: bold; }
        & > .document--also-found { background: $warning 20%; text-style: underline; }
        & > .document--hit { color: $warning; }
    }
    """
    COMPONENT_CLASSES = {"document--marked", "document--found", "document--also-found", "document--hit"}
    ALLOW_SELECT = True

    class Clicked(Message):
        """A block was clicked."""

        def __init__(self, view: DocumentView, block: Block, what: object, told: dict[str, object]) -> None:
            super().__init__()
            self.view = view
            self.block = block
            self.what = what
            """What `Block.clicked` returned."""
            self.told = told
            """The values of a text made with `clickable`."""

        @property
        def control(self) -> DocumentView:
            return self.view

    def __init__(
        self,
        *,
        follows: bool = False,
        from_top: bool = False,
        has_edge: bool = True,
        can_focus: bool = False,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """`follows`: begin at the end of the document, and stay there while it grows. A document shorter than the view
        is then at the lower edge of the view, or at the upper edge if `from_top`. `has_edge`: leave room for a bar
        beside the blocks."""
        super().__init__(id=id, classes=classes)
        if can_focus:
            self.can_focus = True
        self.set_reactive(Widget.auto_links, False)  # clicks are read from the style, and restyling each line is slow
        self.document = Document()
        self._follows = follows
        self._is_at_foot = follows and not from_top
        """True if a document shorter than the view is at the view's lower edge."""
        self.is_following = follows
        """True while the view follows the end of the document."""
        self._edge = EDGE if has_edge else 0
        self._marked: Block | None = None
        self.hit: Hit | None = None
        """The match that `find` has shown last."""
        self._hits: Sequence[Hit] = ()
        """All matches, as they were when `find` was called."""
        self._wanted: Sequence[str] = ()
        """The texts whose matches are highlighted."""
        self._found: dict[Block, tuple[Lines, list[Parts]]] = {}
        """The matches in blocks that were drawn, each with the lines in which they are."""
        self._drawn: dict[int, tuple[Line, tuple[object, ...], Strip]] = {}
        """Drawn lines by `id(line)`: the line, everything else that its look depends on, and the strip."""
        self.has_size = asyncio.Event()
        """Set once the view is on the screen: only then can blocks be laid out."""
        self._is_settling = False
        self._shown_s = 0.0
        """When a slice was shown last, by the monotonic clock."""
        self._is_moving = False
        """True while the view scrolls by itself, not by the user."""

    # -- content

    def add(self, *blocks: Block, before: Block | None = None) -> None:
        """Add blocks at the end, or before another block."""
        document = self.document
        at = len(document.blocks) if before is None else document.index(before)
        with self._keep_place():
            document.insert(blocks, at)
            if len(blocks) == 1:
                self._lay_out(blocks[0])

    def show(self, *blocks: Block) -> None:
        """Show only these blocks, from the beginning, or from the end if the view follows it."""
        self.clear()
        self._scroll(0)
        self.add(*blocks)

    def drop(self, *blocks: Block) -> None:
        with self._keep_place():
            self.document.remove(blocks)
            if self._marked in blocks:
                self._marked = None

    def clear(self) -> None:
        """Remove all blocks."""
        self.document.clear()
        self._drawn.clear()
        self._marked = self.hit = None
        self._wanted = self._hits = ()
        self._found.clear()
        self.is_following = self._follows
        self._update_height()

    def changed(self, block: Block) -> None:
        """Lay out and draw a block that has changed."""
        document = self.document
        if not document.width or (self._is_settling and block.is_behind and block.width == document.width):
            return  # the next slice lays it out
        top, total = self.top, document.height
        anchor = self._anchor()
        change = document.lay_out(block)
        if block.is_behind:
            self._settle_soon(_FIRST_PAUSE_S)
        self._scroll_to_anchor(anchor)
        if self.top == top:  # otherwise everything is drawn again
            self._refresh(change.first, document.height if change.before != change.now else document.end(block))
            if document.height < total:
                self._refresh(document.height, total)

    # -- places

    @property
    def top(self) -> int:
        """The document's line at the top of the view; negative if a short document is at the view's lower edge."""
        if self._is_at_foot and self.document.height < self.size.height:
            return self.document.height - self.size.height
        return self.scroll_offset.y

    @property
    def text_width(self) -> int:
        """The columns for text."""
        return max(0, self.scrollable_content_region.width - self._edge)

    def place_at(self, y: int) -> Place | None:
        """Return the place that is on line `y` of the view; None if there is none."""
        return self.document.place(self.top + y)

    @property
    def in_view(self) -> list[Block]:
        """The blocks with a line in view."""
        return self.document.between(max(0, self.top), self.top + self.size.height)

    @property
    def is_at_end(self) -> bool:
        """True if the end of the document is in view."""
        return self.document.height <= self.top + self.size.height

    def show_block(self, block: Block) -> None:
        """Scroll as little as needed to show a block, or its beginning if it is too long."""
        self._lay_out(block)
        start, end, height = self.document.start(block), self.document.end(block), self.size.height
        top = min(max(self.top, end - height), start)
        self.is_following = False
        self._scroll(max(0, top))

    def show_line(self, block: Block, number: int) -> None:
        """Scroll until a line of a block is in view. If it was out of view, it is then in the upper third of the
        view."""
        line, height = self.document.start(block) + number, self.size.height
        if not self.top <= line < self.top + height:
            self.is_following = False
            self._scroll(max(0, line - height // 3))

    def show_end(self) -> None:
        """Scroll to the end, and follow it."""
        self.is_following = self._follows
        self._scroll(self.max_scroll_y)

    def page(self, pages: int) -> bool:
        """Scroll by pages; return whether the view moved."""
        before = self.scroll_offset.y
        self.scroll_to(y=before + pages * max(1, self.size.height - 1), animate=False)
        return self.scroll_offset.y != before

    # -- marks

    def mark(self, block: Block | None) -> None:
        """Highlight this block, and no other; None: highlight none."""
        before, self._marked = self._marked, block
        for one in (before, block):
            if one is not None and before is not block:
                self._refresh_block(one)

    def find(self, words: str, *, back: bool = False, stay: bool = False, start: Block | None = None) -> Hit | None:
        """Highlight all matches of `words`, ignoring case, and show and return the next; None if there is none. If the
        words don't occur together, search for each of them.

        The search begins at the last match, or else at the view. At the end of the document it continues at the
        beginning. `back`: search backwards. `stay`: the last match may be found again, for a search while the user
        types. `start`: begin with this block. If `words` is empty, forget the last match.
        """
        hits, places = self._matches(words.casefold())
        before, self.hit, self._hits = self.hit, None, hits
        self.refresh()
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.refresh()
        if not hits:
            return None
        if start is not None:
            at = (self.document.start(start), -1)
        elif before is not None and before.block in self.document.blocks:
            at = _place(self.document.start(before.block), before.parts)
        else:
            at = (self.top + self.size.height * back, -1)
        if back:
            found = next((number for number in reversed(range(len(hits))) if places[number] < at), len(hits) - 1)
        else:
            first = next((number for number in range(len(hits)) if places[number] > at), 0)
            found = places.index(at) if stay and at in places else first
        self.hit = hits[found]._replace(number=found + 1, total=len(hits))
        self.show_hit()
        return self.hit

    def show_hit(self) -> None:
        """Scroll to the match that `find` has shown last."""
        if self.hit is not None:
            self.show_line(self.hit.block, self.hit.parts[0][0])

    def hit_lines(self) -> Iterator[int]:
        """Yield the line of the document in which each match is."""
        starts = dict(self.document.starts()) if self._hits else {}
        return (starts[hit.block] + hit.parts[0][0] for hit in self._hits if hit.block in starts)

    def _matches(self, words: str) -> tuple[list[Hit], list[tuple[int, int]]]:
        """Return all matches, and where each begins: its line in the document, and its first character in that line.
        Before that, lay out blocks that may have one, as far as that takes no time."""
        hits, places = list[Hit](), list[tuple[int, int]]()
        self._found.clear()
        self._wanted = (words,) if words else ()
        until_s = time.monotonic() + _SEARCH_S
        with self._keep_place():
            for block in self.document.blocks if words else ():
                if self.document.is_stale(block) and block.may_have(words) and time.monotonic() < until_s:
                    self._lay_out(block)
        blocks = list(self.document.starts())
        if not any(next(self._matches_of(block), None) for block, _ in blocks):
            self._wanted = words.split()
        for block, start in blocks:
            for parts in sorted(self._matches_of(block)):
                hits.append(Hit(block, parts))
                places.append(_place(start, parts))
        return hits, places

    # -- drawing

    def render_line(self, y: int) -> Strip:
        at, width = self.top + y, self.size.width
        place = self.document.place(at)
        base = self.visual_style
        if place is None or place.number < 0 or place.block.width != self.document.width:
            return Strip.blank(width, base.rich_style)
        block, number = place
        line = block.lines[number]
        is_marked = block is self._marked
        edge = block.edge
        hits = self._matches_in(block, number)
        selected = self._selected(at)
        look = (at, width, base, is_marked, edge, hits, selected)
        drawn = self._drawn.get(id(line))
        if drawn is not None and drawn[0] is line and drawn[1] == look:
            return drawn[2]
        style = base + self.get_visual_style("document--marked", partial=True) if is_marked else base
        strip = self._draw(line, at, style, hits, selected).adjust_cell_length(width - self._edge, style.rich_style)
        if self._edge:
            bar = Content.styled(_MARK, "$accent") if is_marked else Content.styled(_BAR, edge) if edge else Content()
            drawn_bar = Strip(bar.render_segments(style), len(bar))
            strip = Strip.join([drawn_bar.adjust_cell_length(self._edge, style.rich_style), strip])
        strip = strip.adjust_cell_length(width, base.rich_style)
        if len(self._drawn) > _DRAWN_MAX:
            self._drawn.clear()
        if not isinstance(line, PictureLine):
            self._drawn[id(line)] = line, look, strip
        return strip

    def _draw(
        self,
        line: Line,
        at: int,
        style: Style,
        hits: Sequence[tuple[str, int, int]],
        selected: tuple[int, int] | None,
    ) -> Strip:
        """Draw the document's line `at`. Each segment holds its place in the document, for selecting text."""
        if isinstance(line, PictureLine):
            return line.drawn(self, style).apply_style(style.rich_style).apply_offsets(0, at)
        content = line.content.expand_tabs()
        for how, first, last in hits:
            content = content.stylize(self.get_visual_style(how, partial=True), first, last)
        if selected is not None:
            content = content.stylize(
                Style.from_styles(self.screen.get_component_styles("screen--selection")), *selected
            )
        segments, x = list[Segment](), 0
        for text, its_style in content.render(style, end=""):
            segments.append(Segment(text, (style + its_style).rich_style_with_offset(x, at)))
            x += len(text)
        return Strip(segments, content.cell_length)

    def _matches_in(self, block: Block, number: int) -> tuple[tuple[str, int, int], ...]:
        """Return the style, start and end of each match in a line of a block."""
        if not self._wanted:
            return ()
        known = self._found.get(block)
        if known is None or known[0] is not block.lines:
            known = self._found[block] = block.lines, list(self._matches_of(block))
        own = self.hit.parts if self.hit is not None and self.hit.block is block else ()
        return tuple(
            ("document--found" if parts == own else "document--also-found", first, last)
            for parts in known[1]
            for line, first, last in parts
            if line == number
        )

    def _matches_of(self, block: Block) -> Iterator[Parts]:
        return (parts for words in self._wanted for parts in places_of(words, block.lines))

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._drawn.clear()

    # -- selection

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text, unwrapped."""
        first = selection.start.y if selection.start is not None else 0
        last = selection.end.y if selection.end is not None else self.document.height - 1
        parts: list[tuple[Line, int, int | None]] = []
        for at in range(max(0, first), min(last, self.document.height - 1) + 1):
            line, span = self.document.line(at), selection.get_span(at)
            if line is None:
                parts.append((BLANK, 0, None))
            elif not isinstance(line, PictureLine) and span is not None:
                parts.append((line, span[0], None if span[1] < 0 else span[1]))
        return as_written(parts), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def _selected(self, at: int) -> tuple[int, int] | None:
        selection, line = self.text_selection, self.document.line(at)
        span = selection.get_span(at) if selection is not None else None
        if span is None or line is None:
            return None
        return span[0], len(line.plain) if span[1] < 0 else span[1]

    # -- mouse

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None or event.button != 1 or self.screen.selections:
            return
        place = self.place_at(offset.y)
        if place is not None:
            what = place.block.clicked(place.number, offset.x - self._edge)
            self.post_message(self.Clicked(self, place.block, what, dict(event.style.meta)))

    # -- layout

    def on_resize(self) -> None:
        if not self.size:
            return
        anchor = self._anchor()
        self.document.width = self.text_width
        self._scroll_to_anchor(anchor)
        self._settle()
        self.resized()
        self.has_size.set()

    def resized(self) -> None:
        """Called after the layout for another size of the view."""

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        if not self._is_moving:
            self.is_following = self._follows and new >= self.max_scroll_y
            self._lay_out_view()
            self.scrolled(round(new) - round(old))
        self.place_changed()

    def scrolled(self, by: int) -> None:
        """Called after the user has scrolled by a number of lines."""

    def place_changed(self) -> None:
        """Called after the lines in view or the document's height have changed."""

    @contextmanager
    def _keep_place(self) -> Iterator[None]:
        anchor = self._anchor()
        yield
        self._scroll_to_anchor(anchor)
        self._settle()
        self.refresh()

    def _anchor(self) -> _Anchor | None:
        """Return the line that must not move: the first line in view, preferably the first line of a block. None if the
        view follows the end."""
        if self.is_following or not self.document.width:
            return None
        found = None
        for y in range(self.size.height):
            place = self.place_at(y)
            if place is None or place.number < 0:
                continue
            from_end = len(place.block.lines) - place.number
            anchor = _Anchor(place.block, place.number, from_end, self.document.line(self.top + y), y)
            if place.number == 0:
                return anchor
            if found is None or found.line is None or not found.line.plain:
                found = anchor
        return found

    def _scroll_to_anchor(self, anchor: _Anchor | None) -> None:
        """Set the scrollable height. Scroll so that the anchor stays where it was in the view; if the view follows the
        end, scroll there."""
        self._update_height()
        if self.is_following:
            self._scroll(self.max_scroll_y)
        elif anchor is not None and anchor.block in self.document.blocks:
            start = self.document.start(anchor.block)
            self._scroll(max(0, start + anchor.now - anchor.below_top))

    def _update_height(self) -> None:
        size = Size(self.scrollable_content_region.width, self.document.height)
        if size == self.virtual_size:
            return
        has_bar = size.height > self.container_size.height
        if size.width == self.virtual_size.width and has_bar == self.show_vertical_scrollbar:
            # Textual would also lay out the whole screen, which is not needed.
            self.set_reactive(Widget.virtual_size, size)
            if has_bar:
                self.vertical_scrollbar.window_virtual_size = size.height
            self._scroll(min(self.scroll_offset.y, self.max_scroll_y))
        else:
            self.virtual_size = size
            if not has_bar:  # Textual would leave it if the document is exactly as high as the view
                self.show_vertical_scrollbar = False
        if self._is_at_foot and self.document.height <= self.size.height:
            self.refresh()
        self.call_later(self.place_changed)

    def watch_show_vertical_scrollbar(self, is_shown: bool) -> None:
        # Textual tells a scroll bar the position only while it is shown.
        if is_shown:
            self.vertical_scrollbar.position = self.scroll_y
            self.vertical_scrollbar.renderer = partial(_MarkedBar, self)  # type: ignore[assignment, misc]

    def _scroll(self, y: int) -> None:
        if y == self.scroll_offset.y:
            return
        self._is_moving = True
        try:
            self.scroll_to(y=y, animate=False, force=True)
        finally:
            self._is_moving = False
        self._lay_out_view()

    def _lay_out(self, *blocks: Block) -> None:
        if self.document.width:
            for block in blocks:
                if self.document.is_stale(block):
                    self.document.lay_out(block)

    def _lay_out_view(self) -> None:
        """Lay out the blocks in view. As their heights change, further blocks may come into view."""
        if not self.document.width:
            return
        while stale := [block for block in self.in_view if block.width != self.document.width]:
            anchor = self._anchor()
            self.document.lay_out(stale[-1 if self.is_following else 0])
            self._scroll_to_anchor(anchor)
            self.refresh()

    def _settle(self) -> None:
        """Lay out all blocks that need it: first those in view, then the others in slices. Keys are handled between
        slices."""
        self._is_settling = False
        if not self.document.width or not self.is_attached:
            return
        self._lay_out_view()
        stale = self.document.stale(max(0, self.top) + self.size.height // 2)
        began_s, anchor, done, is_left = time.monotonic(), self._anchor(), False, False
        all_at_end = True
        for block in stale:
            if done and time.monotonic() > began_s + _SLICE_S:
                is_left = True
                break
            self.document.lay_out(block)
            done = True
            all_at_end = all_at_end and block is self.document.blocks[-1]
            is_left = is_left or block.is_behind
        now_s = time.monotonic()
        grows_below = self.is_following and all_at_end
        if done and not (is_left and grows_below and now_s < self._shown_s + _REDRAW_S):
            self._shown_s = now_s
            self._scroll_to_anchor(anchor)
            self.refresh()
        if is_left:
            self._settle_soon(max(_PAUSE_S, now_s - began_s))

    def _settle_soon(self, pause_s: float) -> None:
        """Lay out the next slice after a pause. A pause as long as the last slice leaves half of the time for keys."""
        if not self._is_settling:
            self._is_settling = True
            self.set_timer(pause_s, self._settle)

    def _refresh_block(self, block: Block) -> None:
        if block in self.document.blocks:
            self._refresh(self.document.start(block), self.document.end(block))

    def _refresh(self, first: int, last: int) -> None:
        """Draw the lines from `first` to `last` (exclusive) again, if they are in view."""
        top = self.top
        first, last = max(first, top), min(last, top + self.size.height)
        if first < last:
            self.refresh_lines(first - top + self.scroll_offset.y, last - first)


class Rhythm:
    """Limits how often growing text is shown: at once after a pause, otherwise a little later with all new text."""

    def __init__(self, widget: Widget, show: Callable[[], None]) -> None:
        self._widget = widget
        self._show = show
        self._is_due = False
        self._shown_at = float("-inf")
        self._took_s = 0.0

    def wake(self) -> None:
        """Call `show` now, or as soon as the interval allows."""
        if self._is_due:
            return
        self._is_due = True
        wait_s = self._shown_at + max(INTERVAL_S, self._took_s * (1 + _PAUSE_FACTOR)) - time.monotonic()
        if wait_s > 0:
            asyncio.get_running_loop().call_later(wait_s, self._widget.call_next, self._show_now)
        else:
            self._widget.call_next(self._show_now)

    def _show_now(self) -> None:
        self._is_due = False
        if self._widget.is_attached:
            self._shown_at = time.monotonic()
            self._show()
            self._took_s = time.monotonic() - self._shown_at
