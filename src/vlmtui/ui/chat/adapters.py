"""Which LoRA adapter answers in the conversation."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from vlmtui.domain.adapter_choice import adapters_of
from vlmtui.domain.capabilities import require_capability
from vlmtui.errors import VlmtuiError
from vlmtui.session.adapters import (
    NONE,
    Adapter,
    find_adapter,
    folders_near,
    offered_adapters,
    takes_adapter,
    with_adapters,
)
from vlmtui.session.conversation import Conversation
from vlmtui.session.engine_controller import EngineController
from vlmtui.text import one_line
from vlmtui.ui.actions import ActionMethods
from vlmtui.ui.chat.settings_actions import SettingsView
from vlmtui.ui.navigation import Navigator


class AdapterActions:
    """Chooses the adapter of the conversation."""

    def __init__(
        self, view: SettingsView, navigator: Navigator, controller: EngineController, chat: Conversation
    ) -> None:
        self._view = view
        self._navigator = navigator
        self._controller = controller
        self._chat = chat

    @property
    def actions(self) -> ActionMethods:
        return {"adapter": self.choose}

    def choose(self, text: str = "") -> None:
        """Answer with the adapter in a folder from the next message on; `none`: without one. Empty: choose from a
        list."""
        self._view.start_dialog(partial(self._choose, text.strip()))

    async def _choose(self, text: str) -> None:
        try:
            require_capability(self._controller.info, "lora")
            folder = text or await self._from_list()
            if folder is None:
                return
            adapter = None if folder == NONE else await asyncio.to_thread(find_adapter, folder)
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        if adapter is None or await self._is_possible(adapter):
            self._apply(adapter.folder if adapter is not None else "")

    async def _from_list(self) -> str | None:
        """Return the folder that the user chose, or `none`; None if that was cancelled."""
        now = self._chat.settings.adapter
        model = self._controller.model
        near = folders_near(now, model.spec.model if model is not None else "")
        found = await asyncio.to_thread(offered_adapters, near)
        own = ", ".join(one_line(one.name) for one in adapters_of(model.spec)) if model is not None else ""
        lines = [f"{'○' if now else '●'} {f'The model’s own: {own}' if own else 'No adapter'}"]
        lines += [f"{'●' if one.folder == now else '○'} {one.name} · {one.facts}" for one in found]
        title = "Adapter" if found else "Adapter: none is in this folder. /adapter FOLDER takes one from elsewhere."
        at = await self._navigator.choose(title, lines)
        return None if at is None else NONE if at == 0 else found[at - 1].folder

    async def _is_possible(self, adapter: Adapter) -> bool:
        """Return whether the loaded model takes the adapter, or will: it is loaded again if the user agrees."""
        model = self._controller.model
        if model is None or takes_adapter(model.spec, adapter):
            return True
        name = one_line(model.spec.name)
        question = (
            f"{name} was loaded without LoRA, or for a lower rank than {adapter.rank}. Load it again for adapters?"
        )
        if not await self._navigator.confirm(question, yes=f"Load {name} again", no="Cancel"):
            return False
        self._navigator.load_model(with_adapters(model, adapter))
        return True

    def _apply(self, folder: str) -> None:
        settings = msgspec.structs.replace(self._chat.settings, adapter=folder)
        told = self._chat.settings.changed_to(settings)
        self._chat.settings = settings
        self._view.tell(f"{told[0].upper()}{told[1:]}" if told else "The adapter stays the same.")
        self._view.show_status()
