"""What the user said."""

from __future__ import annotations

from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from vlmtui.domain.conversation import Turn
from vlmtui.ui.text import visible
from vlmtui.ui.widgets.attachment_view import AttachmentView


class UserTurn(Vertical):
    """The attachments side by side, the text below."""

    DEFAULT_CSS = """
    UserTurn {
        height: auto;
        margin: 1 0 0 0;
        padding: 0 1;
        border-left: outer $accent;
        .media { height: auto; margin-bottom: 0; }
        .said { height: auto; text-style: bold; }
    }
    """

    def __init__(self, turn: Turn, *, first_number: int, cache: Path) -> None:
        super().__init__()
        self._turn = turn
        self._first_number = first_number
        self._cache = cache

    def compose(self) -> ComposeResult:
        if self._turn.attachments:
            with Horizontal(classes="media"):
                for offset, attachment in enumerate(self._turn.attachments):
                    number = self._first_number + offset
                    yield AttachmentView(attachment, number, cache=self._cache, columns=28, rows=7)
        yield Static(visible(self._turn.text), classes="said", markup=False)
