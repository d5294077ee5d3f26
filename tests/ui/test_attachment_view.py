"""An attachment as it is shown: its room, its picture, its words."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import Static

from tests.support.waiting import until
from vlmtui.domain.conversation import Attachment
from vlmtui.media.stage import stage
from vlmtui.ui.terminal.graphics import Graphics, GraphicsMode
from vlmtui.ui.terminal.painter import PLACEHOLDER
from vlmtui.ui.terminal.themes import VARIABLES
from vlmtui.ui.widgets import thumbnails
from vlmtui.ui.widgets.attachment_view import AttachmentView

_COLUMNS, _ROWS = 32, 6


class Shown(App[Any]):
    """An app with a view, and a line below it."""

    def __init__(self, attachment: Attachment, folder: Path, mode: GraphicsMode, *, brief: bool = False) -> None:
        super().__init__()
        self.graphics = Graphics(mode)
        rows = 0 if brief else _ROWS
        self.view = AttachmentView(attachment, 3, cache=folder / "cache", columns=_COLUMNS, rows=rows, brief=brief)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def compose(self) -> ComposeResult:
        yield self.view
        yield Static("below")

    def rows(self) -> list[str]:
        return [
            "".join(segment.text for segment in strip).rstrip() for strip in self.screen._compositor.render_strips()
        ]


def red(folder: Path, width: int, height: int) -> Attachment:
    path = folder / "red.png"
    Image.new("RGB", (width, height), "red").save(path)
    return stage(path, folder / "store")


async def drawn(pilot: Pilot[Any], app: Shown) -> None:
    await until(pilot, lambda: any("▀" in row or PLACEHOLDER in row for row in app.rows()))
    await pilot.pause()


@pytest.mark.parametrize(("width", "height"), [(400, 300), (300, 400), (5000, 40), (3, 900), (1, 1)])
async def test_text_below_does_not_move_when_the_picture_comes(tmp_path: Path, width: int, height: int) -> None:
    app = Shown(red(tmp_path, width, height), tmp_path, "halfcell")
    async with app.run_test(size=(60, 24)) as pilot:
        before = app.rows().index("below")
        await drawn(pilot, app)
        assert app.rows().index("below") == before
        columns, rows = app.graphics.fit(width, height, columns=_COLUMNS, rows=_ROWS)
        assert [row.rstrip() for row in app.rows()[:rows]] == ["▀" * columns] * rows
        assert app.rows()[rows].startswith("▣ 3 red.png")


@pytest.mark.parametrize("mode", ["kitty", "sixel"])
async def test_a_terminals_own_picture_stands_above_the_words(tmp_path: Path, mode: GraphicsMode) -> None:
    app = Shown(red(tmp_path, 320, 120), tmp_path, mode)
    async with app.run_test(size=(60, 24)) as pilot:
        before = app.rows().index("below")
        await drawn(pilot, app)
        columns, rows = app.graphics.fit(320, 120, columns=_COLUMNS, rows=_ROWS)
        assert [row.count(PLACEHOLDER) for row in app.rows()[:rows]] == [columns] * rows
        assert app.rows()[rows].startswith("▣ 3 red.png")
        assert app.rows().index("below") == before


async def test_without_pictures_there_are_words(tmp_path: Path) -> None:
    app = Shown(red(tmp_path, 320, 120), tmp_path, "off")
    async with app.run_test(size=(60, 24)) as pilot:
        app.view.tell_tokens(1234)
        await until(pilot, lambda: "1,234 tokens" in app.rows()[1])
        assert app.rows()[0] == "▣ 3 red.png"
        assert app.rows()[2] == "below"


async def test_long_words_take_more_lines_and_a_long_name_is_cut(tmp_path: Path) -> None:
    long = msgspec.structs.replace(red(tmp_path, 320, 120), name="a long name " * 9 + "\x1b[31m.png")
    app = Shown(long, tmp_path, "off")
    async with app.run_test(size=(24, 24)) as pilot:
        app.view.tell_tokens(1234)
        await until(pilot, lambda: any("tokens" in row for row in app.rows()))
        assert "…" in app.rows()[0] and app.rows()[0].endswith(".png")
        assert app.rows().index("below") > 2


async def test_a_picture_that_cannot_be_drawn_leaves_its_reason(tmp_path: Path) -> None:
    gone = red(tmp_path, 320, 120)
    Path(gone.path).unlink()
    app = Shown(gone, tmp_path, "halfcell")
    async with app.run_test(size=(60, 24)) as pilot:
        await until(pilot, lambda: any("damaged" in row for row in app.rows()))
        assert app.rows()[0] == "▣ 3 red.png"


async def test_brief_is_one_line(tmp_path: Path) -> None:
    app = Shown(red(tmp_path, 320, 120), tmp_path, "halfcell", brief=True)
    async with app.run_test(size=(18, 24)) as pilot:
        app.view.tell_tokens(16)
        await pilot.pause()
        assert app.rows()[:2] == ["▣ 3 r… · 16 tokens", "below"]


async def test_a_removed_picture_is_not_drawn(tmp_path: Path) -> None:
    turn = threading.Event()
    before = thumbnails.DRAWER.submit(turn.wait, 30)
    app = Shown(red(tmp_path, 320, 120), tmp_path, "halfcell")
    async with app.run_test(size=(60, 24)) as pilot:
        await pilot.pause()
        await app.view.remove()
        turn.set()
        await asyncio.wrap_future(before)
        await asyncio.wrap_future(thumbnails.DRAWER.submit(bool))
    assert not (tmp_path / "cache").exists()
