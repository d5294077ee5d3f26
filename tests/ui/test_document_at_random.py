"""After random changes, a view shows the same as a new view of the same blocks at the same place."""

from __future__ import annotations

from random import Random

import pytest
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.geometry import Region
from textual.pilot import Pilot

from vlmtui.ui.document.blocks import PlainBlock, PromptBlock, TextBlock
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.markdown_lines import MarkdownBlock
from vlmtui.ui.document.view import DocumentView

STEPS = 40
_WORDS = (
    *(
        "one",
        "two",
        "three,",
        "a-hyphenated-word",
        "**bold**",
        "`code`",
        "漢字かな交じり文",
        "שלום",
        "👩🏽‍⚕️",
        "e\u0301",
        "🇨🇭",
    ),
    *(
        "\n",
        "\n\n",
        "\n- ",
        "\n```\n",
        "\n| a | b |\n| - | - |\n",
        "\n# ",
        "x" * 90,
        "$x^2$",
        "  ",
        "\n> ",
        "\n\n[1, 2]\n",
    ),
)

Seen = list[list[Segment]]


class Shelf(App[None]):
    """An app with two views of the same size."""

    CSS = "DocumentView { width: 1fr; height: 1fr; }"

    def __init__(self, *, follows: bool) -> None:
        super().__init__()
        self.follows = follows
        self.view = DocumentView(follows=follows)

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield self.view
            yield DocumentView()

    async def new_view(self) -> DocumentView:
        """Replace the second view by a new one."""
        await self.query(DocumentView).last().remove()
        view = DocumentView(follows=self.follows)
        await self.query_one(Horizontal).mount(view)
        return view


def words(random: Random) -> str:
    return " ".join(random.choices(_WORDS, k=random.choice((1, 5, 40, 200))))


def seen(view: DocumentView) -> Seen:
    """Return the drawn lines, including those that the view and Textual did not draw again."""
    strips = view.render_lines(Region(0, 0, *view.size))
    return [list(Segment.simplify(strip)) for strip in strips]


def copy(block: Block) -> Block:
    match block:
        case TextBlock():
            return TextBlock(block.text, label=block.label, edge=block.edge, margin=block.margin)
        case PlainBlock():
            plain = PlainBlock(margin=block.margin)
            plain.show(block.text)
            return plain
        case MarkdownBlock():
            markdown = MarkdownBlock()
            markdown.source, markdown.folds, markdown.margin = block.source, block.folds, block.margin
            return markdown
        case PromptBlock():
            return PromptBlock(block.written, edge=block.edge, margin=block.margin)
    raise AssertionError(block)


async def rest(pilot: Pilot[None], view: DocumentView) -> None:
    for _ in range(100):
        await pilot.pause()
        if not any(map(view.document.is_stale, view.document.blocks)):
            break
    await pilot.pause()


class Reader:
    """Does random things to a view."""

    def __init__(self, view: DocumentView, pilot: Pilot[None], random: Random) -> None:
        self.view = view
        self._pilot = pilot
        self._random = random
        self.marked: Block | None = None

    def _new(self) -> Block:
        random, margin = self._random, self._random.randrange(3)
        match random.randrange(4):
            case 0:
                return TextBlock(words(random), label=random.choice((None, Content("label "))), margin=margin)
            case 1:
                plain = PlainBlock(margin=margin)
                plain.show(words(random))
                return plain
            case 2:
                markdown = MarkdownBlock()
                markdown.source, markdown.margin = words(random), margin
                return markdown
        return PromptBlock([Content(line) for line in words(random).split("\n")], edge="$accent", margin=margin)

    async def step(self) -> tuple[str, list[Block]]:
        """Do a random thing. Return its name, and the blocks whose content it changed."""
        random, view, blocks = self._random, self.view, list(self.view.document.blocks)
        kind = random.randrange(10) if blocks else 0
        match kind:
            case 0 | 1:
                before = random.choice([None, *blocks])
                new = [self._new() for _ in range(random.choice((1, 1, 3)))]
                view.add(*new, before=before)
                return "add", new if before is None else [*new, before]
            case 2:
                gone = random.sample(blocks, random.randint(1, min(3, len(blocks))))
                view.drop(*gone)
                self.marked = None if self.marked in gone else self.marked
                return "drop", gone
            case 3 | 4 | 5:
                block = random.choice(blocks)
                self._change(block)
                return "change", [block]
            case 6:
                await self._pilot.resize_terminal(2 * random.randint(4, 45), random.randint(1, 30))
                return "resize", blocks
            case 7:
                view.scroll_to(y=random.randint(0, view.max_scroll_y), animate=False)
                return "scroll", blocks
            case 8:
                view.show_block(random.choice(blocks))
                return "show a block", blocks
            case _:
                self.marked = random.choice([None, *blocks])
                view.mark(self.marked)
                if random.random() < 0.5:
                    view.show_end()
                return "mark", blocks

    def _change(self, block: Block) -> None:
        more = words(self._random)
        match block:
            case PlainBlock():
                block.show(self._random.choice((block.text + more, more, "")))
            case MarkdownBlock() if self._random.random() < 0.2:
                block.folds = not block.folds
            case MarkdownBlock():
                block.source = self._random.choice((block.source + more, more))
            case TextBlock():
                block.text = Content(more)
        self.view.changed(block)


@pytest.mark.parametrize("seed", range(4))
async def test_a_view_equals_a_new_view_and_keeps_its_place(seed: int) -> None:
    random = Random(seed)
    app = Shelf(follows=seed % 2 == 0)
    async with app.run_test(size=(60, 12)) as pilot:
        view, done = app.view, list[str]()
        reader = Reader(view, pilot, random)
        for _ in range(STEPS):
            before, places = seen(view), [view.place_at(y) for y in range(view.size.height)]
            top = view.top
            what, changed = await reader.step()
            done.append(f"{what} {[type(block).__name__ for block in changed[:3]]}")
            await rest(pilot, view)
            new = await app.new_view()
            copies = {block: copy(block) for block in view.document.blocks}
            new.add(*copies.values())
            if reader.marked is not None:
                new.mark(copies[reader.marked])
            await rest(pilot, new)
            assert new.document.height == view.document.height, done[-5:]
            new.scroll_to(y=view.scroll_offset.y, animate=False)
            await rest(pilot, new)
            assert new.size == view.size
            assert new.show_vertical_scrollbar == view.show_vertical_scrollbar, done[-5:]
            assert seen(new) == seen(view), done[-5:]
            in_view = {place.block for place in places if place is not None}
            stays = what in ("add", "drop", "change") and not view.is_following and not in_view & set(changed)
            if stays and top >= 0 and places and places[-1] is not None and view.scroll_offset.y < view.max_scroll_y:
                assert [line.text for line in _text(seen(view))] == [line.text for line in _text(before)], done[-5:]


def _text(found: Seen) -> list[Segment]:
    return [Segment("".join(one.text for one in line)) for line in found]
