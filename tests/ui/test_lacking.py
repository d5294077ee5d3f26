"""Missing capabilities are dimmed in footer and leader strip, and their key names the server's flag."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.scripted_engine import DEFAULT_SPEC, ScriptedHost, scripted_info
from tests.support.waiting import until, until_chat
from tests.ui.conftest import MakeApp
from vlmtui.domain.capabilities import ALL
from vlmtui.domain.engine import EngineInfo
from vlmtui.ui.help import LeaderScreen
from vlmtui.ui.keys import leader_entries
from vlmtui.ui.widgets.footer_bar import FooterBar


def lacking(info: EngineInfo) -> EngineInfo:
    capabilities = msgspec.structs.replace(ALL, raw_media=False, scores=False)
    remedies = {"raw_media": "Start the server with --enable-scale-out."}
    return msgspec.structs.replace(info, engine="vLLM server", capabilities=capabilities, remedies=remedies)


@pytest.mark.parametrize("is_whole", [True, False])
async def test_missing_features_are_dimmed_and_explained(make_app: MakeApp, is_whole: bool) -> None:
    info = scripted_info(DEFAULT_SPEC)
    app = make_app(
        ScriptedHost(answers=[["Hello"]], load=[], info=info if is_whole else lacking(info)), initial_model="shapes"
    )
    async with app.run_test(size=(160, 40)) as pilot:
        await until_chat(pilot)
        await pilot.press("h", "i", "enter")
        bar = app.screen.query_one(FooterBar)
        await until(pilot, lambda: "compare" in {item.id for item in bar.items})
        dimmed = {item.id: item.tooltip for item in bar.items if item.lacks}
        strip = {entry.action.id for entry in leader_entries(app.screen).values() if entry.lacking}
        if is_whole:
            assert not dimmed and not strip
            return
        said = "This engine (vLLM server) doesn't accept images or videos in raw prompts. Start the server with"
        assert set(dimmed) == {"compare"} and dimmed["compare"].startswith(said)
        assert strip == {"blind", "compare", "heat"}
        await pilot.press("ctrl+x")
        await until(pilot, lambda: isinstance(app.screen, LeaderScreen))
        await pilot.press("escape")
