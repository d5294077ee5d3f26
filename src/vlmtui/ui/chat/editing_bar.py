"""The line that says which earlier message is being edited."""

from __future__ import annotations

from textual.widgets import Static

from vlmtui.session.conversation import Conversation
from vlmtui.ui.keys import with_keys


class EditingBar(Static):
    """Hidden unless an earlier message is being edited."""

    def __init__(self, chat: Conversation) -> None:
        super().__init__(id="editing", markup=False)
        self._chat = chat

    def show(self) -> None:
        """Show the number of the message that is being edited."""
        editing = self._chat.editing
        self.display = editing is not None
        if editing is not None:
            told = f"Editing message {self._chat.number_of(editing)} · Enter send as branch · {{leave_edit}} cancel"
            self.update(with_keys(self.app, told))
