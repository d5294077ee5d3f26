"""Widgets for a user's message."""

from __future__ import annotations

from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Static

from vlmtui.domain.conversation import Media, Text, Turn
from vlmtui.session.draft import token_text
from vlmtui.text import visible
from vlmtui.ui.chat.attachment_grid import PICTURE, AttachmentGrid
from vlmtui.ui.widgets.attachment_view import AttachmentView

_ROOMS = ((50, 150, 60, 20), (36, 0, PICTURE, 10), (0, 0, PICTURE, 6))
"""Size limits of pictures, by terminal size: least rows and columns of the terminal, most columns and rows of a
picture."""


def user_turn_widget(turn: Turn, *, first_number: int | None, cache: Path) -> Widget:
    """Return one widget for a text; more only with attachments. `first_number`: number of its first attachment in
    the prompt; None: left out of prompts."""
    if turn.attachments:
        return IllustratedTurn(turn, first_number=first_number, cache=cache)
    return UserText(turn, first_number=first_number)


class UserText(Static):
    """The text as sent, with a token for each attachment. Without attachments it is the whole turn."""

    DEFAULT_CSS = """
    UserText {
        height: auto;
        margin: 1 0 0 0;
        padding: 0 1;
        border-left: outer $accent;
        text-style: bold;
    }
    """

    def __init__(self, turn: Turn, *, first_number: int | None) -> None:
        super().__init__(_written(turn, first_number), classes="said", markup=False)

    def begin(self, turn: Turn) -> None:
        """Show a turn without attachments in a hidden widget."""
        self.update(_written(turn, None))
        self.display = True


def _written(turn: Turn, first_number: int | None) -> Content:
    """Return the text with its tokens; control characters visible."""
    pieces: list[Content | tuple[str, str]] = []
    number = first_number
    for at, part in enumerate(turn.parts):
        match part:
            case Text(text):
                # As in the composer: the space behind attachments at the start is only for the eye.
                is_first = at > 0 and all(isinstance(one, Media) for one in turn.parts[:at])
                pieces.append(Content(" " * is_first + visible(text)))
            case Media(attachment):
                token = token_text(number, attachment)
                style = "$accent" if number is not None else "$muted strike"
                pieces.append((token, style))
                number = None if number is None else number + 1
    return Content.assemble(*pieces)


class IllustratedTurn(Vertical):
    """The attachments side by side, with the text below."""

    DEFAULT_CSS = """
    IllustratedTurn {
        height: auto;
        margin: 1 0 0 0;
        padding: 0 1;
        border-left: outer $accent;
        .media { margin: 0 0 1 0; grid-gutter: 1 2; }
        UserText { margin: 0; padding: 0; border: none; }
    }
    """

    def __init__(self, turn: Turn, *, first_number: int | None, cache: Path) -> None:
        super().__init__()
        self._turn = turn
        self._first_number = first_number
        self._cache = cache

    def compose(self) -> ComposeResult:
        columns, rows = _room(self.app.size)
        with AttachmentGrid(picture=columns, classes="media"):
            for offset, attachment in enumerate(self._turn.attachments):
                number = None if self._first_number is None else self._first_number + offset
                yield AttachmentView(attachment, number, cache=self._cache, columns=columns, rows=rows)
        yield UserText(self._turn, first_number=self._first_number)


def _room(terminal: Size) -> tuple[int, int]:
    """Return most columns and rows of a picture."""
    fits = (room for height, width, *room in _ROOMS if terminal.height >= height and terminal.width >= width)
    columns, rows = next(fits)
    return columns, rows
