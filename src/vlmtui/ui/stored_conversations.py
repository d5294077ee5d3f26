"""Opens stored conversations in the app, and offers a backup if the database is damaged."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from vlmtui.errors import VlmtuiError
from vlmtui.store.errors import damaged
from vlmtui.text import one_line
from vlmtui.ui.terminal.key_queue import ask_user

if TYPE_CHECKING:
    from vlmtui.session.resume import ResumePoint
    from vlmtui.store.records import ConversationId, TurnId
    from vlmtui.ui.app import VlmtuiApp
    from vlmtui.ui.terminal.key_queue import Steps


class StoredConversations:
    """Opens stored conversations, keeps the store tidy, and replaces a damaged database with a backup."""

    def __init__(self, app: VlmtuiApp) -> None:
        self._app = app
        self._is_asking = False
        app.conversation.on_damage = self.offer_backup

    def open(self, conversation: ConversationId, turn: TurnId | None = None, words: str = "") -> None:
        """Open a conversation; if no model is loaded, load the conversation's own. `turn`: a turn to select, with
        `words` highlighted."""
        self._app.start_dialog(partial(self._open, conversation, turn, words))

    def keep_house(self) -> None:
        """Make the day's backup, erase conversations that were deleted long ago, and remove unfinished files of killed
        processes. Failed steps are tried again at the next start."""
        self._app.start(self._app.conversation.keep_house, "housekeeping")

    def offer_backup(self, then: Steps | None = None) -> None:
        """If the database is damaged, ask whether to continue with a backup. The damaged file is kept. `then`: a
        coroutine function to run after the backup was restored."""
        self._app.start(partial(self._offer_in_a_pause, then), "backup")

    async def resume(self) -> None:
        """Open the conversation that the app was started with, if any. Raises VlmtuiError."""
        resumed = self._app.services.resumed
        if resumed is not None:
            await self._app.conversation.require_chat().open(resumed.conversation)
            await self.show()
            self._tell_import(resumed)

    async def show(self, is_open: bool = False) -> None:
        """Show the open conversation. `is_open`: the chat screen shows this conversation already,
        so keep the draft on the screen."""
        screen = self._app.chat_screen()
        if screen is not None:
            self._app.go_back_to(screen)
            await screen.show_conversation(is_open=is_open)
            screen.attachments.tell_limits()
        self._app.conversation_begun()

    async def _open(self, conversation: ConversationId, turn: TurnId | None, words: str) -> None:
        chat = self._app.conversation.require_chat()
        try:
            if chat.id != conversation:
                await chat.open(conversation)
            if turn is not None:
                await chat.show_turn(turn)
            await self.show()
            if turn is not None and (screen := self._app.chat_screen()) is not None:
                await screen.land(turn, words)
            found = await self._resume_point(conversation)
            self._tell_import(found)
            if self._app.engines.model is None:
                self._choose_model(found)
        except VlmtuiError as error:
            self._app.tell_error(error)
        self._app.conversation.tell_notice()

    async def export(self, conversation: ConversationId, name: str = "") -> None:
        """Write a conversation to a file in the format of its suffix; ask for its name if none is given. Raises
        VlmtuiError."""
        from vlmtui.export.conversation import DEFAULT, file_name_of
        from vlmtui.session.conversation import export_conversation
        from vlmtui.ui.widgets.dialogs import NameScreen

        store = self._app.services.store
        if not name:
            found = await store.run(lambda store: store.conversation(conversation))
            hint = ".md or .html to read · .json with everything"
            asked = NameScreen("Export to", value=file_name_of(found, DEFAULT), hint=hint)
            chosen = await ask_user(self._app, asked)
            name = chosen or ""
        if name:
            await export_conversation(store, conversation, name, self._app)

    async def load_model_of(self, conversation: ConversationId) -> None:
        """Load the model that answered last in a conversation. Raises VlmtuiError if it is not known here."""
        self._choose_model(await self._resume_point(conversation))

    async def _resume_point(self, conversation: ConversationId) -> ResumePoint:
        from vlmtui.session.resume import resume_point

        return await self._app.services.store.run(lambda store: resume_point(store, conversation))

    def _choose_model(self, found: ResumePoint) -> None:
        from vlmtui.session.resume import resumed_model

        services = self._app.services
        self._app.models.choose(resumed_model(services.registry, services.settings.engines, found))

    def _tell_import(self, found: ResumePoint) -> None:
        """If the conversation is an imported one, notify the user of its model and of its settings that are not used
        here."""
        from vlmtui.session.resume import not_used

        if found.record is not None and (text := not_used(found.record)):
            self._app.tell(text, severity="warning")  # stays beside an error that is told at the same time

    async def _offer_in_a_pause(self, then: Steps | None) -> None:
        """Offer a backup; what the user is typing is not the answer."""
        await self._app.key_queue.pause()
        self._app.start_dialog(partial(self._offer_backup, then))

    async def _offer_backup(self, then: Steps | None) -> None:
        damage = self._app.services.store.damage
        if damage is None or self._is_asking:
            return
        self._is_asking = True
        fault = f"{damage.path.name} is damaged: {one_line(damage.reason)}."
        question = f"{fault} {damage.offer} Continue with {damage.successor}? The damaged file is kept."
        try:
            if not await self._app.confirm(question, yes="Continue", no="Not now", careful=True):
                self._app.tell_error(damaged(damage))
                self._app.conversation_begun()
                return
            done = await self._app.services.store.restore()
        except VlmtuiError as error:
            self._app.tell_error(error)
            self._app.conversation_begun()
            return
        finally:
            self._is_asking = False
        self._app.tell(one_line(done), seconds=60, severity="warning")
        if then is not None:
            await then()
