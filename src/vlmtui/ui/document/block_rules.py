"""Parser rules for blocks in answers of vision-language models that Markdown lacks: JSON, HTML and OTSL tables,
LaTeX."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

# Node types of these blocks.
HTML_TABLE, OTSL_TABLE, JSON, MATH = "html_table", "otsl_table", "json_value", "math_block"

_HTML = re.compile(r"<table[\s>]", re.IGNORECASE)
_HTML_END = re.compile(r"</table\s*>", re.IGNORECASE)
_OTSL = re.compile(r"(<otsl>|<(fcel|ecel|ched|rhed|srow)>)")
_MATH = {"$$": "$$", r"\[": r"\]"}
_MATH_LINES_MAX = 100
_JSON_START = re.compile(r'\{\s*("|\}|$)|\[\s*([\[{"\-\d]|$)')
_JSON_MAX = 300_000
_TRIES_MAX = 20
"""Most attempts to parse JSON in one text: each may read all of it."""


def use_block_rules(parser: MarkdownIt) -> None:
    """Add these rules to a parser, and rules for LaTeX inside a line (`$…$`, `\\(…\\)`)."""
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    dollarmath_plugin(parser, allow_labels=False, allow_space=False, allow_digits=False, double_inline=True)
    parser.inline.ruler.before("escape", "math_inline_brackets", _parse_inline_math)
    parser.disable([rule for rule in parser.get_active_rules()["block"] if rule.startswith("math_block")])
    interrupts = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.before("table", "structure", _parse_block, interrupts)  # type: ignore[arg-type]


def _parse_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Parse the block that begins at line `first`, as a rule of markdown-it; return False if none begins there. `last`:
    the line after the text. `silent`: only look whether a block begins."""
    if state.blkIndent or state.sCount[first] > 3:
        return False
    start = state.bMarks[first] + state.tShift[first]
    line = state.src[start : state.eMarks[first]]
    found = _block_at(state, line, start, first, last)
    if found is None:
        return False
    kind, end = found
    if not silent:
        token = state.push(kind, "", 0)
        token.content = state.getLines(first, end, 0, False)
        token.map = [first, end]
        state.line = end
    return True


def _parse_inline_math(state: StateInline, silent: bool) -> bool:
    """Parse `\\(…\\)` as a rule of markdown-it. Plugins search with a regular expression, which takes
    minutes for a text of 100,000 opening brackets."""
    if not state.src.startswith(r"\(", state.pos) or state.env.get("unclosed_math") is state.src:
        return False
    end = state.src.find(r"\)", state.pos + 3)
    if end < 0:
        state.env["unclosed_math"] = state.src
        return False
    if not silent:
        token = state.push("math_inline", "math", 0)
        token.content, token.markup = state.src[state.pos + 2 : end], r"\("
    state.pos = end + 2
    return True


def _block_at(state: StateBlock, line: str, start: int, first: int, last: int) -> tuple[str, int] | None:
    """Return the type of the block that begins with `line`, and the number of the line after the block; None if no
    block begins there."""
    if _HTML.match(line):
        return HTML_TABLE, _line_after(state, _HTML_END, start, first, last)
    if _OTSL.match(line):
        return OTSL_TABLE, _blank_after(state, first, last)
    for opening, closing in _MATH.items():
        if line.startswith(opening):
            end = _math_end(state, opening, closing, first, last)
            return None if end is None else (MATH, end)
    if _JSON_START.match(line):
        end = _json_end(state, start, first, last)
        return None if end is None else (JSON, end)
    return None


def _line_after(state: StateBlock, closing: re.Pattern[str], start: int, first: int, last: int) -> int:
    """Return the number of the line after the one in which `closing` matches. If it matches nowhere, return the number
    of the next empty line."""
    found = closing.search(state.src, start)
    if found is None:
        return _blank_after(state, first, last)
    return next((number + 1 for number in range(first, last) if state.eMarks[number] >= found.end()), last)


def _blank_after(state: StateBlock, first: int, last: int) -> int:
    return next((number for number in range(first + 1, last) if state.isEmpty(number)), last)


def _math_end(state: StateBlock, opening: str, closing: str, first: int, last: int) -> int | None:
    """Return the number of the line after a formula. None if its closing delimiter is missing, or if more text follows
    it in its line."""
    for number in range(first, min(last, first + _MATH_LINES_MAX)):
        line = state.src[state.bMarks[number] : state.eMarks[number]].strip()
        if number == first:
            line = line[len(opening) :]
        if closing in line:
            return number + 1 if line.endswith(closing) else None
        if not line and number > first:
            return None
    return None


def _json_end(state: StateBlock, start: int, first: int, last: int) -> int | None:
    """Return the number of the line after a JSON object or array; None if the text is not JSON. At the end of the text
    the JSON may be cut off."""
    tries = state.env.setdefault("json_tries", 0)
    if tries >= _TRIES_MAX or len(state.src) - start > _JSON_MAX:
        return None
    state.env["json_tries"] = tries + 1
    try:
        _, end = json.JSONDecoder().raw_decode(state.src, start)
    except json.JSONDecodeError as error:
        is_cut = error.pos >= len(state.src.rstrip()) - 1 or error.msg.startswith("Unterminated string")
        return last if is_cut else None
    except RecursionError:
        return None
    number = next((number for number in range(first, last) if state.eMarks[number] >= end), None)
    if number is None or state.src[end : state.eMarks[number]].strip():
        return None
    return number + 1
