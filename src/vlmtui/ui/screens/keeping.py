"""What the chat screen does with what is stored: drafts, branches, another conversation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from textual import on, work
from textual.widgets import Static

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.store.records import ConversationId
from vlmtui.ui.controllers.answering import Suspect
from vlmtui.ui.screens.inspecting import InspectingScreen
from vlmtui.ui.text import one_line
from vlmtui.ui.widgets.composer import Composer
from vlmtui.ui.widgets.composer_panel import ComposerPanel


class KeepingScreen(InspectingScreen):
    """The store's half of the chat."""

    @abstractmethod
    async def show_conversation(self) -> None:
        """Another conversation, or another branch: show it, and its draft."""

    def open_conversation(self, conversation: ConversationId) -> None:
        """Go on with another conversation."""
        self.call_app("open_conversation", conversation)

    def call_app(self, method: str, *arguments: str) -> None:
        """The app's own part of an action; a screen does not import the app."""
        getattr(self.app, method)(*arguments)

    @on(ComposerPanel.DraftChanged)
    def _keep_draft(self) -> None:
        model = self.engine_controller.model
        self.chat.draft_changed(model.spec.name if model is not None else "")

    async def action_edit(self, number: str = "") -> None:
        """Write a message anew, by its number; without one, the last. Sending it makes a new branch there."""
        if number and not number.isdecimal():
            self.tell_error(bad_input("/edit takes the number of a message."))
            return
        before, was_editing = self.chat.draft.text, self.chat.editing is not None
        try:
            await self.chat.begin_edit(int(number) if number else None)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        if before.strip() and not was_editing:
            self.panel.take_text(before)
            self.tell("What was written here is the newest of the earlier messages: the Up key brings it back.")
        self.show_draft()

    def action_leave_edit(self) -> None:
        """Leave the message as it is."""
        self.chat.leave_edit()
        self.show_draft()

    async def action_branch_before(self) -> None:
        """Show the branch before, of the last place that has several."""
        await self._step(-1)

    async def action_branch_after(self) -> None:
        """Show the next branch, of the last place that has several."""
        await self._step(1)

    async def action_branch(self, number: str = "") -> None:
        """Show the branch of that number."""
        try:
            if not number.isdecimal():
                raise bad_input("/branch takes a number.")
            await self.chat.show_branch(int(number))
        except VlmtuiError as error:
            self.tell_error(error)
            return
        await self.show_conversation()

    def show_draft(self) -> None:
        """Show the draft, and whether it takes an earlier message's place."""
        composer = self.query_one(Composer)
        composer.text = self.chat.draft.text
        composer.move_cursor(composer.document.end)
        composer.focus()
        self.show_editing()

    def show_editing(self) -> None:
        """Whether an earlier message is written anew."""
        editing, bar = self.chat.editing, self.query_one("#editing", Static)
        bar.display = editing is not None
        if editing is not None:
            bar.update(f"Message {self.chat.number_of(editing)} anew · Enter makes a new branch · Esc leaves it")
        self.prepare_panel()
        self.refresh_bindings()

    def tell_limits(self) -> None:
        """What of the conversation the model does not take."""
        model = self.engine_controller.model
        problem = self.chat.too_many(model.family) if model is not None else ""
        if problem:
            self.notify(problem, severity="warning", timeout=15, markup=False)

    @work(group="modal")
    async def ask_first(self, suspect: Suspect, go_on: Callable[[], None]) -> None:
        """Go on with a turn that the engine died of only when the user says so."""
        from vlmtui.ui.screens.confirm import ConfirmScreen

        name = f" Suspected: {one_line(suspect.attachment.name)}." if suspect.attachment else ""
        question = f"The engine died {suspect.deaths} times of this message.{name} Send it once more?"
        if await self.app.push_screen_wait(ConfirmScreen(question, yes="Send it", no="Leave it")):
            go_on()

    async def _step(self, by: int) -> None:
        try:
            moved = await self.chat.step(by)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        if moved:
            await self.show_conversation()
        else:
            self.tell("There is no other branch on that side. Ctrl+R and Alt+E make one.")
