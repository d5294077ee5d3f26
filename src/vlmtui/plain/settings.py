"""System prompt and sampling parameters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from vlmtui.domain.capabilities import require_capability
from vlmtui.plain.models import Models
from vlmtui.plain.parts import Parts, RunCommand
from vlmtui.session.adapters import NONE, find_adapter, folders_near, offered_adapters, takes_adapter, with_adapters
from vlmtui.session.dials import with_setting
from vlmtui.session.settings import ChatSettings
from vlmtui.text import one_line


class SettingsCommands:
    """Shows and changes the conversation's settings."""

    def __init__(self, parts: Parts, models: Models) -> None:
        self._parts = parts
        self._models = models

    @property
    def commands(self) -> Mapping[str, RunCommand]:
        return {
            "settings": self.show,
            "system": self.set_system_prompt,
            "set": self.set_parameter,
            "adapter": self.set_adapter,
        }

    async def show(self, argument: str) -> None:
        """Show all settings."""
        settings, output = self._parts.chat.settings, self._parts.output
        output.tell(f"System prompt: {one_line(settings.system_prompt) or 'none'}")
        if settings.adapter:
            output.tell(f"Adapter: {one_line(settings.adapter)}")
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

    async def set_adapter(self, argument: str) -> None:
        """Answer with the LoRA adapter in a folder, `none`: without one; without an argument, list those that are
        near. Raises VlmtuiError."""
        parts, now = self._parts, self._parts.chat.settings.adapter
        require_capability(parts.controller.info, "lora")
        if not argument:
            parts.output.tell(f"Adapter: {one_line(now) or 'none'}")
            model = parts.controller.model
            near = folders_near(now, model.spec.model if model is not None else "")
            for one in await asyncio.to_thread(offered_adapters, near):
                parts.output.tell(f"  {one_line(one.folder)}: {one.facts}")
            parts.output.tell("/adapter FOLDER answers with the one in a folder, /adapter none without one.")
            return
        adapter = None if argument == NONE else await asyncio.to_thread(find_adapter, argument)
        model = parts.controller.model
        if adapter is not None and model is not None and not takes_adapter(model.spec, adapter):
            parts.output.tell(f"{one_line(model.spec.name)} is loaded again, so that it takes adapters.")
            await self._models.choose(with_adapters(model, adapter))
            loaded = parts.controller.model
            if loaded is None or not takes_adapter(loaded.spec, adapter):
                parts.output.tell("The adapter stays as it was.")
                return
        folder = adapter.folder if adapter is not None else ""
        self._apply(msgspec.structs.replace(parts.chat.settings, adapter=folder))

    def _apply(self, settings: ChatSettings) -> None:
        chat = self._parts.chat
        told = chat.settings.changed_to(settings)
        chat.settings = settings
        self._parts.output.tell(f"{told[0].upper()}{told[1:]}" if told else "No setting has changed.")
