"""The engines of a comparison's two sides: as they are typed, and as they are chosen."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping

from vlmtui.errors import bad_input
from vlmtui.session.comparison import CompareController
from vlmtui.session.lane_engines import EXAMPLES, HERE, LaneEngines

FindEngines = Callable[[Mapping[str, str]], Awaitable[LaneEngines | None]]
"""Finds engines by the names that the user gave each side; None if the user chose none. Raises VlmtuiError."""
_SIDE = re.compile(r'(chat|raw)=(?:"([^"]*)"|(\S*))(?:\s+|$)')
_HINT = 'For instance /compare raw=transformers, or /compare chat=here raw="here dtype=bfloat16".'


def read_side_engines(text: str) -> tuple[dict[str, str], str]:
    """Return the engines of `raw=transformers chat="here dtype=bfloat16"`, and the text after them. Raises VlmtuiError
    for a side that is given twice or without a name, and for a quotation mark that is not closed."""
    found: dict[str, str] = {}
    rest = text.strip()
    while match := _SIDE.match(rest):
        mode = match[1]
        name = (match[2] or match[3] or "").strip()
        if '"' in name:
            raise bad_input("A quotation mark is not closed.", hint=_HINT)
        if not name:
            raise bad_input(f"{mode}= names no engine.", hint=EXAMPLES)
        if mode in found:
            raise bad_input(f"{mode} is given twice.", hint=_HINT)
        found[mode] = name
        rest = rest[match.end() :]
    return found, rest


async def choose_side_engines(controller: CompareController, names: Mapping[str, str], find: FindEngines) -> None:
    """Give sides the engines with these names; the others keep theirs, and all do if the user cancels. Raises
    VlmtuiError."""
    wanted = {**controller.engine_names, **names}
    if set(wanted.values()) == {HERE}:
        controller.engine_names, controller.engines = wanted, None
    elif (engines := await find(wanted)) is not None:
        controller.engine_names, controller.engines = wanted, engines
