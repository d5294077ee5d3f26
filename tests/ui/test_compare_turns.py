"""Compare shows both prompts turn by turn: earlier equal turns in one line, the others beside each other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from tests.support.toy_prompts import use_chat_template
from tests.ui.conftest import Chat, StartChat
from vlmtui.ui.compare.compare_pane import PromptPane
from vlmtui.ui.compare.diff_view import DiffView
from vlmtui.ui.compare.raw_editor import RawEditor
from vlmtui.ui.compare.screen import CompareScreen

BAR = "▌"


class Turns:
    """Compare, opened after some messages."""

    def __init__(self, chat: Chat, screen: CompareScreen) -> None:
        self.chat, self.screen = chat, screen

    async def until(self, condition: Callable[[], bool]) -> None:
        await self.chat.until(condition)

    @property
    def editor(self) -> RawEditor:
        return self.screen.query_one(RawEditor)

    @property
    def pane(self) -> PromptPane:
        return self.screen.query_one("#chat-prompt", PromptPane)

    @property
    def rows(self) -> list[str]:
        """What the left pane shows now, row by row."""
        text = self.pane.text
        return [text.render_line(row).text.rstrip() for row in range(text.size.height)]

    @property
    def right_rows(self) -> list[str]:
        return [self.editor.render_line(row).text.rstrip() for row in range(self.editor.size.height)]

    def row_of(self, sought: str) -> int:
        return next((at for at, row in enumerate(self.rows) if sought in row), -1)

    def right_row_of(self, sought: str) -> int:
        return next((at for at, row in enumerate(self.right_rows) if sought in row), -2)


StartTurns = Callable[..., AbstractAsyncContextManager[Turns]]


@pytest.fixture
def after(chatting: StartChat, monkeypatch: pytest.MonkeyPatch) -> StartTurns:
    """`async with after(3) as turns`: three messages were answered, the fourth is compared."""
    use_chat_template(monkeypatch)

    @asynccontextmanager
    async def start(count: int, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Turns]:
        answers = [[f"Answer {number}."] for number in range(1, count + 1)]
        async with chatting(*answers, size=size) as chat:
            for number in range(1, count + 1):
                await chat.say(f"Question {number}?")
            await chat.write("The last one?")
            await chat.pilot.press("f10")
            await chat.until(lambda: isinstance(chat.app.screen, CompareScreen) and chat.app.screen.is_mounted)
            screen = chat.app.screen
            assert isinstance(screen, CompareScreen)
            turns = Turns(chat, screen)
            await chat.until(lambda: "The last one?" in turns.editor.text)
            yield turns

    return start


async def test_earlier_equal_turns_are_one_line_and_a_key_unfolds_them(after: StartTurns) -> None:
    async with after(2) as turns:
        await turns.until(lambda: turns.row_of("turns 1–4 · equal") >= 0)
        assert "Question 1?" not in "".join(turns.rows)
        assert BAR not in "".join(turns.rows)
        assert turns.row_of("The last one?") == turns.right_row_of("The last one?")
        await turns.chat.lead("E")
        await turns.until(lambda: turns.row_of("Question 1?") >= 0)
        assert "equal" not in "".join(turns.rows)
        assert turns.row_of("The last one?") == turns.right_row_of("The last one?")
        await turns.chat.lead("E")
        await turns.until(lambda: turns.row_of("turns 1–4 · equal") >= 0)


async def test_a_turn_that_differs_is_marked_and_stands_beside_its_other_one(after: StartTurns) -> None:
    async with after(3) as turns:
        await turns.until(lambda: turns.row_of("turns 1–6 · equal") >= 0)
        turns.editor.fill(turns.editor.text.replace("Question 2?", "Another\n\n\nquestion?"))
        await turns.until(lambda: turns.row_of("Question 2?") >= 0)
        assert turns.rows[turns.row_of("Question 2?")].startswith(BAR)
        assert turns.row_of("turns 1–2 · equal") >= 0 and turns.row_of("turns 4–6 · equal") >= 0
        assert turns.row_of("Question 2?") == turns.right_row_of("Another")
        barred = [row.split(BAR)[1].strip() for row in turns.right_rows if BAR in row]
        assert barred == ["<|im_start|>user", "Another", "", "", "question?<|im_end|>"]
        last = turns.row_of("The last one?")
        assert last == turns.right_row_of("The last one?") and not turns.rows[last].startswith(BAR)


async def test_a_long_conversation_opens_at_its_newest_turn_on_both_sides_and_scrolls_together(
    after: StartTurns,
) -> None:
    async with after(5, size=(110, 24)) as turns:
        await turns.until(lambda: turns.row_of("The last one?") == turns.right_row_of("The last one?"))
        assert turns.row_of("turns 1–10 · equal") >= 0
        turns.editor.fill(turns.editor.text.replace("Question 3?", "Another question?"))
        turns.editor.scroll_to(y=4, animate=False)
        await turns.until(
            lambda: turns.row_of("Question 3?") == turns.right_row_of("Another question?") and turns.row_of(BAR) >= 0
        )
        turns.pane.text.focus()
        await turns.chat.pilot.press("end")
        await turns.until(lambda: turns.row_of("The last one?") == turns.right_row_of("The last one?"))


async def test_text_without_any_turn_is_one_turn_that_differs(after: StartTurns) -> None:
    async with after(2) as turns:
        turns.editor.fill("Just words")
        await turns.until(lambda: turns.row_of("Question 1?") >= 0)
        assert all(row.startswith(BAR) for row in turns.rows if row.strip())
        turns.editor.fill("")
        await turns.until(lambda: BAR not in "".join(turns.rows))


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
async def test_one_side_at_a_time_has_no_rows_left_empty(after: StartTurns, size: tuple[int, int]) -> None:
    async with after(5, size=size) as turns:
        await turns.until(lambda: turns.row_of("turns 1–10 · equal") >= 0)
        assert turns.row_of("user") == turns.row_of("turns 1–10 · equal") + 1 + ("unfolds" not in "".join(turns.rows))
        assert turns.row_of("┊") == -1


async def test_the_difference_says_in_which_turn_it_begins(after: StartTurns) -> None:
    async with after(2) as turns:
        turns.editor.fill(turns.editor.text.replace("Question 2?", "Another question?"))
        await turns.until(lambda: turns.row_of("Question 2?") >= 0)
        turns.screen.turn_to("difference")
        shown = turns.screen.query_one(DiffView)
        await turns.until(lambda: "in user turn 2 of the chat template" in shown.shown)
