"""What is said of a failure below the answer that it ended."""

from __future__ import annotations

from textual.content import Content

from vlmtui.engine.session import Answer
from vlmtui.errors import ErrorKind
from vlmtui.ui.text import visible

_DETAIL_MAX = 600
"""Characters of a failure's technical part; its end says most."""


def failure_note(answer: Answer) -> Content:
    """What, why, what to do; empty when nothing failed."""
    failure = answer.failure
    if failure is None:
        return Content()
    dead = failure.kind is ErrorKind.ENGINE_DIED
    lines = [
        Content.styled(visible(failure.message), "bold"),
        Content.styled(visible(failure.detail.strip()[-_DETAIL_MAX:]), "$muted"),
        Content("" if answer.text else "Nothing came, so later turns are sent without this one."),
        Content(visible(failure.hint)),
        # Whether the engine comes back by itself or F5 has to be pressed is in the status line, as it stands now.
        Content.styled(f"Ctrl+R asks again{', once the engine is loaded' if dead else ''}", "$muted"),
    ]
    return Content("\n").join(line for line in lines if line)
