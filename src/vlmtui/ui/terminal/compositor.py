"""A compositor that renders only what is seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

from rich.console import RenderableType
from textual._compositor import ChopsUpdate, Compositor, CompositorMap, ReflowResult
from textual.dom import NoScreen
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from vlmtui.ui.terminal.ahead import Ahead

_Chops = dict[int, Strip | None]


class FrontCompositor(Compositor):
    """Leaves out containers, and lines of them, that their children cover, and what is not to be updated: Textual's own
    draws five containers and throws them away for each line of a transcript. Its result is the same."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = Ahead(self)
        """Texts that the terminal shows before they are laid out."""

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        self.ahead.catch_up()
        scrolled = self._visible_map
        result = super().reflow(parent, size)
        self._full_map_invalidated = False  # it is what was laid out; Textual lays out again for whoever asks for it
        for widget, place in self.layers:
            # Before Textual does so, and then wants a second layout for each that has grown, which would find all in
            # place but what is at the end of a view that follows it.
            at_end = widget._anchored
            widget._size_updated(place.region.size, place.virtual_size, place.container_size, layout=at_end)
        if scrolled is not None:
            self._mark_changes(scrolled)
        return result

    def reflow_visible(self, parent: Widget, size: Size) -> set[Widget]:
        if self.ahead.catch_up() and isinstance(parent, Screen):
            parent._layout_required = True  # the whole layout follows
            parent.check_idle()
        return super().reflow_visible(parent, size)

    @property
    def full_map(self) -> CompositorMap:
        """As Textual's. Where it is brought up to date without a layout, what has changed is drawn with the next one,
        which will find it in its place."""
        if self.root is None or not self._full_map_invalidated:
            return super().full_map
        shown = self._visible_map if self._visible_map is not None else self._full_map
        found = super().full_map
        self._mark_changes(shown)
        return found

    def _mark_changes(self, shown: CompositorMap) -> None:
        """Have drawn what is elsewhere than in a layout that the screen shows."""
        for _, _, seen in _places(shown) ^ _places(self._full_map):
            self._dirty_regions.add(seen)

    def render_update(
        self, full: bool = False, screen_stack: list[Screen[Any]] | None = None, simplify: bool = False
    ) -> RenderableType | None:
        if self.ahead and (full or self.ahead.meets(self._dirty_regions)):
            self.ahead.settle()  # which draws it, too
        return super().render_update(full, screen_stack, simplify)

    def render_partial_update(self) -> ChopsUpdate | None:
        screen = self.size.region
        regions = [part for region in self._dirty_regions if (part := region.intersection(screen))]
        self._dirty_regions.clear()
        if not regions:
            return None
        spans = list(self._regions_to_spans(regions))
        wanted: dict[int, set[int]] = {}
        for y, x1, x2 in spans:
            cuts = self.cuts[y]
            wanted.setdefault(y, set()).update(cut for cut, end in pairwise(cuts) if cut < x2 and end > x1)
        chops = self._render_wanted(Region.from_union(regions), wanted)
        return ChopsUpdate(chops, spans, [line[1:] for line in self.cuts])

    def _render_chops(self, crop: Region, is_rendered_line: Callable[[int], bool]) -> Sequence[Mapping[int, Strip]]:
        wanted = {y: set(line[:-1]) for y, line in enumerate(self.cuts) if is_rendered_line(y)}
        return cast("Sequence[Mapping[int, Strip]]", self._render_wanted(crop, wanted))

    def _render_wanted(self, crop: Region, wanted: dict[int, set[int]]) -> list[_Chops]:
        """Draw these pieces, given by line and column. `wanted` is emptied as they are drawn."""
        cuts = self.cuts
        chops: list[_Chops] = [dict.fromkeys(line[:-1]) for line in cuts]
        for widget, (region, clip) in self.visible_widgets.items():  # the front first
            if not crop.overlaps(clip) or not (seen := region.intersection(clip)):
                continue
            first, last = seen.column_span
            lines = [y for y in seen.line_range if (open_ := wanted.get(y)) and any(first <= x < last for x in open_)]
            if not lines:
                continue
            drawn = Region(seen.x, lines[0], seen.width, lines[-1] + 1 - lines[0]) if widget._nodes else seen
            try:
                strips = dict(zip(drawn.line_range, _lines(widget, region, drawn), strict=False))
            except NoScreen:  # it has just been removed, and the new layout follows
                continue
            for y in lines:
                if (strip := strips.get(y)) is not None:
                    _fill(chops[y], wanted[y], strip, [cut for cut in cuts[y] if first <= cut <= last])
            if not any(wanted.values()):
                break
        return chops


def _places(layout: CompositorMap) -> set[tuple[Widget, Region, Region]]:
    """Return where the widgets are that are seen, and the part of each that is."""
    places = ((widget, one.region, one.clip.intersection(one.region)) for widget, one in layout.items())
    return {(widget, region, seen) for widget, region, seen in places if seen}


def _lines(widget: Widget, region: Region, part: Region) -> list[Strip]:
    return widget.render_lines(Region(part.x - region.x, part.y - region.y, part.width, part.height))


def _fill(chops: _Chops, wanted: set[int], strip: Strip, cuts: list[int]) -> None:
    """Put a widget's line, which begins at the first cut, where it is wanted."""
    x = cuts[0]
    for cut, piece in zip(cuts, strip.divide([cut - x for cut in cuts[1:]]), strict=False):
        if cut in wanted:
            wanted.discard(cut)
            chops[cut] = piece
