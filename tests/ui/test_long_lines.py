"""A text area with long lines: edits do the same as without them, and keys stay quick."""

from __future__ import annotations

import re
import time
from random import Random

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.widgets import TextArea

from tests.ui.conftest import StartChat
from vlmtui.ui.widgets import long_lines
from vlmtui.ui.widgets.line_editing import CONTINUES, EDITS, KILLED
from vlmtui.ui.widgets.long_lines import LongLineArea, UndoArea

_BYTES = 1_000_000
_TEXTS = {
    "words": "lorem ipsum dolor sit amet, " * (_BYTES // 28),
    "CJK": "漢字かな交じり文" * (_BYTES // 8),
    "what looks like tokens": "[Image #1] " * (_BYTES // 11),
}
_KEY_S = 0.3
"""Most seconds of processor time for a key, which takes a tenth on a quiet machine; Textual's own took seconds."""


class Area(App[None]):
    def __init__(self, kind: type[TextArea] = LongLineArea) -> None:
        super().__init__()
        self._kind = kind

    def compose(self) -> ComposeResult:
        yield self._kind()


@pytest.fixture
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break lines from 12 characters on."""
    monkeypatch.setattr(long_lines, "_LINE_MAX", 12)
    monkeypatch.setattr(long_lines, "_LONG", re.compile(r"(?:.{6,12}(?<=\s)|.{12})(?=.)"))


@pytest.mark.usefixtures("short_lines")
@pytest.mark.parametrize("seed", range(6))
async def test_edits_at_random_are_those_of_a_string(seed: int) -> None:
    random = Random(seed)
    app = Area()
    async with app.run_test(size=(20, 10)):
        area = app.query_one(LongLineArea)
        was = [""]
        for _ in range(150):
            text, at = area.text, area.index_of(area.cursor_location)
            match random.randrange(9):
                case 0 | 1:
                    new = random.choice(
                        ("a", "b c ", "漢字", "\n", "x" * 30, "one two three four five six", "l\nm" * 9)
                    )
                    area.insert(new)
                    text, at = text[:at] + new + text[at:], at + len(new)
                case 2:
                    area.action_delete_left()
                    text, at = text[: max(0, at - 1)] + text[at:], max(0, at - 1)
                case 3:
                    area.action_delete_right()
                    text = text[:at] + text[at + 1 :]
                case 4:
                    area.action_cursor_left()
                    at = max(0, at - 1)
                case 5:
                    start, end = sorted(random.randint(0, len(text)) for _ in range(2))
                    area.move_cursor(area.location_of(start))
                    area.move_cursor(area.location_of(end), select=True)
                    area.action_delete_left()
                    start -= start == end > 0
                    text, at = text[:start] + text[end:], start
                case 6:
                    EDITS["kill_line_end"](area)
                    end = text.find("\n", at) if "\n" in text[at:] else len(text)
                    end += end == at < len(text)
                    assert not text[at:end] or KILLED.text == text[at:end]
                    text = text[:at] + text[end:]
                case 7:
                    EDITS["line_start"](area)
                    at = text.rfind("\n", 0, at) + 1
                case _:
                    area.undo()
                    area.redo()
                    at = area.index_of(area.cursor_location)
            assert area.text == text
            assert area.index_of(area.cursor_location) == at
            assert all(len(line) < 60 for line in area.document.lines)
            was.append(text)
        while area.text:
            before = area.text
            area.undo()
            if area.text == before:
                break
            assert area.text in was


@pytest.mark.usefixtures("short_lines")
async def test_the_cursor_passes_every_character_of_a_broken_line() -> None:
    app = Area()
    async with app.run_test(size=(20, 10)) as pilot:
        area = app.query_one(LongLineArea)
        area.text = text = "".join(chr(97 + number % 26) for number in range(60))
        area.move_cursor((0, 0))
        passed = []
        for _ in range(80):
            passed.append(area.index_of(area.cursor_location))
            area.action_cursor_right()
        assert sorted(set(passed)) == list(range(len(text) + 1)) == sorted(set(passed), key=passed.index)
        area.action_cursor_line_start()
        area.action_cursor_line_end()
        assert area.index_of(area.cursor_location) == len(text)
        area.select_all()
        assert area.selected_text == text
        await pilot.pause()
        shown = "".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "abc" in shown and CONTINUES not in shown


@pytest.mark.parametrize("kind", [LongLineArea, UndoArea])
async def test_undo_of_a_text_that_needed_a_scrollbar(kind: type[TextArea]) -> None:
    app = Area(kind)
    async with app.run_test(size=(20, 10)) as pilot:
        area = app.query_one(kind)
        area.insert("line\n" * 30)
        await pilot.pause()
        area.undo()
        assert area.text == ""
        area.redo()
        assert area.text == "line\n" * 30
        before = area.selection
        area.redo()
        assert area.selection == before


@pytest.mark.parametrize("text", _TEXTS.values(), ids=_TEXTS.keys())
async def test_a_paste_of_a_megabyte_leaves_keys_quick(chatting: StartChat, text: str) -> None:
    async with chatting(["one"]) as chat:
        chat.app.post_message(events.Paste(text))
        await chat.until(lambda: chat.composer.text == text)
        took = []
        for key in ("a", "backspace", "home", "b", "up", "c", "ctrl+z"):
            began = time.process_time()
            await chat.pilot.press(key)
            took.append(time.process_time() - began)
        assert sorted(took)[len(took) // 2] < _KEY_S, took
        await chat.until(lambda: chat.controller.draft.text == chat.composer.text)
        assert len(chat.composer.text) - len(text) in (0, 1, 2)
