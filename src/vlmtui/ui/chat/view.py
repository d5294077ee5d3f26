"""The protocol by which the chat screen's parts use the screen."""

from __future__ import annotations

from typing import Protocol

from textual.message import Message

from vlmtui.session.compared_message import ComparedMessage
from vlmtui.session.conversation import Conversation
from vlmtui.ui.chat.composer_panel import ComposerPanel
from vlmtui.ui.chat.marked import Marked
from vlmtui.ui.view import View


class ChatView(View, Protocol):
    """The part of the chat screen that every part may use."""

    @property
    def marked(self) -> Marked | None:
        """What the message cursor is on: what an action is meant for that names no message."""

    @property
    def panel(self) -> ComposerPanel:
        """The composer with what is attached."""

    def post_message(self, message: Message) -> bool:
        """Let the screen handle a message, unless it has been left."""


def compared(view: ChatView, chat: Conversation) -> ComparedMessage:
    """The message to compare or to ask several ways: what is marked, else the draft, or the last message. Raises
    VlmtuiError when there is none, or an answer is under way."""
    if view.marked is None:
        return ComparedMessage.of(chat)
    chat.require_rest()
    return ComparedMessage(chat, view.marked.exchange)
