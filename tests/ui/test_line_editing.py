"""readline's keys in text fields. A line ends at a line break, not where it is wrapped."""

from __future__ import annotations

import pytest
from textual.widgets import Input

from tests.support.toy_prompts import use_chat_template
from tests.ui.conftest import StartChat
from vlmtui.ui.compare.raw_prompt import RawEditor
from vlmtui.ui.compare.screen import CompareScreen

LONG = "<|vision_start|><|image_pad|><|vision_end|>" * 6


async def test_words_and_lines_are_cut_and_put_in_again(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.write("one two three")
        await chat.pilot.press("ctrl+w")
        await chat.until(lambda: chat.composer.text == "one two ")
        await chat.pilot.press("ctrl+a", "ctrl+y")
        await chat.until(lambda: chat.composer.text == "threeone two ")
        await chat.pilot.press("ctrl+underscore")
        await chat.until(lambda: chat.composer.text == "one two ")
        await chat.pilot.press("ctrl+a", "alt+d")
        await chat.until(lambda: chat.composer.text == " two ")
        await chat.pilot.press("ctrl+e", "ctrl+u")
        await chat.until(lambda: chat.composer.text == "")
        await chat.pilot.press("ctrl+y")
        await chat.until(lambda: chat.composer.text == " two ")
        await chat.pilot.press("ctrl+x", "t", "a", "ctrl+k")
        await chat.until(lambda: chat.composer.text == "")


@pytest.mark.parametrize(
    "opens",
    [["f2", "tab"], ["ctrl+l", "slash"], ["f3"], ["f1", "slash"], ["ctrl+o"]],
    ids=["settings", "conversations", "models", "help", "files"],
)
async def test_fields_of_one_line_have_the_same_keys(chatting: StartChat, opens: list[str]) -> None:
    async with chatting() as chat:
        await chat.pilot.press(opens[0])
        await chat.until(lambda: chat.app.screen is not chat.app.screen_stack[0] and bool(chat.app.screen.query(Input)))
        await chat.pilot.press(*opens[1:])
        await chat.until(lambda: isinstance(chat.app.focused, Input))
        field = chat.app.focused
        assert isinstance(field, Input)
        field.value = "one two three"
        await chat.pilot.press("end", "ctrl+w")
        await chat.until(lambda: field.value == "one two ")
        await chat.pilot.press("ctrl+a", "ctrl+y")
        await chat.until(lambda: field.value == "threeone two ")
        await chat.pilot.press("ctrl+a", "alt+d")
        await chat.until(lambda: field.value == " two ")
        await chat.pilot.press("ctrl+e", "ctrl+left", "ctrl+k", "ctrl+a", "ctrl+y")
        await chat.until(lambda: field.value == "two  ")
        await chat.pilot.press("ctrl+e", "ctrl+u")
        await chat.until(lambda: field.value == "")
        await chat.pilot.press("ctrl+y", "ctrl+y")
        await chat.until(lambda: field.value == "two  two  ")


async def test_a_wrapped_line_of_a_raw_prompt_is_cut_whole_and_the_cursor_stays_in_view(
    chatting: StartChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_chat_template(monkeypatch)
    async with chatting(size=(100, 24)) as chat:
        await chat.write("What is this?")
        await chat.pilot.press("ctrl+x", "c")
        await chat.until(lambda: isinstance(chat.app.screen, CompareScreen) and bool(chat.app.screen.editor.text))
        editor = chat.app.screen.query_one(RawEditor)
        editor.focus()
        editor.fill(f"{LONG}\nlast")
        assert editor.show_line_numbers and editor.wrapped_document.height > 3
        await chat.pilot.press("ctrl+home", "end")
        await chat.until(lambda: editor.cursor_location == (0, len(LONG)))
        await chat.pilot.press("home")
        await chat.until(lambda: editor.cursor_location == (0, 0))
        await chat.pilot.press("ctrl+k")
        await chat.until(lambda: editor.text == "\nlast")
        await chat.pilot.press("ctrl+z")
        await chat.until(lambda: editor.text == f"{LONG}\nlast")
        await chat.pilot.press("ctrl+end")
        await chat.until(lambda: editor.cursor_location == (1, 4))
        # The guard finds too many placeholders, and takes rows from the editor.
        await chat.until(lambda: bool(chat.app.screen.pane.findings))  # type: ignore[attr-defined]
        await chat.until(lambda: editor.region.contains_point(editor.cursor_screen_offset))
