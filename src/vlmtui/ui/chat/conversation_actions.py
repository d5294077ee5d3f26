"""The actions on the whole conversation: branches, settings, the LoRA adapter."""

from __future__ import annotations

import asyncio

import msgspec

from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.template import TemplateVariables
from vlmtui.errors import Remedy, bad_input
from vlmtui.session.adapters import (
    NONE,
    Adapter,
    adapters_near,
    find_adapter,
    takes_adapter,
    with_adapters,
)
from vlmtui.session.dials import UNCHECKED, variables_of, with_setting
from vlmtui.session.exchange import Sibling
from vlmtui.session.settings import ChatSettings
from vlmtui.text import is_number, one_line
from vlmtui.ui.chat.part import ChatPart, dialog


class Branches(ChatPart):
    """Edits messages, switches branches, starts new conversations and saves them as files."""

    async def action_new_chat(self) -> None:
        """Start a new conversation with the same model; the draft and its attachments stay."""
        if self._chat.running is not None:
            self._app.tell("Still answering.", Remedy.STOP_ANSWER)
            return
        self._chat.clear()
        await self._screen.show_conversation()

    @dialog
    async def action_earlier_model(self) -> None:
        """Load the model that answered last in the conversation."""
        if self._chat.id is not None and self._chat.other_model(self._engines.model):
            await self._app.stored.load_model_of(self._chat.id)

    @dialog
    async def action_export(self, name: str = "") -> None:
        """Write the conversation to a file; ask for its name if none is given."""
        await self._app.stored.export(await self._chat.stored_id(), name)

    async def action_edit(self, number: str = "") -> None:
        """Edit message `number`, or else the selected or the last message. Sending creates a branch."""
        if number and not is_number(number):
            raise bad_input("/edit takes the number of a message.")
        if not number and self._screen.marked is not None:
            number = str(self._chat.number_of(self._screen.marked.exchange))
        before, was_editing = self._chat.draft.text, self._chat.editing is not None
        self._chat.begin_edit(int(number) if number else None)
        if before.strip() and not was_editing:
            self._screen.panel.take_text(before)
            self._app.tell("Your draft is in the message history: the Up key restores it.")
        self._screen.show_draft()

    def action_branch_here(self) -> None:
        """Write another message after the selected one; sending creates a branch."""
        marked = self._screen.marked
        if marked is None:
            return
        self._chat.require_rest()
        self._chat.leave_edit()
        if marked.exchange is not self._chat.last:
            self._chat.begin_edit(self._chat.number_of(marked.exchange) + 1)
            self._chat.draft.clear()
        self._screen.show_draft()

    def action_leave_edit(self) -> None:
        self._chat.leave_edit()
        self._screen.show_draft()

    async def action_branch_before(self) -> None:
        await self._step(-1)

    async def action_branch_after(self) -> None:
        await self._step(1)

    async def action_branch(self, number: str = "") -> None:
        if not is_number(number):
            raise bad_input("/branch takes a number.")
        await self._chat.show_branch(int(number))
        await self._screen.show_conversation()

    async def _step(self, by: int) -> None:
        marked = self._screen.marked
        if marked is None:
            moved = await self._chat.step(by)
        else:
            moved = marked.turn is not None and 1 <= marked.siblings.position + by <= marked.siblings.count
            if marked.turn is not None and moved:
                await self._chat.show_sibling(Sibling(marked.turn, marked.siblings.position + by))
        if moved:
            await self._screen.show_conversation()
        else:
            self._app.tell("There is no other branch on that side.", Remedy.MAKE_BRANCH)


class Settings(ChatPart):
    """Changes the conversation's settings, by the form or a slash command, and its LoRA adapter."""

    @dialog
    async def action_settings(self) -> None:
        changed = await self._app.edit_settings(self._chat.settings, self._engines.model, self._variables)
        if changed is not None:
            self._apply(changed)

    def action_system(self, text: str = "") -> None:
        self._apply(msgspec.structs.replace(self._chat.settings, system_prompt=text))

    @dialog
    async def action_set(self, text: str = "") -> None:
        """Set one parameter, as in `temperature 0.7`, `max_pixels 100000` or `json @schema.json`."""
        model, settings = self._engines.model, self._chat.settings
        family = model.family if model is not None else None
        variables = self._variables
        sampling = await asyncio.to_thread(with_setting, settings.sampling, text, family, variables)
        if variables is None and variables_of(sampling) != variables_of(settings.sampling):
            self._app.tell(UNCHECKED)
        self._apply(msgspec.structs.replace(settings, sampling=sampling))

    @property
    def _variables(self) -> TemplateVariables | None:
        """The variables that the loaded model's chat template reads; None: unknown."""
        info = self._engines.info
        return info.template_variables if info is not None else None

    @dialog
    async def action_adapter(self, text: str = "") -> None:
        """Use the LoRA adapter in a folder from the next message on. `none`: no adapter; empty: choose from a list."""
        require_capability(self._engines.info, "lora")
        folder = text.strip() or await self._adapter_from_list()
        if folder is None:
            return
        adapter = None if folder == NONE else await asyncio.to_thread(find_adapter, folder)
        if adapter is None or await self._takes_adapter(adapter):
            folder = adapter.folder if adapter is not None else ""
            settings = msgspec.structs.replace(self._chat.settings, adapter=folder)
            self._apply(settings, unchanged="The adapter stays the same.")

    async def _adapter_from_list(self) -> str | None:
        """Let the user choose an adapter. Return its folder, NONE for no adapter, or None if cancelled."""
        now = self._chat.settings.adapter
        model = self._engines.model
        found = await asyncio.to_thread(adapters_near, now, model.spec.model if model is not None else "")
        own = ", ".join(one_line(one.name) for one in model.spec.loras) if model is not None else ""
        lines = [f"{'○' if now else '●'} {f'The model’s own: {own}' if own else 'No adapter'}"]
        lines += [f"{'●' if one.folder == now else '○'} {one.name} · {one.facts}" for one in found]
        title = "Adapter" if found else "No adapter in this folder. /adapter FOLDER uses another folder."
        at = await self._app.choose(title, lines)
        return None if at is None else NONE if at == 0 else found[at - 1].folder

    async def _takes_adapter(self, adapter: Adapter) -> bool:
        """Return True if the loaded model accepts the adapter, or if the user agrees to load it again so that it
        does."""
        model = self._engines.model
        if model is None or takes_adapter(model.spec, adapter):
            return True
        name = one_line(model.spec.name)
        took = f"the last load took {info.load_s:.0f} s; " if (info := self._engines.info) is not None else ""
        question = f"LoRA of rank {adapter.rank} needs a reload of {name} ({took}this chat waits)."
        if not await self._app.confirm(question, yes=f"Reload {name}", no="Cancel"):
            return False
        self._app.models.load(with_adapters(model, adapter))
        return True

    def _apply(self, settings: ChatSettings, unchanged: str = "No setting has changed.") -> None:
        """Apply settings from the next message on, and show the changes."""
        told = self._chat.settings.changed_to(settings)
        self._chat.settings = settings
        self._app.tell(f"{told[0].upper()}{told[1:]}" if told else unchanged)
        self._screen.show_status()
        self._screen.prompt_cost.count_soon()  # the image processor's arguments may have changed
