"""How a template marks a picture: the token that stands for it, and the tokens around it."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

import msgspec

from vlmtui.inspection.sequence_diff import common_start

TOKEN = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")


class Placeholder(msgspec.Struct, frozen=True):
    """A placeholder's token, and what belongs around it."""

    core: re.Pattern[str]
    """Its token; a group holds its number if it has one."""
    name: str
    before: str = ""
    """The token right before it; empty: none."""
    after: str = ""
    numbered: bool = False


def known_placeholder(layout: str, stops: AbstractSet[str]) -> Placeholder:
    """Return the placeholder of a record's layout (`<|vision_start|><|image_pad|><|vision_end|>`, `<|image_{i}|>`).

    The token for the picture is the last but one of three or more; of fewer, all of them.
    """
    tokens = TOKEN.findall(layout)
    if len(tokens) < 3 or tokens[-2] in stops:
        core = layout.strip() if len(tokens) != 1 or tokens[0] in stops else tokens[0]
        return Placeholder(_pattern(core), core, numbered="{i}" in core)
    return Placeholder(_pattern(tokens[-2]), tokens[-2], tokens[-3], tokens[-1], numbered="{i}" in tokens[-2])


def seen_placeholder(without: str, with_one: str, stops: AbstractSet[str]) -> Placeholder | None:
    """Return the placeholder that the prompt of one picture has and that of none has not; None if nothing differs."""
    start = common_start(without, with_one)
    end = common_start(without[start:][::-1], with_one[start:][::-1])
    added = with_one[start : len(with_one) - end]
    for token in TOKEN.finditer(with_one):  # a token that begins or ends as its neighbour does was cut
        if token.start() < start < token.end():
            added = with_one[token.start() : len(with_one) - end]
    whole = "".join(TOKEN.findall(added)) or added.strip()
    return known_placeholder(whole, stops) if whole else None


def _pattern(core: str) -> re.Pattern[str]:
    return re.compile(re.escape(core).replace(re.escape("{i}"), r"(\d+)"))
