"""The base of the chat screen's parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vlmtui.ui.chat.screen import ChatScreen


class ChatPart:
    """A part of the chat screen. Its methods `action_ID` run actions of the table, whose help says what they do.

    The screen tells a VlmtuiError that they raise, or that the steps raise which they start.
    """

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._app = screen.main_app
        self._chat = screen.chat
        self._engines = screen.engines
