"""Edits earlier messages, and switches between the resulting branches."""

from __future__ import annotations

from typing import Protocol

from vlmtui.errors import Remedy, VlmtuiError, bad_input
from vlmtui.session.branch import Sibling
from vlmtui.session.conversation import Conversation
from vlmtui.text import is_number
from vlmtui.ui.actions import ActionMethods
from vlmtui.ui.chat.view import ChatView


class BranchesView(ChatView, Protocol):
    """What branches need from the chat screen."""

    def show_draft(self) -> None:
        """Show the draft, and whether it edits an earlier message."""

    async def show_conversation(self) -> None:
        """Show the conversation after its turns changed."""


class Branches:
    """Edits messages, switches branches, starts new conversations and saves them as files."""

    def __init__(self, view: BranchesView, chat: Conversation) -> None:
        self._view = view
        self._chat = chat

    @property
    def actions(self) -> ActionMethods:
        return {
            "new_chat": self.new_chat,
            "save": self.save,
            "edit": self.edit,
            "leave_edit": self.leave_edit,
            "branch_before": self.show_before,
            "branch_after": self.show_after,
            "branch": self.show,
            "branch_here": self.branch_here,
        }

    async def new_chat(self) -> None:
        """Start a new conversation with the same model; the draft and its attachments stay."""
        if self._chat.running is not None:
            self._view.tell("Still answering.", Remedy.STOP_ANSWER)
            return
        self._chat.clear()
        await self._view.show_conversation()

    async def save(self, name: str = "") -> None:
        """Save the conversation as a file."""
        from vlmtui.session.conversation_file import save_conversation  # with all that exports it

        try:
            await save_conversation(self._chat, name, self._view)
        except VlmtuiError as error:
            self._view.tell_error(error)

    async def edit(self, number: str = "") -> None:
        """Edit message `number`, or else the selected one or the last. Sending creates a branch."""
        if number and not is_number(number):
            self._view.tell_error(bad_input("/edit takes the number of a message."))
            return
        if not number and self._view.marked is not None:
            number = str(self._chat.number_of(self._view.marked.exchange))
        before, was_editing = self._chat.draft.text, self._chat.editing is not None
        try:
            self._chat.begin_edit(int(number) if number else None)
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        if before.strip() and not was_editing:
            self._view.panel.take_text(before)
            self._view.tell("Your draft is in the message history: the Up key restores it.")
        self._view.show_draft()

    def branch_here(self) -> None:
        """Write another message after the selected one; sending creates a branch."""
        marked = self._view.marked
        if marked is None:
            return
        try:
            self._chat.require_rest()
            self._chat.leave_edit()
            if marked.exchange is not self._chat.last:
                self._chat.begin_edit(self._chat.number_of(marked.exchange) + 1)
                self._chat.draft.clear()
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        self._view.show_draft()

    def leave_edit(self) -> None:
        """Cancel editing; the message is unchanged."""
        self._chat.leave_edit()
        self._view.show_draft()

    async def show_before(self) -> None:
        """Previous branch (at the last fork)."""
        await self._step(-1)

    async def show_after(self) -> None:
        """Next branch (at the last fork)."""
        await self._step(1)

    async def show(self, number: str = "") -> None:
        """Show the branch with this number."""
        try:
            if not is_number(number):
                raise bad_input("/branch takes a number.")
            await self._chat.show_branch(int(number))
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        await self._view.show_conversation()

    async def _step(self, by: int) -> None:
        marked = self._view.marked
        try:
            if marked is None:
                moved = await self._chat.step(by)
            else:
                moved = marked.turn is not None and 1 <= marked.siblings.position + by <= marked.siblings.count
                if marked.turn is not None and moved:
                    await self._chat.show_sibling(Sibling(marked.turn, marked.siblings.position + by))
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        if moved:
            await self._view.show_conversation()
        else:
            self._view.tell("There is no other branch on that side.", Remedy.MAKE_BRANCH)
