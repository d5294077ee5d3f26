"""The scrollbar that is drawn from lines drawn before looks like Textual's own."""

from __future__ import annotations

from random import Random

from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.scrollbar import ScrollBar
from textual.strip import Strip
from textual.widgets import Static

from vlmtui.ui.widgets.line_scroll import LineScroll, LineScrollBar


class Scrolling(App[None]):
    CSS = "LineScroll { scrollbar-size-vertical: 1; }"

    def compose(self) -> ComposeResult:
        with LineScroll():
            yield Static("\n".join(map(str, range(200))))


def both_ways(bar: LineScrollBar) -> tuple[list[Strip], list[Strip]]:
    region = Region(0, 0, *bar.size)
    ours = bar.render_lines(region)
    bar._styles_cache.clear()
    bar._render_content()
    return ours, ScrollBar.render_lines(bar, region)


async def test_it_looks_like_textuals_wherever_it_stands() -> None:
    app = Scrolling()
    async with app.run_test(size=(40, 15)) as pilot:
        view = app.query_one(LineScroll)
        bar, random = view.vertical_scrollbar, Random(3)
        assert isinstance(bar, LineScrollBar)
        for _ in range(120):
            bar.window_virtual_size = random.randint(10, 2000)
            bar.window_size = random.randint(1, 15)
            bar.position = random.random() * max(0, bar.window_virtual_size - bar.window_size)
            ours, textuals = both_ways(bar)
            assert ours == textuals
        bar.mouse_over = True
        await pilot.pause()
        ours, textuals = both_ways(bar)
        assert ours == textuals
        app.theme = "textual-light"
        await pilot.pause()
        ours, textuals = both_ways(bar)
        assert ours == textuals
