"""The first screen says three lines, not a manual."""

from __future__ import annotations

import msgspec
import pytest
from textual.app import App, ComposeResult

from vlmtui.domain.engine import REMOTE_BACKEND, LoadSpec
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, model_of
from vlmtui.registry.unlisted import unlisted_family
from vlmtui.ui.chat.frame import WelcomePanel, takes_of
from vlmtui.ui.terminal.themes import DARK, VARIABLES

FAMILIES = Registry.bundled()
WITHOUT_NOTE = msgspec.structs.replace(FAMILIES["shapes"], note="")


class Host(App[None]):
    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.theme = DARK.name

    def compose(self) -> ComposeResult:
        yield WelcomePanel(id="noted")
        yield WelcomePanel(id="plain")


@pytest.mark.parametrize("width", [80, 120])
async def test_a_new_chat_shows_three_lines(width: int) -> None:
    app = Host()
    async with app.run_test(size=(width, 24)) as pilot:
        for family, panel in zip((FAMILIES["shapes"], WITHOUT_NOTE), app.query(WelcomePanel), strict=True):
            panel.show(model_of(family))
        await pilot.pause()
        for panel in app.query(WelcomePanel):
            # The transcript takes four columns of the screen.
            assert len(panel.render_lines(panel.region.reset_offset)) == 3
            assert max(len(line) for line in str(panel.render()).splitlines()) <= width - 4
        text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert text.count("Shapes (bundled) takes images (up to 8) and videos (up to 2).") == 2
        assert text.count("vlmtui help tour") == 2
        assert text.count("Enter sends. Tab tries a sample image. Ctrl+O or a pasted path adds yours.") == 1
        assert text.count("Enter Send · Tab Sample · Ctrl+O Attach") == 1


def test_a_server_of_an_unknown_family_is_said_to_take_nothing_that_it_did_not_tell() -> None:
    family = unlisted_family("fake")
    model = Model(family, LoadSpec(model="fake", name="fake at http://box:1", backend=REMOTE_BACKEND))
    assert takes_of(model) == "may take images: its server doesn't say which media it takes"
    assert takes_of(model_of(FAMILIES["shapes"])) == "takes images (up to 8) and videos (up to 2)"
