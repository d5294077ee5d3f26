"""The view of a document, with keys and mouse."""

from __future__ import annotations

import asyncio
import gc
import json
from unicodedata import category

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.content import Content, Span
from textual.geometry import Offset, Region
from textual.pilot import Pilot
from textual.selection import Selection
from textual.strip import Strip

from tests.support.waiting import until
from vlmtui.text import growth
from vlmtui.ui.document.blocks import PlainBlock, PromptBlock, TextBlock
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.lines import BLANK, Line, Lines, PictureLine, as_written, places_of, wrapped
from vlmtui.ui.document.markdown_lines import MarkdownBlock, markdown_lines
from vlmtui.ui.document.view import DocumentView


class Reader(App[None]):
    CSS = "DocumentView { width: 100%; height: 100%; }"

    def __init__(self, *, follows: bool = False, from_top: bool = False) -> None:
        super().__init__()
        self.view = DocumentView(follows=follows, from_top=from_top)
        self.clicks: list[DocumentView.Clicked] = []

    def compose(self) -> ComposeResult:
        yield self.view

    def on_document_view_clicked(self, event: DocumentView.Clicked) -> None:
        self.clicks.append(event)

    @property
    def shown(self) -> list[str]:
        return [self.view.render_line(y).text.rstrip() for y in range(self.view.size.height)]


async def rest(pilot: Pilot[None]) -> None:
    for _ in range(3):
        await pilot.pause()


def lines(count: int, word: str = "line") -> str:
    return "\n".join(f"{word} {number}" for number in range(count))


async def test_a_document_begins_at_its_top_with_bars_and_margins() -> None:
    app = Reader()
    async with app.run_test(size=(20, 6)) as pilot:
        app.view.add(TextBlock("said", edge="$accent", margin=1), TextBlock("answered", margin=1))
        await rest(pilot)
        assert app.shown == ["▌ said", "", "  answered", "", "", ""]


async def test_a_short_document_that_follows_stands_at_the_end() -> None:
    app = Reader(follows=True)
    async with app.run_test(size=(20, 4)) as pilot:
        app.view.add(TextBlock("one\ntwo"))
        await rest(pilot)
        assert app.shown == ["", "", "  one", "  two"]


async def test_a_document_that_grows_from_the_top_is_followed_too() -> None:
    app = Reader(follows=True, from_top=True)
    async with app.run_test(size=(20, 4)) as pilot:
        block = PlainBlock()
        app.view.add(block)
        for count, first in ((2, "  line 0"), (9, "  line 5")):
            block.show(lines(count))
            app.view.changed(block)
            await rest(pilot)
            assert app.shown[0] == first


async def test_a_view_can_be_as_high_as_its_document() -> None:
    app = Reader()
    async with app.run_test(size=(20, 9)) as pilot:
        app.view.styles.height, app.view.styles.max_height = "auto", 6
        for count, height in ((1, 1), (30, 6), (2, 2)):
            app.view.show(TextBlock(lines(count)))
            await rest(pilot)
            assert app.view.region.height == height
            assert app.shown[0] == "  line 0"


async def test_another_document_begins_at_its_own_top() -> None:
    app = Reader()
    async with app.run_test(size=(20, 4)) as pilot:
        for word in ("one", "two"):
            app.view.show(TextBlock(lines(30, word)))
            await rest(pilot)
            assert app.shown[0] == f"  {word} 0"
            app.view.scroll_end(animate=False)
            await rest(pilot)
            assert app.shown[-1] == f"  {word} 29"


async def test_the_end_is_followed_until_the_user_scrolls_and_again_from_the_end_on() -> None:
    app = Reader(follows=True)
    async with app.run_test(size=(20, 4)) as pilot:
        block = PlainBlock()
        app.view.add(block)
        for count in (5, 10):
            block.show(lines(count))
            app.view.changed(block)
            await rest(pilot)
            assert app.shown[-1] == f"  line {count - 1}"
        app.view.scroll_to(y=2, animate=False)
        block.show(lines(15))
        app.view.changed(block)
        await rest(pilot)
        assert app.shown == ["  line 2", "  line 3", "  line 4", "  line 5"]
        app.view.scroll_end(animate=False)
        await rest(pilot)
        block.show(lines(20))
        app.view.changed(block)
        await rest(pilot)
        assert app.shown[-1] == "  line 19"


async def test_growing_text_keeps_its_lines_and_the_scrollbar_shows_how_much_there_is() -> None:
    app = Reader(follows=True)
    async with app.run_test(size=(20, 4)) as pilot:
        block = PlainBlock()
        app.view.add(block)
        before: list[Line] = []
        for count in (10, 12, 300):
            block.show(" ".join(["word"] * count))
            app.view.changed(block)
            await rest(pilot)
            assert all(now is then for now, then in zip(block.lines, before[:-1], strict=False))
            before = list(block.lines)
            assert app.view.show_vertical_scrollbar == (count == 300)
        for count in (400, 50):
            block.show(" ".join(["word"] * count))
            app.view.changed(block)
            assert app.view.vertical_scrollbar.window_virtual_size == app.view.document.height
            assert app.view.scroll_offset.y == app.view.document.height - 4
            await rest(pilot)
            assert app.shown[-1].endswith("word")


async def test_the_scrollbar_goes_where_the_document_just_fits() -> None:
    app = Reader()
    async with app.run_test(size=(20, 4)) as pilot:
        for count in (9, 4, 9, 3, 5, 4):
            app.view.show(TextBlock(lines(count)))
            await rest(pilot)
            assert app.view.show_vertical_scrollbar == (count > 4)


async def test_the_view_stays_when_blocks_above_grow_or_go() -> None:
    app = Reader()
    async with app.run_test(size=(20, 4)) as pilot:
        above, seen, below = PlainBlock(), TextBlock(lines(4, "seen")), TextBlock(lines(20, "below"))
        above.show(lines(3))
        app.view.add(above, seen, below)
        await rest(pilot)
        app.view.scroll_to(y=3, animate=False)
        assert app.shown[0] == "  seen 0"
        above.show(lines(9))
        app.view.changed(above)
        await rest(pilot)
        assert app.shown[0] == "  seen 0"
        app.view.drop(above)
        await rest(pilot)
        assert app.shown[0] == "  seen 0"
        app.view.add(TextBlock(lines(7, "older")), before=seen)
        await rest(pilot)
        assert app.shown[0] == "  seen 0"


async def test_the_view_stays_when_json_above_unfolds() -> None:
    app = Reader()
    async with app.run_test(size=(20, 4)) as pilot:
        block = MarkdownBlock()
        block.source = json.dumps(list(range(90)), indent=1) + "\n\n" + lines(40).replace("\n", "\n\n")
        app.view.add(block)
        await rest(pilot)
        app.view.scroll_to(y=len(block.lines) - 30, animate=False)
        before, height = app.shown, app.view.document.height
        for is_folded in (False, True):
            block.folds = is_folded
            app.view.changed(block)
            await rest(pilot)
            assert (app.view.document.height == height) == is_folded
            assert app.shown == before


async def test_the_view_stays_when_the_width_changes() -> None:
    app = Reader()
    async with app.run_test(size=(40, 4)) as pilot:
        app.view.add(*[TextBlock(f"{number} " + "word " * 12) for number in range(30)])
        await rest(pilot)
        app.view.show_block(app.view.document.blocks[20])
        app.view.scroll_to(y=app.view.document.start(app.view.document.blocks[20]), animate=False)
        assert app.shown[0].startswith("  20 word")
        await pilot.resize_terminal(25, 5)
        await rest(pilot)
        assert app.shown[0].startswith("  20 word")


async def test_ten_thousand_blocks_are_laid_out_between_keys() -> None:
    app = Reader(follows=True)
    async with app.run_test(size=(40, 10)) as pilot:
        app.view.add(*[TextBlock(f"block {number}") for number in range(10_000)])
        await rest(pilot)
        assert app.shown[-1] == "  block 9999"


async def test_much_text_at_once_comes_in_pieces_and_all_of_it_is_shown() -> None:
    for block in (PlainBlock(), MarkdownBlock()):
        app = Reader(follows=True)
        async with app.run_test(size=(40, 5)) as pilot:
            app.view.add(block)
            text = "\n\n".join(f"paragraph {number}" for number in range(9_000))
            if isinstance(block, PlainBlock):
                block.show(text)
            else:
                block.source = text
            app.view.changed(block)
            pauses = 0
            async with asyncio.timeout(60):
                while block.is_behind:
                    pauses += 1
                    await pilot.pause()
            assert pauses > 0
            await rest(pilot)
            assert app.shown[-1] == "  paragraph 8999"
            assert sum("paragraph" in line.plain for line in block.lines) == 9_000


async def test_the_mouse_finds_the_block_and_selects_text_as_it_was_written() -> None:
    app = Reader()
    async with app.run_test(size=(14, 8)) as pilot:
        first, second = TextBlock("one two three four five"), TextBlock("six", margin=1)
        app.view.add(first, second)
        await rest(pilot)
        assert app.shown[:3] == ["  one two", "  three four", "  five"]
        await pilot.click(app.view, offset=(4, 4))
        assert app.clicks[-1].block is second
        await pilot.mouse_down(app.view, offset=(6, 0))
        await pilot.hover(app.view, offset=(3, 2))
        await pilot.mouse_up(app.view, offset=(5, 4))
        assert app.screen.get_selected_text() == "two three four five\n\nsix"


async def test_selected_text_goes_over_blocks() -> None:
    app = Reader()
    async with app.run_test(size=(14, 8)) as pilot:
        app.view.add(*[TextBlock(f"message {number}", margin=1) for number in range(5)])
        await rest(pilot)
        found = app.view.get_selection(Selection(Offset(4, 0), Offset(3, 8)))
        assert found is not None
        assert found[0] == "age 0\n\nmessage 1\n\nmessage 2\n\nmessage 3\n\nmes"


async def test_a_text_is_found_even_where_it_was_wrapped_and_in_turn() -> None:
    app = Reader()
    async with app.run_test(size=(14, 4)) as pilot:
        app.view.add(TextBlock("a red circle"), TextBlock(lines(9)), TextBlock("one big RED circle here"))
        await rest(pilot)
        first = app.view.find("red circle")
        assert first is not None
        assert first.block is app.view.document.blocks[0]
        second = app.view.find("red circle")
        assert second is not None
        assert second.block is app.view.document.blocks[2]
        assert [part[0] for part in second.parts] == [0, 1]
        assert any("RED" in line for line in app.shown)
        again = app.view.find("red circle")
        assert again == first
        assert app.view.find("red circle", back=True) == second
        assert (second.number, second.total) == (2, 2)
        assert app.view.find("nowhere") is None


async def test_matches_are_marked_in_the_scroll_bar() -> None:
    app = Reader()
    async with app.run_test(size=(14, 10)) as pilot:
        app.view.add(TextBlock("red"), TextBlock(lines(49)), TextBlock("red"), TextBlock(lines(49)))
        await rest(pilot)

        def bar() -> str:
            return "".join(strip.text[-1] for strip in app.screen._compositor.render_strips())

        assert "━" not in bar()
        assert app.view.find("red") is not None
        await until(pilot, lambda: [at for at, cell in enumerate(bar()) if cell == "━"] == [0, 5])
        app.view.find("")
        await until(pilot, lambda: "━" not in bar())


async def test_a_text_that_is_still_typed_is_found_where_its_beginning_was() -> None:
    app = Reader()
    async with app.run_test(size=(14, 4)) as pilot:
        app.view.add(TextBlock("red, then green, then grey"))
        await rest(pilot)
        found = [app.view.find(words, stay=True) for words in ("g", "gre", "grey")]
        assert [(hit.number, hit.total) for hit in found if hit] == [(1, 2), (1, 2), (1, 1)]


async def test_a_block_that_is_marked_has_another_bar() -> None:
    app = Reader()
    async with app.run_test(size=(14, 4)) as pilot:
        app.view.add(TextBlock("one", edge="$accent"), block := TextBlock("two"))
        await rest(pilot)
        app.view.mark(block)
        assert app.shown[:2] == ["▌ one", "█ two"]
        app.view.mark(None)
        assert app.shown[:2] == ["▌ one", "  two"]


class Drawing(Block):
    """A row of an image that draws itself without a style."""

    def lay_out(self, width: int) -> Lines:
        return [PictureLine("", drawn=lambda widget, style: Strip([Segment("a picture")]))]


async def test_a_line_that_draws_itself_stands_on_the_background_without_colours_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for _ in range(2):
        app = Reader()
        async with app.run_test(size=(20, 4)) as pilot:
            app.view.add(Drawing())
            await rest(pilot)
            assert app.shown[0] == "  a picture"
            drawn = app.view.render_lines(Region(0, 0, 20, 1))[0]
            assert len({one.style.bgcolor for one in drawn if one.style is not None}) == 1
        monkeypatch.setenv("NO_COLOR", "1")


async def test_text_wraps_beside_its_label() -> None:
    app = Reader()
    async with app.run_test(size=(16, 6)) as pilot:
        app.view.add(
            TextBlock("one two three", label=Content("raw: ")), TextBlock("some text", label=Content("label "))
        )
        await rest(pilot)
        assert app.shown[:5] == ["  raw: one two", "       three", "  label some", "        text", ""]
        found = app.view.get_selection(Selection(None, None))
        assert found is not None
        assert found[0] == "raw: one two three\nlabel some text"


def test_marks_change_only_their_text() -> None:
    block = PlainBlock()
    block.show(" ".join(["word"] * 40_000))
    while block.width is None or block.is_behind:
        block.fit(40)
    whole = [line.plain for line in block.lines]
    assert set(whole) == {" ".join(["word"] * 8)}
    assert as_written((line, 0, None) for line in block.lines) == block.text.rstrip()
    for marks in ([Span(150_000, 150_004, "bold")], [Span(10, 14, "bold"), Span(150_000, 150_004, "bold")], []):
        before = block.lines
        block.mark(marks)
        block.fit(40)
        assert not block.is_behind
        assert [line.plain for line in block.lines] == whole
        assert [line.plain[one.start : one.end] for line in block.lines for one in line.content.spans] == [
            "word" for _ in marks
        ]
        assert len(marks) != 1 or block.lines[0] is before[0]


async def test_a_prompt_shows_every_space_and_keeps_tokens_whole() -> None:
    app = Reader()
    async with app.run_test(size=(14, 4)) as pilot:
        line = Content.assemble("some  text", ("<|im_end|>", "bold"), "x")
        app.view.add(PromptBlock([line]), PromptBlock([Content("next")], edge="$warning"))
        await rest(pilot)
        assert app.shown == ["  some  text", "  <|im_end|>x", "▌ next", ""]
        found = app.view.get_selection(Selection(None, None))
        assert found is not None
        assert found[0] == "some  text<|im_end|>x\nnext"


def test_line_breaks_of_a_prompt_are_not_copied() -> None:
    written = ["hello   world", "", "longlong"]
    lines = PromptBlock(list(map(Content, written)), break_style="bold").lay_out(8)
    assert [line.plain for line in lines] == ["hello   ", "world↵", "↵", "longlong"]
    assert as_written((line, 0, None) for line in lines) == "\n".join(written)


def test_wrapped_lines_say_how_they_were_written() -> None:
    text = "hello big  wide world\n\n  indented text averyverylongword"
    assert as_written((line, 0, None) for line in wrapped(Content(text), 10)) == text
    source = "- a long item that wraps\n\n> quoted text that wraps\n\nplain text that wraps, too"
    found = as_written((line, 0, None) for line in markdown_lines(source, 16))
    assert found == "• a long item that wraps\n\nquoted text that wraps\n\nplain text that wraps, too"


def test_words_are_found_in_any_case_at_their_place() -> None:
    lines = wrapped(Content("İstanbul RED circle"), 12)
    assert list(places_of("red circle", lines)) == [((0, 9, 12), (1, 0, 6))]


def test_the_garbage_collector_does_not_visit_lines() -> None:
    block = MarkdownBlock()
    block.source = "Some **bold** words.\n\n```python\nprint(1)\n```\n"
    block.fit(40)
    for _ in range(2):  # each collection forgets the tuples that hold nothing to follow: the inner ones, then the outer
        gc.collect()
    assert any(line.spans for line in block.lines)
    assert not [line for line in block.lines if gc.is_tracked(line) or gc.is_tracked(line.spans)]


def test_a_row_of_a_picture_looks_like_no_other_line() -> None:
    picture = PictureLine("", drawn=lambda widget, style: Strip([]))
    assert picture.same_as(picture)
    assert not picture.same_as(BLANK) and not BLANK.same_as(picture)


def test_rows_leave_room_for_vowel_signs_that_take_a_cell() -> None:
    """Rich draws these signs in the cell before them, tmux in their own."""
    text = "हिन्दी भाषा में लिखो " * 9
    for row in wrapped(Content(text), 40):
        assert cell_len(row.plain) + sum(category(char) == "Mc" for char in row.plain) <= 40
    assert growth("e\u0301日本語") == 0
    assert growth("कि") == 1 and growth("👍🏽") == 2
