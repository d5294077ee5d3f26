"""The note below an answer that failed."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.content import Content

from vlmtui.errors import ErrorKind
from vlmtui.session.generation import Answer
from vlmtui.text import visible
from vlmtui.ui.keys import with_keys

_DETAIL_MAX = 600
"""Most characters of a failure's detail; its end is the most useful."""


def failure_note(app: App[Any], answer: Answer) -> Content:
    """Return what happened, why, and what to do; empty when nothing failed."""
    failure = answer.failure
    if failure is None:
        return Content()
    again = with_keys(app, "{regenerate} sends it again")
    dead = failure.kind is ErrorKind.ENGINE_DIED
    lines = [
        Content.styled(visible(failure.message), "bold"),
        Content.styled(visible(failure.detail.strip()[-_DETAIL_MAX:]), "$muted"),
        Content("" if answer.text else "No answer, so this turn is left out of later prompts."),
        Content(visible(failure.hint)),
        # The status line says whether the engine restarts by itself.
        Content.styled(f"{again}{', once the engine is loaded' if dead else ''}", "$muted"),
    ]
    return Content("\n").join(line for line in lines if line)
