"""Splits an answer into parts that can be copied: reasoning, text, code, JSON, tables, formulas."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from vlmtui.inspection.thinking import ThinkingParts
from vlmtui.text import counted
from vlmtui.ui.document.block_rules import HTML_TABLE, MATH, OTSL_TABLE

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode


class PartKind(Enum):
    """The kind of a part; the value is its name on the screen."""

    REASONING = "reasoning"
    TEXT = "text"
    CODE = "code"
    JSON = "JSON"
    TABLE = "table"
    FORMULA = "formula"


class AnswerPart(NamedTuple):
    kind: PartKind
    text: str
    """The part as the model wrote it, untrusted text; a fenced code block without its fence."""

    def __str__(self) -> str:
        """Return kind and length: `JSON, 34 lines`."""
        return f"{self.kind.value}, {counted(len(self.text.splitlines()), 'line')}"


def answer_parts(parts: ThinkingParts) -> list[AnswerPart]:
    """Return the parts in their order; neighbouring blocks of text are one part."""
    from vlmtui.ui.document.markdown_lines import markdown_parser, top_blocks

    found = [AnswerPart(PartKind.REASONING, parts.thinking)] if parts.thinking else []
    for written, node in top_blocks(markdown_parser(), parts.answer):
        kind = _kind(node)
        text = node.content if node.type in ("fence", "code_block") else written
        if kind is PartKind.TEXT and found and found[-1].kind is kind:
            found[-1] = AnswerPart(kind, found[-1].text + text)
        else:
            found.append(AnswerPart(kind, text))
    stripped = (AnswerPart(part.kind, part.text.strip("\n")) for part in found)
    return [part for part in stripped if part.text.strip()]


def _kind(node: SyntaxTreeNode) -> PartKind:
    from vlmtui.ui.document.markdown_lines import is_json

    if is_json(node):
        return PartKind.JSON
    if node.type in ("fence", "code_block"):
        return PartKind.CODE
    if node.type in ("table", HTML_TABLE, OTSL_TABLE):
        return PartKind.TABLE
    return PartKind.FORMULA if node.type == MATH else PartKind.TEXT
