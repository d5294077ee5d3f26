"""Screenshots show each character as it is."""

from __future__ import annotations

from textual.app import App
from textual.widgets import Static

from vlmtui.ui.terminal.screenshot import without_ligatures


async def test_no_font_of_a_screenshot_draws_ligatures_or_is_loaded_from_the_network() -> None:
    class Shown(App[None]):
        def compose(self):  # type: ignore[no-untyped-def]
            yield Static("<|im_start|>user -> ===", markup=False)

    app = Shown()
    async with app.run_test(size=(40, 5)):
        svg = app.export_screenshot()
    assert "Fira Code" in svg, "Textual names it no longer"
    drawn = without_ligatures(svg)
    assert "Fira Code" not in drawn
    assert "@font-face" not in drawn
    assert "url(" not in drawn.replace("url(#", "")
    assert "font-variant-ligatures: none" in drawn
    assert "&lt;|im_start|&gt;" in drawn
