"""The actions on shown answers: copy, show reasoning, go to the end."""

from __future__ import annotations

from typing import Protocol

from vlmtui.session.conversation import Conversation
from vlmtui.ui.actions import ActionMethods
from vlmtui.ui.chat.transcript import Transcript
from vlmtui.ui.chat.view import ChatView


class TranscriptView(ChatView, Protocol):
    """What these actions need from the chat screen."""

    @property
    def transcript(self) -> Transcript:
        """The messages and answers."""

    def copy_text(self, text: str) -> None:
        """Copy a text to the terminal's clipboard."""


class TranscriptActions:
    """Copies answers, shows and hides reasoning, goes to the end."""

    def __init__(self, view: TranscriptView, chat: Conversation) -> None:
        self._view = view
        self._chat = chat

    @property
    def actions(self) -> ActionMethods:
        return {
            "copy_answer": self.copy_answer,
            "toggle_thinking": self.toggle_thinking,
            "jump_end": self.jump_end,
        }

    def copy_answer(self) -> None:
        """Copy the selected message, or else the last answer, through the terminal (OSC 52)."""
        marked = self._view.marked
        text = marked.text if marked is not None else self._newest()
        if not text:
            self._view.tell("There is no answer to copy yet." if marked is None else "There is no text to copy here.")
            return
        self._view.copy_text(text)
        self._view.tell(f"Copied {len(text):,} characters.")

    def _newest(self) -> str:
        return next((item.answer.text for item in reversed(self._chat.exchanges) if item.answer.text), "")

    def toggle_thinking(self) -> None:
        """Show or hide the latest reasoning."""
        if not self._view.transcript.toggle_reasoning():
            self._view.tell("No answer on this screen has reasoning.")

    def jump_end(self) -> None:
        """Go to the newest text and follow it."""
        self._view.transcript.show_end()
