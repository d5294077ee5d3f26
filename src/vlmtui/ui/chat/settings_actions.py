"""The actions on the conversation's settings: system prompt and sampling parameters."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

import msgspec

from vlmtui.errors import VlmtuiError
from vlmtui.session.conversation import Conversation
from vlmtui.session.dials import with_setting
from vlmtui.session.engine_controller import EngineController
from vlmtui.session.settings import ChatSettings
from vlmtui.ui.actions import ActionMethods
from vlmtui.ui.chat.prompt_cost import PromptCost
from vlmtui.ui.navigation import Navigator
from vlmtui.ui.view import View


class SettingsView(View, Protocol):
    """What the settings need from the chat screen."""

    def show_status(self) -> None:
        """Update the status line."""


class SettingsActions:
    """Changes the conversation's settings, by the form or a slash command."""

    def __init__(
        self,
        view: SettingsView,
        navigator: Navigator,
        controller: EngineController,
        chat: Conversation,
        cost: PromptCost,
    ) -> None:
        self._view = view
        self._controller = controller
        self._cost = cost
        self._navigator = navigator
        self._chat = chat

    @property
    def actions(self) -> ActionMethods:
        return {"settings": self.edit, "system": self.set_system_prompt, "set": self.set_parameter}

    def edit(self) -> None:
        """Open the form for system prompt and sampling."""
        self._view.start_dialog(self._edit)

    def set_system_prompt(self, text: str = "") -> None:
        """Set the system prompt; empty removes it."""
        self._apply(msgspec.structs.replace(self._chat.settings, system_prompt=text))

    def set_parameter(self, text: str = "") -> None:
        """Set one parameter, as in `temperature 0.7`, `max_pixels 100000` or `json @schema.json`."""
        self._view.start_dialog(partial(self._set_parameter, text))

    async def _set_parameter(self, text: str) -> None:
        model, settings = self._controller.model, self._chat.settings
        family = model.family if model is not None else None
        try:
            sampling = await asyncio.to_thread(with_setting, settings.sampling, text, family)
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        self._apply(msgspec.structs.replace(settings, sampling=sampling))

    async def _edit(self) -> None:
        changed = await self._navigator.edit_settings(self._chat.settings, self._controller.model)
        if changed is not None:
            self._apply(changed)

    def _apply(self, settings: ChatSettings) -> None:
        """Apply settings from the next message on, and tell what changed."""
        told = self._chat.settings.changed_to(settings)
        self._chat.settings = settings
        self._view.tell(f"{told[0].upper()}{told[1:]}" if told else "No setting has changed.")
        self._view.show_status()
        self._cost.count_soon()  # the arguments of the processor may have changed
