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
        Content.styled(f"{'F5 restarts the engine · ' if dead else ''}Ctrl+R asks again", "$muted"),
    ]
    return Content("\n").join(line for line in lines if line)
