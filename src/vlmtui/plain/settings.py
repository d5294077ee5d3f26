"""System prompt and sampling parameters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from vlmtui.plain.parts import Parts, RunCommand
from vlmtui.session.dials import with_setting
from vlmtui.session.settings import ChatSettings
from vlmtui.text import one_line


class SettingsCommands:
    """Shows and changes the conversation's settings."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @property
    def commands(self) -> Mapping[str, RunCommand]:
        return {
            "settings": self.show,
            "system": self.set_system_prompt,
            "set": self.set_parameter,
        }

    async def show(self, argument: str) -> None:
        """Show all settings."""
        settings, output = self._parts.chat.settings, self._parts.output
        output.tell(f"System prompt: {one_line(settings.system_prompt) or 'none'}")
        output.tell(f"Sampling: {', '.join(settings.sampling.described())}")
        output.tell("/set NAME VALUE changes a parameter, /system TEXT the system prompt.")

    async def set_system_prompt(self, argument: str) -> None:
        """Set the system prompt; empty removes it."""
        self._apply(msgspec.structs.replace(self._parts.chat.settings, system_prompt=argument))

    async def set_parameter(self, argument: str) -> None:
        """Set one parameter, as in `temperature 0.7`. Raises VlmtuiError."""
        model, settings = self._parts.controller.model, self._parts.chat.settings
        family = model.family if model is not None else None
        sampling = await asyncio.to_thread(with_setting, settings.sampling, argument, family)
        self._apply(msgspec.structs.replace(settings, sampling=sampling))

    def _apply(self, settings: ChatSettings) -> None:
        chat = self._parts.chat
        told = chat.settings.changed_to(settings)
        chat.settings = settings
        self._parts.output.tell(f"{told[0].upper()}{told[1:]}" if told else "No setting has changed.")
