"""Owns the app's conversation, and the recorder that stores it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from vlmtui.errors import VlmtuiError
from vlmtui.session.engines import EngineController
from vlmtui.session.teller import Teller
from vlmtui.text import one_line

if TYPE_CHECKING:
    from vlmtui.config.settings import Settings
    from vlmtui.paths import Paths
    from vlmtui.registry.match import Model
    from vlmtui.registry.schema import Family
    from vlmtui.session.async_store import AsyncStore
    from vlmtui.session.conversation import Conversation
    from vlmtui.session.persistence import Recorder
    from vlmtui.session.settings import ChatSettings

_SETTLE_S = 3.0


class ConversationHolder:
    """Owns the conversation, which outlives the chat screen and can continue with another model."""

    def __init__(
        self,
        teller: Teller,
        engine_controller: EngineController,
        *,
        store: AsyncStore,
        settings: Settings,
        paths: Paths,
        retry_s: float = 3.0,
    ) -> None:
        """`retry_s`: seconds between attempts to write to a store that fails. The store is closed with the holder."""
        self._teller = teller
        self._store = store
        self._settings = settings
        self._paths = paths
        self._retry_s = retry_s
        self._engine_controller = engine_controller
        engine_controller.on_ready = self.follow_model
        self._recorder: Recorder | None = None
        self.chat: Conversation | None = None
        """None until a model is loaded."""
        self.on_damage: Callable[[], object] = lambda: None
        """Called when something can't be written because the database is damaged."""
        self.typed_ahead = ""
        """What was typed while a model loads; `take_typed` puts it into the draft."""

    @property
    def trouble(self) -> VlmtuiError | None:
        """Why the newest changes could not be stored, if so."""
        return self._recorder.trouble if self._recorder is not None else None

    def require_chat(self) -> Conversation:
        """Return the conversation, creating it if needed."""
        from vlmtui.session.conversation import Conversation

        if self.chat is None:
            model = self._engine_controller.model
            first = self._first_settings(model.family if model else None)
            self.chat = Conversation(first, self.recorder(), self._opened)
            self.follow_model(model)
        return self.chat

    def take_typed(self) -> None:
        """Put what was typed ahead at the end of the draft."""
        if self.typed_ahead:
            chat = self.require_chat()
            gap = " " if chat.draft.text and not chat.draft.text[-1].isspace() else ""
            chat.draft.text += gap + self.typed_ahead
            self.typed_ahead = ""
            chat.draft_changed()

    def follow_model(self, model: Model | None) -> None:
        """Give the conversation the processor's arguments of the model that answers, and say what changed."""
        chat = self.chat
        if chat is None or model is None:
            return
        before = chat.settings
        try:
            chat.settings = before.for_family(model.family, self._settings.parameters)
        except VlmtuiError as error:
            self._teller.tell_error(error)
            return
        if changed := before.changed_to(chat.settings):
            told = f"Another processor: {changed}. Each family keeps its own values."
            self._teller.tell(one_line(told), seconds=10)

    def recorder(self) -> Recorder:
        """Return the recorder, creating it if needed."""
        from vlmtui.session.persistence import Recorder

        if self._recorder is None:
            self._recorder = Recorder(
                self._store,
                on_trouble=self._trouble_changed,
                on_saved_again=self._tell_saved_again,
                retry_s=self._retry_s,
            )
        return self._recorder

    def tell_notice(self) -> None:
        """Tell once what the user must know about the opening of the store."""
        if notice := self._store.take_notice():
            self._teller.tell(one_line(notice), seconds=60, severity="warning")

    async def settle(self, *, stops: bool) -> bool:
        """Prepare to quit: stop the running answer (`stops`) or leave it to the engine, and store everything. False
        if something could not be stored."""
        self.take_typed()
        chat, recorder = self.chat, self._recorder
        if chat is None or recorder is None:
            return True
        if stops:
            await chat.stop(self._engine_controller.engine)
        else:
            chat.answers.detach()
        chat.draft_changed()
        await recorder.settle(_SETTLE_S if stops else 0.0)
        return recorder.trouble is None

    async def close(self) -> None:
        """Write the last changes. A running answer continues in the engine."""
        if self._recorder is not None:
            await self._recorder.close()
        await self._store.close()

    def _opened(self) -> None:
        if self._engine_controller.is_loaded:
            self.follow_model(self._engine_controller.model)

    def _first_settings(self, family: Family | None) -> ChatSettings:
        """Return the model's recommended settings, overridden by the user's."""
        from vlmtui.session.dials import with_default_parameters
        from vlmtui.session.settings import ChatSettings

        settings = self._settings
        sampling = settings.sampling.over(family.sampling if family is not None else None)
        try:
            sampling = with_default_parameters(sampling, family, settings.parameters)
        except VlmtuiError as error:
            self._teller.tell_error(error)
        return ChatSettings(settings.system_prompt, sampling)

    def _tell_saved_again(self) -> None:
        folder = one_line(str(self._paths.data))
        text = f"This conversation was missing from {folder}. It is saved there again as shown here."
        self._teller.tell(f"{text} Other branches are lost.", seconds=60, severity="warning")

    def _trouble_changed(self, error: VlmtuiError | None) -> None:
        self.tell_notice()
        if self._store.damage is not None:
            self.on_damage()
            return
        if error is None:
            self._teller.tell("Everything is saved now; nothing was lost.", seconds=10)
            return
        text = f"{error} The conversation continues in memory and is saved as soon as possible."
        self._teller.tell(one_line(text), seconds=30, severity="error")
