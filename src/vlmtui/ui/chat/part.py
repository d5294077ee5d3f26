"""The base class of the chat screen's parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vlmtui.ui.chat.screen import ChatScreen


class ChatPart:
    """A part of the chat screen. A method `action_ID` runs the action ID, which `ui/actions` describes.

    If an action, or work that it starts, raises VlmtuiError, the user is notified.
    """

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._app = screen.main_app
        self._chat = screen.chat
        self._engines = screen.engines
