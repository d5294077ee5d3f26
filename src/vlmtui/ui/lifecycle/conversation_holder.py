"""The app's one conversation, and what writes it into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vlmtui.errors import VlmtuiError
from vlmtui.session.engine_controller import EngineController
from vlmtui.session.settings import ChatSettings
from vlmtui.text import one_line
from vlmtui.ui.services import Services
from vlmtui.ui.view import View

if TYPE_CHECKING:
    from vlmtui.domain.sampling import Sampling
    from vlmtui.session.conversation import Conversation
    from vlmtui.session.persistence import Recorder

_SETTLE_S = 3.0


class ConversationHolder:
    """Has one conversation, which outlives the chat screen; another model can go on with it."""

    def __init__(self, view: View, services: Services, engine_controller: EngineController) -> None:
        self._view = view
        self._services = services
        self._engine_controller = engine_controller
        self._recorder: Recorder | None = None
        self.chat: Conversation | None = None
        """The conversation, once there is one."""

    @property
    def trouble(self) -> VlmtuiError | None:
        """Why the newest could not be written, if so."""
        return self._recorder.trouble if self._recorder is not None else None

    def require_chat(self) -> Conversation:
        """Return the conversation; a new one where there is none."""
        from vlmtui.session.conversation import Conversation

        if self.chat is None:
            model = self._engine_controller.model
            self.chat = Conversation(self._first_settings(model.family.sampling if model else None), self.recorder())
        return self.chat

    def recorder(self) -> Recorder:
        """Return what writes into the store."""
        from vlmtui.session.persistence import Recorder

        if self._recorder is None:
            self._recorder = Recorder(
                self._services.store,
                on_trouble=self._trouble_changed,
                on_saved_again=self._tell_saved_again,
                retry_s=self._services.delays.retry_write,
            )
        return self._recorder

    def tell_recovery(self) -> None:
        """Say what had to be saved out of a damaged store, once."""
        recovered = self._services.store.take_recovery()
        if recovered is not None:
            self._view.tell(one_line(recovered.summary), seconds=60, severity="warning")

    async def settle(self, *, stops: bool) -> bool:
        """Before the app goes: the running answer ends (`stops`) or goes on without us, and everything is written.
        False where something could not be written."""
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
        """The last writes. A running answer goes on without us."""
        if self._recorder is not None:
            await self._recorder.close()
        await self._services.store.close()

    def _first_settings(self, base: Sampling | None) -> ChatSettings:
        """The user's own settings over the model's record."""
        settings = self._services.settings
        return ChatSettings(settings.system_prompt, settings.sampling.over(base))

    def _tell_saved_again(self) -> None:
        folder = one_line(str(self._services.paths.data))
        text = f"This conversation was gone from {folder}: it is saved there again, as it is shown here."
        self._view.tell(f"{text} Other branches are lost.", seconds=60, severity="warning")

    def _trouble_changed(self, error: VlmtuiError | None) -> None:
        self.tell_recovery()
        if error is None:
            self._view.tell("Everything is saved again; nothing was lost.", seconds=10)
            return
        text = f"{error} The conversation goes on in memory, and is saved as soon as that is possible."
        self._view.tell(one_line(text), seconds=30, severity="error")
