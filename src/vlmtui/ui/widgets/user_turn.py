"""What the user said."""

from __future__ import annotations

from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from vlmtui.domain.conversation import Media, Text, Turn
from vlmtui.ui.controllers.draft import token_text
from vlmtui.ui.text import visible
from vlmtui.ui.widgets.attachment_grid import PICTURE, AttachmentGrid
from vlmtui.ui.widgets.attachment_view import AttachmentView

_TALL = 36
"""Rows of the terminal from which pictures are drawn larger."""

_ROWS, _ROWS_TALL = 6, 10


def user_turn(turn: Turn, *, first_number: int, cache: Path) -> Widget:
    """One widget for a text; more only for attachments."""
    if turn.attachments:
        return IllustratedTurn(turn, first_number=first_number, cache=cache)
    return Said(turn, first_number=first_number)


class Said(Static):
    """The text, with a token for every attachment that does not come before all of it. By itself it is a turn."""

    DEFAULT_CSS = """
    Said {
        height: auto;
        margin: 1 0 0 0;
        padding: 0 1;
        border-left: outer $accent;
        text-style: bold;
    }
    """

    def __init__(self, turn: Turn, *, first_number: int) -> None:
        super().__init__(_written(turn, first_number), classes="said", markup=False)


def _written(turn: Turn, first_number: int) -> Content:
    """The text with its tokens; control characters visible."""
    pieces: list[Content | tuple[str, str]] = []
    number = first_number
    for part in turn.parts:
        match part:
            case Text(text):
                pieces.append(Content(visible(text)))
            case Media(attachment):
                pieces += [(token_text(number, attachment), "$accent")] if any(map(len, pieces)) else []
                number += 1
    return Content.assemble(*pieces)


class IllustratedTurn(Vertical):
    """The attachments side by side, the text below."""

    DEFAULT_CSS = """
    IllustratedTurn {
        height: auto;
        margin: 1 0 0 0;
        padding: 0 1;
        border-left: outer $accent;
        .media { margin: 0 0 1 0; grid-gutter: 1 2; }
        Said { margin: 0; padding: 0; border: none; }
    }
    """

    def __init__(self, turn: Turn, *, first_number: int, cache: Path) -> None:
        super().__init__()
        self._turn = turn
        self._first_number = first_number
        self._cache = cache

    def compose(self) -> ComposeResult:
        rows = _ROWS_TALL if self.app.size.height >= _TALL else _ROWS
        with AttachmentGrid(classes="media"):
            for offset, attachment in enumerate(self._turn.attachments):
                number = self._first_number + offset
                yield AttachmentView(attachment, number, cache=self._cache, columns=PICTURE, rows=rows)
        yield Said(self._turn, first_number=self._first_number)
