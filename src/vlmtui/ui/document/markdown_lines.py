"""Lays out Markdown as styled lines of a given width.

Nothing that a model wrote is hidden. What Markdown hides (link targets, definitions, comments, tags, the backslashes of
LaTeX) is shown as text. A block that would lose letters or digits, or would be too wide, is shown as it was written.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from rich.cells import cell_len
from textual.content import Content

from vlmtui.ui.document.block_rules import HTML_TABLE, JSON, MATH, OTSL_TABLE, use_block_rules
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.lines import BLANK, Line, Lines, one, wrapped
from vlmtui.ui.document.tables import Rows, read_html_table, read_otsl_table, table_lines, without_tags

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

_BULLETS = ("• ", "▪ ", "‣ ", "⭑ ", "◦ ")
_CODE = "$text-warning 95% on $warning 10%"
_MATH_STYLE = "$text-accent"
_TABLES: Mapping[str, Callable[[str], Rows | None]] = {HTML_TABLE: read_html_table, OTSL_TABLE: read_otsl_table}
"""Readers of HTML and OTSL tables, by node type."""
_SPANS = {"em": "italic", "strong": "bold", "s": "strike", "link": "underline"}
_MIN_WIDTH = 8
_HIDDEN = ("link", "image", "reference", "autolink", "entity", "text_join")
"""Disabled Markdown rules, which would hide text. Without `text_join`, escapes are nodes of their own."""

_NESTING_MAX = 100
_WINDOW = 8_000
"""Characters parsed at a time. A longer block is laid out in pieces, so that a key does not wait for all of it."""
_PIECES = {"paragraph": 1_000, "fence": 1_000}
"""Characters of such a piece, by block type; for other types `_WINDOW`."""
_DENSE = 200
"""A window of more lines without a blank one is laid out in small pieces, since parsing it whole takes too long."""
_SLICE_S = 0.01
"""Seconds of layout after which keys are handled."""
_HIGHLIGHTED_MAX = 64_000
"""Characters of a code block after which it is no longer highlighted."""
_UNSETTLED = 2
"""Number of last blocks that more text may change: a new list item joins the list before it."""

_FOLDED_FROM = 30
"""Lines of JSON above which it is folded."""
_FOLDED_TO = 20
"""Lines of folded JSON that are shown."""
_NUMBERS = re.compile(r"\[[\s\d.,eE+-]{1,4000}\]")

_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")


class _Block(NamedTuple):
    """The lines of a Markdown block, and how many blank lines it needs above and below."""

    lines: Lines
    above: int = 0
    below: int = 1


class MarkdownBlock(Block):
    """Markdown text that grows. The caller makes control characters visible."""

    def __init__(self) -> None:
        super().__init__()
        self.source = ""
        self.instead = Content()
        """Shown if the text is empty."""
        self.folds = True
        """True if only the beginning of long JSON is shown."""
        self._layout = MarkdownLines()

    def lay_out(self, width: int) -> Lines:
        if not self.source:
            self.is_behind = False
            return wrapped(self.instead, width)[:1] if self.instead else []
        lines = self._layout.lay_out(self.source, width, folds=self.folds, in_slices=True)
        self.is_behind = self._layout.is_behind
        return lines


class MarkdownLines:
    """Lays out a growing text. The layout of its first blocks is kept; only the last ones are laid out again."""

    def __init__(self) -> None:
        self._parser = markdown_parser()
        self._settled = ""
        """The beginning of the text, whose layout (in `_page`) is final."""
        self._page = _Page()
        self._width = -1
        self._folds = True
        self._unsettled: dict[str, _Block] = {}
        """The last blocks of the previous layout, by their text: usually only one of them changes."""
        self._open_code: _OpenCode | None = None
        self._inside = ""
        """The type of the block in which `_settled` ends; empty: it ends between blocks."""
        self.is_behind = False
        """True if the next call of `lay_out` has more to do."""

    def lay_out(self, source: str, width: int, *, folds: bool = True, in_slices: bool = False) -> Lines:
        """Return `source` as lines of at most `width` cells (at least 8).

        `folds`: show only the beginning of long JSON, and how many more lines it has. `in_slices`: stop after about ten
        milliseconds, and set `is_behind` if text is left.
        """
        width = max(_MIN_WIDTH, width)
        if (width, folds) != (self._width, self._folds) or not source.startswith(self._settled):
            self._settled, self._page, self._width, self._folds = "", _Page(), width, folds
            self._unsettled, self._open_code, self._inside = {}, None, ""
        began_s, self.is_behind = time.monotonic(), False
        while len(source) - len(self._settled) > _WINDOW:
            if in_slices and time.monotonic() > began_s + _SLICE_S:
                self.is_behind = True
                return self._page.lines.copy()
            at = len(self._settled)
            self._settle_window(source[at : at + _WINDOW])
        written = self._blocks(source[len(self._settled) :])
        for text, node in written[:-_UNSETTLED]:
            self._settle(text, node)
        page, unsettled = _Page(self._page.lines.copy(), self._page.gap), {}
        for text, node in written[-_UNSETTLED:]:
            unsettled[text] = self._laid_out(text, node)
            page.add(unsettled[text])
        self._unsettled = unsettled
        return page.lines

    def _blocks(self, source: str) -> list[tuple[str, SyntaxTreeNode]]:
        """Parse text that follows `_settled`. If it continues a code block, put the first line of that block before
        it."""
        return top_blocks(self._parser, (self._open_code.fence if self._open_code else "") + source)

    def _settle(self, text: str, node: SyntaxTreeNode) -> None:
        self._page.add(self._laid_out(text, node))
        self._settled += text.removeprefix(self._open_code.fence) if self._open_code else text
        self._open_code = None

    def _laid_out(self, text: str, node: SyntaxTreeNode) -> _Block:
        code = self._open_code
        if code is not None and text.startswith(code.fence):
            return _Block(_code(node.content, code.language, None, self._width))
        found = self._unsettled.get(text)
        return found or _block_or_literal(text, node, self._width, folds=self._folds)

    def _settle_window(self, source: str) -> None:
        """Lay out the next blocks, or a piece of a long one, for good: add their text to `_settled`. `source`: the next
        characters of the text, after which there are more."""
        if self._inside != "fence" and self._inside and source.startswith("\n"):
            self._inside, self._page.gap = "", 1
        is_dense = not self._inside and "\n\n" not in source and source.count("\n") > _DENSE
        size = _PIECES.get("paragraph" if is_dense else self._inside, _WINDOW)
        window = source[: _cut(source, size, self._width)]
        written = self._blocks(window)
        if not written:
            self._settled += window
        elif len(written) > 1:
            self._inside = ""
            for text, node in written[:-_UNSETTLED] or written[:-1]:
                self._settle(text, node)
        elif (only := written[0][1]).type == "fence" and self._is_closed(window, only.markup):
            self._inside = ""
            self._settle(*written[0])
        elif self._inside != only.type:
            self._inside = only.type  # the next call takes a piece of it
        elif only.type == "fence":
            self._settle_code(window, only)
        else:
            piece = "".join(window.splitlines(keepends=True)[: _last_item(only)])
            for text, node in top_blocks(self._parser, piece) if piece != window else written:
                self._page.add(_block_or_literal(text, node, self._width, folds=self._folds))
            self._page.gap = 0
            self._settled += piece

    def _is_closed(self, code: str, fence: str) -> bool:
        """Return whether the last line of a code block is its closing fence. If there is only one line, it is the
        opening fence, unless `code` continues a block."""
        last = code.strip().rpartition("\n")[2].strip()
        is_fence = last.startswith(fence) and not last.strip(fence[0])
        return is_fence and (self._open_code is not None or code.strip() != last)

    def _settle_code(self, source: str, node: SyntaxTreeNode) -> None:
        """Lay out a piece of a code block for good: add its text to `_settled`. More of the block follows."""
        code, title, fence = self._open_code, None, ""
        if code is None:
            before, line, _ = source.partition(f"{node.markup}{node.info}")
            fence = f"{before}{line}\n"
            title = node.info.strip()
            code = _OpenCode(fence.lstrip("\n"), (node.info.split() or ["text"])[0])
        piece = source[len(fence) :]
        language = code.language if code.length < _HIGHLIGHTED_MAX else ""
        lines = _code(piece, language, title, self._width)[:-1]
        self._page.add(_Block(lines, above=0 if title is None else 1, below=0))
        self._settled += source
        self._open_code = code._replace(language=language, length=code.length + len(piece))


class _OpenCode(NamedTuple):
    """A long code block whose first pieces are laid out."""

    fence: str
    """The block's first line, with which each further piece is parsed."""
    language: str
    """Empty: the block is no longer highlighted."""
    length: int = 0
    """The number of characters laid out."""


def _cut(text: str, size: int, width: int) -> int:
    """Return the index at which to cut a piece of about `size` characters off a text: before a paragraph in the piece's
    second half; otherwise after a line, between words, or after a full row."""
    if len(text) <= size:
        return len(text)
    for separator, first in (("\n\n", size // 2), ("\n", 0)):
        if (at := text.rfind(separator, first, size)) > 0:
            return at + len(separator)
    if (at := text.find("\n", size)) > 0:
        return at + 1
    at = text.rfind(" ", 0, size)
    return at + 1 if at > 0 else max(1, size - size % width)


def _last_item(node: SyntaxTreeNode) -> int | None:
    """Return the line where a list's last item begins; None for other blocks and lists of one item."""
    if node.type not in ("bullet_list", "ordered_list") or len(node.children) < 2:
        return None
    lines = node.children[-1].map
    return None if lines is None else lines[0]


@cache
def markdown_parser() -> MarkdownIt:
    """Return a parser for model output: tags such as `<box>` are text, and line breaks are kept."""
    from markdown_it import MarkdownIt

    class LiteralParser(MarkdownIt):
        def normalizeLinkText(self, link: str) -> str:
            """Return the address as it was written: decoded, it could contain bidirectional marks."""
            return link

    parser = LiteralParser("gfm-like", {"html": False, "maxNesting": _NESTING_MAX})
    parser.disable(_HIDDEN)
    use_block_rules(parser)
    return parser


def markdown_lines(source: str, width: int, *, folds: bool = True) -> Lines:
    """Return a complete text as lines."""
    return MarkdownLines().lay_out(source, width, folds=folds)


class _Page:
    """Stacks blocks. The larger of two neighbouring margins separates them; there is none at the ends."""

    def __init__(self, lines: Lines | None = None, gap: int | None = None) -> None:
        self.lines: Lines = [] if lines is None else lines
        self.gap = gap
        """The margin below the last block; None before the first block."""

    def add(self, block: _Block) -> None:
        if self.gap is not None:
            self.lines += [BLANK] * max(self.gap, block.above)
        self.lines += block.lines
        self.gap = block.below


def _stack(blocks: Iterable[_Block]) -> Lines:
    page = _Page()
    for block in blocks:
        page.add(block)
    return page.lines


def top_blocks(parser: MarkdownIt, source: str) -> list[tuple[str, SyntaxTreeNode]]:
    """Parse a text. Return a tuple (text, node) for each top-level block; all the texts together are `source`."""
    from markdown_it.tree import SyntaxTreeNode

    nodes = [node for node in SyntaxTreeNode(parser.parse(source)).children if node.map is not None]
    lines = re.findall(r"[^\n]*\n|[^\n]+", source)
    starts = [0, *(node.map[0] for node in nodes[1:] if node.map is not None), len(lines)]
    return [("".join(lines[start:end]), node) for (start, end), node in zip(pairwise(starts), nodes, strict=False)]


def _block_or_literal(written: str, node: SyntaxTreeNode, width: int, *, folds: bool) -> _Block:
    block = _block(node, width, depth=0)
    text = without_tags(written) if node.type in _TABLES else written
    if max((cell_len(line.plain) for line in block.lines), default=0) <= width and not _loses_text(text, block.lines):
        return _folded(block) if folds and is_json(node) else block
    return _Block(wrapped(Content(written.strip("\n")), width))


def is_json(node: SyntaxTreeNode) -> bool:
    """Return whether a block is JSON, bare or fenced."""
    return node.type == JSON or (node.type == "fence" and node.info.split()[:1] == ["json"])


def _folded(block: _Block) -> _Block:
    if len(block.lines) <= _FOLDED_FROM:
        return block
    rest = one(f"  … {len(block.lines) - _FOLDED_TO:,} more lines", "$muted")
    return block._replace(lines=[*block.lines[:_FOLDED_TO], rest])


def _loses_text(text: str, lines: Lines) -> bool:
    """Return whether letters or digits of the text are missing in the lines."""
    shown = "".join(line.plain for line in lines)
    return not Counter(_NOT_ALPHANUMERIC.sub("", text)) <= Counter(_NOT_ALPHANUMERIC.sub("", shown))


def _block(node: SyntaxTreeNode, width: int, depth: int) -> _Block:
    match node.type:
        case "paragraph":
            return _Block(wrapped(_inline(node), max(_MIN_WIDTH, width)), below=0 if depth else 1)
        case "heading":
            title = _inline(node) or Content(node.markup)
            return _Block(wrapped(title.stylize(_heading(node.tag)), width), above=1)
        case "fence" | "code_block":
            language = (node.info.split() or ["text"])[0]
            return _Block(_code(node.content, language, node.info.strip(), width), above=1)
        case "blockquote":
            return _Block(_quote(node, width, depth), above=1)
        case "bullet_list" | "ordered_list":
            return _Block(_list(node, width, depth), below=0 if depth else 1)
        case "table":
            return _Block(_table(node, width))
        case kind if kind in _TABLES:
            rows = _TABLES[kind](node.content)
            return _Block(_table_lines([[Content(cell) for cell in row] for row in rows or []], width))
        case kind if kind == JSON:
            return _Block(_code(_wrapped_json(node.content, width), "json", "", width), above=1)
        case kind if kind == MATH:
            return _Block(wrapped(Content.styled(node.content.strip("\n"), _MATH_STYLE), width))
        case "hr":
            return _Block([one("─" * width, "$foreground 20%")])
        case _:
            return _Block(wrapped(Content(node.content.rstrip("\n") if node.children == [] else ""), width))


def _heading(tag: str) -> str:
    return "bold $accent" if tag in ("h1", "h2") else "bold"


def _code(text: str, language: str, title: str | None, width: int) -> Lines:
    """Return the lines of a code block below its title. `title` None: the code continues the code above. `language`:
    empty for code without colours."""
    from textual.highlight import highlight  # Pygments takes a while to import

    room, text = max(_MIN_WIDTH, width - 4), text.removesuffix("\n") if title is None else text.rstrip("\n")
    code = highlight(text, language=language) if language else Content(text)
    above = [] if title is None else wrapped(Content.styled(title, "$muted"), room)
    lines = [*above, *wrapped(code, room), BLANK]
    return [line.pad_left(2).filled(width, "on $surface") for line in lines]


def load_parsers() -> None:
    """Import markdown-it and Pygments, which takes a fifth of a second. Call it in a thread, before there is an answer
    to show."""
    from textual.highlight import highlight

    markdown_parser()
    highlight("", language="python")


def _wrapped_json(text: str, width: int) -> str:
    """Return JSON as it was written. If it is a single line and too wide, insert line breaks between its values."""
    if "\n" in text.strip() or len(text) <= width - 4:
        return text
    try:
        return _NUMBERS.sub(_join_numbers, msgspec.json.format(text, indent=2))
    except msgspec.DecodeError:
        return text


def _join_numbers(numbers: re.Match[str]) -> str:
    return " ".join(numbers[0].split()).replace("[ ", "[").replace(" ]", "]")


def _quote(node: SyntaxTreeNode, width: int, depth: int) -> Lines:
    inner = _stack(_block(child, width - 2, depth + 1) for child in node.children) or [BLANK]
    return [line.after(("▌ ", "$accent 50%")) for line in inner]


def _list(node: SyntaxTreeNode, width: int, depth: int) -> Lines:
    marks = _marks(node, depth)
    lines: Lines = []
    for mark, item in zip(marks, node.children, strict=True):
        inner = _stack(_block(child, width - len(mark), depth + 1) for child in item.children) or [BLANK]
        lines.append(inner[0].after((mark, "$accent")).but(indent=0))
        lines += [line.pad_left(len(mark)) for line in inner[1:]]
    return lines


def _marks(node: SyntaxTreeNode, depth: int) -> list[str]:
    if node.type == "bullet_list":
        return [_BULLETS[depth % len(_BULLETS)]] * len(node.children)
    numbers = [f"{item.info}{item.markup} " for item in node.children]
    return [number.rjust(max(map(len, numbers)) + 1) for number in numbers]


def _table(node: SyntaxTreeNode, width: int) -> Lines:
    rows = [row for part in node.children for row in part.children]
    return _table_lines([[_inline(cell) for cell in row.children] for row in rows], width)


def _table_lines(rows: list[list[Content]], width: int) -> Lines:
    return [Line.of(line) for line in table_lines(rows, width)]


def _inline(node: SyntaxTreeNode) -> Content:
    """Return the text of a node's children, with their styles."""
    return Content.assemble(*(_span(child) for child in node.children))


def _span(node: SyntaxTreeNode) -> Content:
    match node.type:
        case "inline" | "em" | "strong" | "s" | "link":
            text = _inline(node)
            return text.stylize(_SPANS[node.type]) if node.type in _SPANS else text
        case "code_inline":
            return Content.styled(node.content, _CODE)
        case "softbreak" | "hardbreak":
            return Content("\n")
        case "math_inline" | "math_inline_double":
            close = {r"\(": r"\)", r"\[": r"\]"}.get(node.markup, node.markup)
            return Content.styled(f"{node.markup}{node.content}{close}", _MATH_STYLE)
        case "text_special":
            return Content(node.markup)
        case _:
            return Content(node.content)
