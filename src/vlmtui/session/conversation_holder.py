"""Owns the app's conversation and the recorder that stores it, and does daily maintenance of the data folder."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from vlmtui.config.settings import Settings
from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.files import remove_abandoned
from vlmtui.paths import Paths
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.engines import AppEngines
from vlmtui.store.errors import StoreError
from vlmtui.text import one_line

if TYPE_CHECKING:
    from vlmtui.registry.match import Model
    from vlmtui.session.conversation import Conversation
    from vlmtui.session.persistence import Recorder
    from vlmtui.session.settings import ChatSettings
    from vlmtui.store.records import ConversationId
    from vlmtui.store.store import Store

Severity = Literal["information", "warning", "error"]
_SETTLE_S = 3.0
_log = logging.getLogger(__name__)


class Teller(Protocol):
    """Shows messages to the user. Implemented by the app and by plain mode."""

    def tell(
        self, text: str, remedy: Remedy | None = None, *, seconds: float = 0.0, severity: Severity = "information"
    ) -> None:
        """Show a message for `seconds`; 0: for as long as it takes to read. `remedy`: the action that removes its
        cause."""

    def tell_error(self, error: VlmtuiError) -> None:
        """Show an error, with the action that removes its cause."""


class ConversationHolder:
    """Owns the conversation, which outlives the chat screen and may continue with another model."""

    def __init__(
        self,
        teller: Teller,
        engines: AppEngines,
        *,
        store: AsyncStore,
        settings: Settings,
        paths: Paths,
        retry_s: float = 3.0,
    ) -> None:
        """`retry_s`: seconds between attempts to write while the store fails. `store` is closed by `close`."""
        self.teller = teller
        self.store = store
        self._settings = settings
        self._paths = paths
        self._retry_s = retry_s
        self.engines = engines
        engines.on_ready = self.follow_model
        self._recorder: Recorder | None = None
        self.chat: Conversation | None = None
        """None until it is shown or opened."""
        self.on_damage: Callable[[], object] = lambda: None
        """Called when a write fails because the database is damaged."""
        self.typed_ahead = ""
        """The text typed before there was a draft, until `take_typed` appends it to the draft."""

    @property
    def trouble(self) -> VlmtuiError | None:
        """The error that keeps the newest changes from being stored, if any."""
        return self._recorder.trouble if self._recorder is not None else None

    def require_chat(self, model: Model | None = None) -> Conversation:
        """Return the conversation, creating it if needed. `model`: the model that will answer; default: the current
        one."""
        from vlmtui.session.conversation import Conversation

        if self.chat is None:
            model = model or self.engines.model
            first = self._first_settings(model)
            self.chat = Conversation(first, self.recorder(), self._opened)
            self.follow_model(model)
        return self.chat

    def take_typed(self) -> None:
        """Append `typed_ahead` to the draft."""
        if self.typed_ahead:
            chat = self.require_chat()
            gap = " " if chat.draft.text and not chat.draft.text[-1].isspace() else ""
            chat.draft.text += gap + self.typed_ahead
            self.typed_ahead = ""
            chat.draft_changed()

    def follow_model(self, model: Model | None) -> None:
        """Replace the conversation's processor arguments and template variables by those of the model's family, and
        report the change."""
        chat = self.chat
        if chat is None or model is None:
            return
        before = chat.settings
        try:
            chat.settings = before.for_family(model.family, self._parameters_of(model))
        except VlmtuiError as error:
            self.teller.tell_error(error)
            return
        if changed := before.changed_to(chat.settings):
            told = f"Another model family: {changed}. Each family keeps its own values."
            self.teller.tell(one_line(told))

    def recorder(self) -> Recorder:
        """Return the recorder, creating it if needed."""
        from vlmtui.session.persistence import Recorder

        if self._recorder is None:
            self._recorder = Recorder(
                self.store,
                on_trouble=self._trouble_changed,
                on_saved_again=self._tell_saved_again,
                retry_s=self._retry_s,
            )
        return self._recorder

    def tell_notice(self) -> None:
        """Show the store's message about its opening, once."""
        if notice := self.store.take_notice():
            self.teller.tell(one_line(notice), seconds=60, severity="warning")

    async def settle(self, *, stops: bool) -> bool:
        """Prepare to quit: stop the running answer (`stops` False: let the engine continue it), and store everything.
        Return False if something can't be stored."""
        self.take_typed()
        chat, recorder = self.chat, self._recorder
        if chat is None or recorder is None:
            return True
        if stops:
            await chat.stop(self.engines.engine)
        else:
            chat.answers.detach()
        chat.draft_changed()
        await recorder.settle(_SETTLE_S if stops else 0.0)
        return recorder.trouble is None

    async def close(self) -> None:
        """Write the last changes. A running answer continues in the engine."""
        if self._recorder is not None:
            await self._recorder.close()
        await self.store.close()

    async def keep_house(self) -> None:
        """Delete temporary files of killed processes, back up the database if the last backup is older than 24 hours,
        and purge conversations deleted long ago. Report a damaged database; log other errors."""
        from vlmtui.store.backup import back_up_daily

        await asyncio.to_thread(remove_abandoned_files, self._paths)
        try:
            await asyncio.to_thread(back_up_daily, self._paths.data)
        except (VlmtuiError, OSError) as error:
            _log.warning("there is no backup of today: %s", error)
            if isinstance(error, StoreError) and error.damage is not None:
                self.teller.tell_error(error)
        try:
            await self._purge()
        except (VlmtuiError, OSError) as error:
            _log.warning("deleted conversations stay for now: %s", error)

    async def _purge(self) -> None:
        from vlmtui.session.comparison import draft_file

        keep_s = self._settings.keep_deleted_s
        if keep_s is None:
            return

        def work(store: Store) -> list[ConversationId]:
            purged = store.purge_deleted(keep_s)
            for conversation in purged:
                draft_file(self._paths, conversation).unlink(missing_ok=True)
            return purged

        if purged := await self.store.run(work):
            _log.info("purged, as they were deleted long ago: %s", ", ".join(purged))

    def _opened(self) -> None:
        if self.engines.is_loaded:
            self.follow_model(self.engines.model)

    def _parameters_of(self, model: Model | None) -> dict[str, object]:
        settings = self._settings
        return (
            settings.parameters_of(model.family.family, model.spec.name) if model is not None else settings.parameters
        )

    def _first_settings(self, model: Model | None) -> ChatSettings:
        """Return the model's recommended settings, overridden by the user's."""
        from vlmtui.session.dials import with_default_parameters
        from vlmtui.session.settings import ChatSettings

        settings, family = self._settings, model.family if model is not None else None
        sampling = settings.sampling.over(family.sampling if family is not None else None)
        try:
            sampling = with_default_parameters(sampling, family, self._parameters_of(model))
        except VlmtuiError as error:
            self.teller.tell_error(error)
        return ChatSettings(settings.system_prompt, sampling)

    def _tell_saved_again(self) -> None:
        folder = one_line(str(self._paths.data))
        text = f"This conversation was missing from {folder}. It is saved there again as shown here."
        self.teller.tell(f"{text} Other branches are lost.", seconds=60, severity="warning")

    def _trouble_changed(self, error: VlmtuiError | None) -> None:
        self.tell_notice()
        if self.store.damage is not None:
            self.on_damage()
            return
        if error is None:
            self.teller.tell("Everything is saved now; nothing was lost.")
            return
        text = f"{error} The conversation continues in memory and is saved as soon as possible."
        self.teller.tell(one_line(text), seconds=30, severity="error")


def remove_abandoned_files(paths: Paths) -> None:
    """Delete the temporary files that killed processes left in the application's folders. Blocking."""
    for folder in (paths.config, paths.data, paths.media, paths.state, paths.cache, paths.runtime):
        for path in (folder, *_folders_in(folder)):
            remove_abandoned(path)


def _folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
