"""The protocol by which the chat screen's parts use the screen."""

from __future__ import annotations

from typing import Protocol

from textual.message import Message

from vlmtui.ui.chat.composer_panel import ComposerPanel
from vlmtui.ui.view import View


class ChatView(View, Protocol):
    """The part of the chat screen that every part may use."""

    @property
    def panel(self) -> ComposerPanel:
        """The composer with what is attached."""

    def post_message(self, message: Message) -> bool:
        """Let the screen handle a message, unless it has been left."""
