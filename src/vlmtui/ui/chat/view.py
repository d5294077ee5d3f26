"""The chat screen as its parts see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from textual.message import Message

from vlmtui.session.comparison import ComparedMessage
from vlmtui.session.conversation import Conversation
from vlmtui.ui.view import View

if TYPE_CHECKING:
    from vlmtui.ui.chat.blocks import Marked
    from vlmtui.ui.chat.composer import ComposerPanel


class ChatView(View, Protocol):
    """What all parts may use of the chat screen."""

    @property
    def marked(self) -> Marked | None:
        """The selected message or answer: the target of actions without a number."""

    @property
    def panel(self) -> ComposerPanel:
        """The composer with its attachments."""

    def post_message(self, message: Message) -> bool:
        """Post a message to the screen, unless it is closed."""


def compared(view: ChatView, chat: Conversation) -> ComparedMessage:
    """Return the message to compare or fan out: the selected one, or else the draft or the last message. Raises
    VlmtuiError if there is none, or while an answer is running."""
    if view.marked is None:
        return ComparedMessage.of(chat)
    chat.require_rest()
    return ComparedMessage(chat, view.marked.exchange)
