"""Compare shows both prompts turn by turn: earlier equal turns in one line, the others beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from textual.content import Content

from tests.support.documents import written
from tests.support.scripted_engine import Hold, Step
from tests.support.toy_prompts import use_chat_template
from tests.ui.conftest import Chat, StartChat, picture
from vlmtui.registry.match import resolve
from vlmtui.ui.compare.answers import AnswerPane
from vlmtui.ui.compare.raw_prompt import RawEditor
from vlmtui.ui.compare.screen import CompareScreen
from vlmtui.ui.compare.sides import StoredComparisonScreen
from vlmtui.ui.compare.turns import AlignedTurns, PromptView
from vlmtui.ui.document.blocks import PromptBlock
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.widgets.attachment_view import AttachmentView
from vlmtui.ui.widgets.dialogs import ChoiceScreen

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
    def left(self) -> PromptView:
        return self.screen.query_one("#chat-prompt", PromptView)

    @property
    def rows(self) -> list[str]:
        """Return the left pane, row by row."""
        return [self.left.render_line(row).text.rstrip() for row in range(self.left.size.height)]

    @property
    def right_rows(self) -> list[str]:
        return [self.editor.render_line(row).text.rstrip() for row in range(self.editor.size.height)]

    @property
    def kept(self) -> int:
        """Return the number of stored comparisons of the message."""
        turn = self.chat.last.user_id
        store = self.chat.controller.recorder.store
        return 0 if turn is None else len(store.run_now(lambda store: store.comparisons(turn)))

    def marked(self, side: str) -> list[str]:
        """The words of an answer that are marked."""
        lines = self.screen.query_one(f"#{side}-answer", AnswerPane).text.lines
        return [line.plain[span.start : span.end] for line in lines for span in line.content.spans]

    @property
    def changed(self) -> list[str]:
        """The text of the left prompt that is marked."""
        lines = [line for block in self.left.document.between(0, 999) for line in block.lines]
        return [
            line.plain[span.start : span.end]
            for line in lines
            for span in line.content.spans
            if "underline" in str(span.style)
        ]

    def both_show(self, text: str) -> bool:
        """Return whether both answers contain a text."""
        return all(text in pane.text.text for pane in self.screen.query(AnswerPane))

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
    async def start(
        count: int,
        size: tuple[int, int] = (120, 40),
        answers: Sequence[list[Step]] = (),
        image: Path | None = None,
    ) -> AsyncIterator[Turns]:
        before: list[list[Step]] = [[f"Answer {number}."] for number in range(1, count + 1)]
        async with chatting(*before, *answers, size=size) as chat:
            for number in range(1, count + 1):
                await chat.say(f"Question {number}?")
            if image is not None:
                chat.app.run_action_id("attach", str(image))
                await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
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


async def test_a_click_on_the_line_of_folded_turns_unfolds_them(after: StartTurns) -> None:
    async with after(2) as turns:
        await turns.until(lambda: turns.row_of("turns 1–4 · equal") >= 0)
        row = turns.row_of("turns 1–4 · equal") - round(turns.left.scroll_y)
        await turns.chat.pilot.click(turns.left, offset=(6, row))
        await turns.until(lambda: "Question 1?" in "".join(turns.rows))


async def test_a_differing_turn_is_marked_and_aligned_with_its_counterpart(after: StartTurns) -> None:
    async with after(3, size=(120, 60)) as turns:
        await turns.until(lambda: turns.row_of("turns 1–6 · equal") >= 0)
        turns.editor.fill(turns.editor.text.replace("Question 2?", "Another\n\n\nquestion?"))
        await turns.until(lambda: turns.row_of("Question 2?") == turns.right_row_of("Another"))
        await turns.until(lambda: turns.row_of("The last one?") == turns.right_row_of("The last one?"))
        assert turns.changed == ["Question 2"], "the changed words, not the turn"
        assert turns.row_of("turns 1–2 · equal") >= 0 and turns.row_of("turns 4–6 · equal") >= 0
        barred = [row.split(BAR)[1].strip() for row in turns.right_rows if BAR in row]
        assert barred == ["Another", "", "", "question?<|im_end|>"]


async def test_both_sides_of_a_long_conversation_open_at_the_newest_turn(
    after: StartTurns,
) -> None:
    async with after(5, size=(110, 24)) as turns:
        await turns.until(lambda: turns.row_of("The last one?") == turns.right_row_of("The last one?"))
        assert turns.row_of("turns 1–10 · equal") >= 0
        turns.editor.fill(turns.editor.text.replace("Question 3?", "Another question?"))
        turns.editor.scroll_to(y=4, animate=False)
        await turns.until(lambda: turns.row_of("Question 3?") == turns.right_row_of("Another question?") >= 0)
        turns.left.focus()
        await turns.chat.pilot.press("end")
        await turns.until(lambda: turns.row_of("The last one?") == turns.right_row_of("The last one?"))


async def test_text_without_any_turn_is_one_turn_that_differs(after: StartTurns) -> None:
    async with after(2) as turns:
        turns.editor.fill("Just words")
        await turns.until(lambda: turns.row_of("Question 1?") >= 0)
        assert "Question 1?" in " ".join(turns.changed) and "<|im_start|>" in turns.changed
        turns.editor.fill("")
        await turns.until(lambda: not turns.changed)


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
async def test_one_side_alone_has_no_empty_rows(after: StartTurns, size: tuple[int, int]) -> None:
    async with after(5, size=size) as turns:
        assert turns.screen.view == "raw", "one types into the editor at once"
        turns.screen.turn_to("chat")
        await turns.until(lambda: turns.row_of("turns 1–10 · equal") >= 0)
        assert turns.row_of("user") == turns.row_of("unfolds") + 1
        assert turns.row_of("┊") == -1


async def test_both_sides_have_the_same_width_and_wrap_by_word(after: StartTurns) -> None:
    async with after(0, size=(120, 40)) as turns:
        words = " ".join(f"word{number}" for number in range(30))
        turns.editor.fill(turns.editor.text.replace("The last one?", words))
        await turns.until(lambda: "word29" in turns.editor.text and bool(turns.changed))
        await turns.chat.pilot.pause()
        width = turns.left.text_width
        assert width == turns.editor.wrap_width
        rows = [row for row in turns.right_rows if "word" in row]
        assert len(rows) >= 4 and all("word" in row.split()[-1] for row in rows)
    block = PromptBlock([Content(words)], by_word=True)
    block.fit(width)
    assert [line.plain.rstrip() for line in block.lines] == [
        row.split("▌")[-1].strip().removesuffix("<|im_end|>") for row in rows
    ]


async def test_prompts_are_as_high_as_their_text_and_their_difference_is_below(after: StartTurns) -> None:
    async with after(0, size=(200, 60), answers=[["A."], ["B."]]) as turns:
        difference = turns.screen.query_one("#difference", DocumentView)
        await turns.until(lambda: "Prompts: identical" in written(difference))
        await turns.until(lambda: turns.left.size.height <= 8 and difference.size.height > 30)
        await turns.chat.pilot.press("ctrl+r")
        await turns.until(lambda: turns.screen.comparison.is_over and "Answers: different" in written(difference))
        await turns.until(lambda: 3 <= turns.left.size.height <= 8)


async def test_differing_words_are_marked(after: StartTurns) -> None:
    async with after(0, answers=[["A red circle", " on top."], ["A blue circle", " on top."]]) as turns:
        await turns.chat.pilot.press("ctrl+r")
        await turns.until(lambda: turns.marked("chat") == ["red"] and turns.marked("raw") == ["blue"])


async def test_growing_answers_do_not_move_the_turns(after: StartTurns, monkeypatch: pytest.MonkeyPatch) -> None:
    holds = [asyncio.Event() for _ in range(10)]
    lines: list[Step] = [step for number, hold in enumerate(holds) for step in (f"Line {number}\n", Hold(hold))]
    async with after(0, answers=[lines, lines]) as turns:
        await turns.until(lambda: turns.row_of("The last one?") >= 0)
        await turns.chat.pilot.press("ctrl+r")
        lay_out, heights = Mock(), set()
        monkeypatch.setattr(AlignedTurns, "lay_out", lay_out)
        views = turns.screen.query("AnswerPane > DocumentView")
        for number, hold in enumerate(holds):
            await turns.until(partial(turns.both_show, f"Line {number}"))
            await turns.chat.pilot.pause()
            heights |= {view.size.height for view in views}
            hold.set()
        assert lay_out.call_count <= 2, "more than for what was checked meanwhile"
        assert heights <= {4, 8, 12}
        await turns.until(lambda: turns.screen.comparison.is_over)
        await turns.until(lambda: {view.size.height for view in views} == {11})
        assert turns.row_of("The last one?") == turns.right_row_of("The last one?")


async def test_a_long_answer_leaves_most_of_the_screen_to_the_prompts(after: StartTurns) -> None:
    answer: list[Step] = [f"Line {number}\n" for number in range(40)]
    async with after(0, size=(120, 40), answers=[answer, answer]) as turns:
        await turns.chat.pilot.press("ctrl+r")
        await turns.until(lambda: turns.screen.comparison.is_over)
        pane = turns.screen.query_one("#chat-answer", AnswerPane)
        for height, rows in ((40, 16), (24, 9), (50, 20)):
            await turns.chat.pilot.resize_terminal(120, height)
            await turns.until(lambda rows=rows: pane.view.size.height == rows)  # type: ignore[misc]
            await turns.until(lambda rows=rows: pane.size.height == rows + pane.facts.size.height)  # type: ignore[misc]


async def test_a_tall_screen_shows_the_prompts_above_their_difference(after: StartTurns) -> None:
    async with after(0, size=(120, 40)) as turns:
        turns.editor.fill(turns.editor.text.replace("The last one?", "Another one?"))
        await turns.chat.lead("d")
        difference = turns.screen.query_one("#difference", DocumentView)
        await turns.until(lambda: "different" in written(difference))
        await turns.until(lambda: turns.left.size.height >= 4 and difference.size.height > 5)
        await turns.chat.pilot.press("ctrl+r")
        await turns.until(lambda: turns.screen.comparison.is_over)
        await turns.until(lambda: turns.left.size.height >= 4 and "Answers" in written(difference))
        assert all(pane.size.height for pane in turns.screen.query(AnswerPane))
        await turns.chat.pilot.resize_terminal(120, 30)
        await turns.until(lambda: not turns.left.size.height and difference.size.height > 15)


@pytest.mark.parametrize("model", ["shapes", "mystery at http://127.0.0.1:8000"])
async def test_a_stored_comparison_has_folded_turns_and_thumbnails(
    after: StartTurns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setattr("vlmtui.ui.compare.sides.resolve", lambda registry, _: resolve(registry, model))
    async with after(2, answers=[["A."], ["B."]], image=picture(tmp_path)) as turns:
        chat = turns.chat
        turns.editor.fill(turns.editor.text.replace("The last one?", "Another one?"))
        await chat.pilot.press("ctrl+r")
        await turns.until(lambda: turns.screen.comparison.is_over and turns.kept == 1)
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.app.screen is chat.screen)
        await chat.lead("b", "c")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen) and chat.app.screen.is_mounted)
        await chat.pilot.press("enter")
        await chat.until(lambda: isinstance(chat.app.screen, StoredComparisonScreen))
        kept = chat.app.screen
        panes = [kept.query_one(f"#{side}-prompt", PromptView) for side in ("chat", "raw")]
        await chat.until(lambda: all("turns 1–4 · equal" in written(pane) for pane in panes))
        assert "Question 1?" not in written(panes[0]) + written(panes[1])
        assert "The last one?" in written(panes[0]) and "Another one?" in written(panes[1])
        await chat.until(lambda: len(kept.query(AttachmentView)) == 1)
        await chat.lead("E")
        await chat.until(lambda: all("Question 1?" in written(pane) for pane in panes))
