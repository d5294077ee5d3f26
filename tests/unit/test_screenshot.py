"""Screenshots show each character without ligatures."""

from __future__ import annotations

from textual.app import App
from textual.widgets import Static

from portable_svg import portable_svg


async def test_no_font_of_a_screenshot_draws_ligatures_or_is_loaded_from_the_network() -> None:
    class Shown(App[None]):
        def compose(self):  # type: ignore[no-untyped-def]
            yield Static("<|im_start|>user -> ===", markup=False)

    app = Shown()
    async with app.run_test(size=(40, 5)):
        svg = app.export_screenshot()
    assert "Fira Code" in svg, "Textual names it no longer"
    drawn = portable_svg(svg)
    assert "Fira Code" not in drawn
    assert "@font-face" not in drawn
    assert "url(" not in drawn.replace("url(#", "")
    assert "font-variant-ligatures: none" in drawn
    assert "&lt;|im_start|&gt;" in drawn


def test_the_same_picture_has_the_same_ids() -> None:
    one, other = (f'<g class="terminal-{number}-r1"><text>a</text></g>' for number in (17, 4))
    assert portable_svg(one) == portable_svg(other)
    assert portable_svg(one) != portable_svg(one.replace(">a<", ">b<"))
