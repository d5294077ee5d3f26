"""Markdown as plain styled lines of a given width: what the live Markdown widgets show, without the widgets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.tree import SyntaxTreeNode
from textual.content import Content
from textual.highlight import highlight

Lines = list[Content]

_BULLETS = ("• ", "▪ ", "‣ ", "⭑ ", "◦ ")
_CODE = "$text-warning 95% on $warning 10%"
_SPANS = {"em": "italic", "strong": "bold", "s": "strike", "link": "underline"}
_MIN_WIDTH = 8
_CELL_MIN = 1


class _Block(NamedTuple):
    """Lines with the empty ones that they want above and below."""

    lines: Lines
    above: int = 0
    below: int = 1


def markdown_parser() -> MarkdownIt:
    """For what models write: tags such as `<box>` are text, and a line break stays one, as in a page that was read."""
    parser = MarkdownIt("gfm-like", {"html": False})
    parser.core.ruler.push("line_breaks", _keep_line_breaks)
    return parser


def _keep_line_breaks(state: StateCore) -> None:
    for token in state.tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"


def markdown_lines(source: str, width: int) -> Lines:
    """`source` laid out in lines of at most `width` cells (very narrow widths are exceeded)."""
    root = SyntaxTreeNode(markdown_parser().parse(source))
    return _stacked([_block(node, max(_MIN_WIDTH, width), depth=0) for node in root.children])


def _stacked(blocks: Sequence[_Block]) -> Lines:
    """The blocks below each other. Of two neighbours' wishes for space the larger one counts; none at the ends."""
    lines: Lines = []
    gap = 0
    for number, block in enumerate(blocks):
        if number:
            lines += [Content()] * max(gap, block.above)
        lines += block.lines
        gap = block.below
    return lines


def _block(node: SyntaxTreeNode, width: int, depth: int) -> _Block:
    match node.type:
        case "paragraph":
            return _Block(_inline(node).wrap(width), below=0 if depth else 1)
        case "heading":
            return _Block(_inline(node).stylize(_heading(node.tag)).wrap(width), above=1)
        case "fence" | "code_block":
            return _Block(_fence(node, width), above=1)
        case "blockquote":
            return _Block(_quote(node, width, depth), above=1)
        case "bullet_list" | "ordered_list":
            return _Block(_list(node, width, depth), below=0 if depth else 1)
        case "table":
            return _Block(_table(node, width))
        case "hr":
            return _Block([Content.styled("─" * width, "$foreground 20%")])
        case _:
            return _Block(Content(node.content.rstrip("\n") if node.children == [] else "").wrap(width))


def _heading(tag: str) -> str:
    return "bold $accent" if tag in ("h1", "h2") else "bold"


def _fence(node: SyntaxTreeNode, width: int) -> Lines:
    code = highlight(node.content.rstrip("\n"), language=node.info.split(" ")[0] or None)
    lines = [Content(), *code.wrap(max(_MIN_WIDTH, width - 4)), Content()]
    return [_filled(line.pad_left(2), width, "on $surface") for line in lines]


def _quote(node: SyntaxTreeNode, width: int, depth: int) -> Lines:
    inner = _stacked([_block(child, width - 2, depth + 1) for child in node.children])
    return [Content.assemble(("▌ ", "$accent 50%"), line) for line in inner]


def _list(node: SyntaxTreeNode, width: int, depth: int) -> Lines:
    marks = _marks(node, depth)
    lines: Lines = []
    for mark, item in zip(marks, node.children, strict=True):
        inner = _stacked([_block(child, width - len(mark), depth + 1) for child in item.children]) or [Content()]
        lines.append(Content.assemble((mark, "$accent"), inner[0]))
        lines += [line.pad_left(len(mark)) for line in inner[1:]]
    return lines


def _marks(node: SyntaxTreeNode, depth: int) -> list[str]:
    if node.type == "bullet_list":
        return [_BULLETS[depth % len(_BULLETS)]] * len(node.children)
    start = int(node.attrs.get("start", 1))
    numbers = [f"{number}. " for number in range(start, start + len(node.children))]
    return [number.rjust(max(map(len, numbers)) + 1) for number in numbers]


def _table(node: SyntaxTreeNode, width: int) -> Lines:
    rows = [[_inline(cell) for cell in row.children] for part in node.children for row in part.children]
    if not rows:
        return []
    rows[0] = [cell.stylize("bold $accent") for cell in rows[0]]
    widths = _columns([[cell.cell_length for cell in row] for row in rows], width)
    bar = Content.styled("│", "$foreground 20%")
    lines = [_rule("┌", "┬", "┐", widths)]
    for number, row in enumerate(rows):
        if number:
            lines.append(_rule("├", "┼", "┤", widths))
        cells = [cell.wrap(column) for cell, column in zip(row, widths, strict=True)]
        for pieces in zip_longest(*cells, fillvalue=Content()):
            padded = [
                _filled(piece, column).pad_left(1).pad_right(1) for piece, column in zip(pieces, widths, strict=True)
            ]
            lines.append(Content.assemble(bar, bar.join(padded), bar))
    return [*lines, _rule("└", "┴", "┘", widths)]


def _columns(lengths: list[list[int]], width: int) -> list[int]:
    """Each column as wide as its widest cell; the widest ones give way where the table would not fit."""
    widths = [max(_CELL_MIN, *column) for column in zip(*lengths, strict=True)]
    room = width - 3 * len(widths) - 1
    while sum(widths) > room and max(widths) > _CELL_MIN:
        widths[widths.index(max(widths))] -= 1
    return widths


def _rule(left: str, middle: str, right: str, widths: Sequence[int]) -> Content:
    return Content.styled(left + middle.join("─" * (width + 2) for width in widths) + right, "$foreground 20%")


def _filled(line: Content, width: int, style: str = "") -> Content:
    filled = line.pad_right(max(0, width - line.cell_length))
    return filled.stylize_before(style) if style else filled


def _inline(node: SyntaxTreeNode) -> Content:
    """The text below a node, with its styles."""
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
        case "image":
            return Content(f"🖼  {node.content}")
        case _:
            return Content(node.content)
