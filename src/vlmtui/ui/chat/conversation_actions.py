"""The actions on the conversation: branches, settings, the adapter."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

import msgspec

from vlmtui.domain.adapter_choice import adapters_of
from vlmtui.domain.capabilities import require_capability
from vlmtui.errors import Remedy, VlmtuiError, bad_input
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
from vlmtui.session.dials import with_setting
from vlmtui.session.engines import AppEngines
from vlmtui.session.exchange import Sibling
from vlmtui.session.settings import ChatSettings
from vlmtui.text import is_number, one_line
from vlmtui.ui.actions import ActionMethods
from vlmtui.ui.chat.prompt_cost import PromptCost
from vlmtui.ui.chat.view import ChatView
from vlmtui.ui.navigation import Navigator
from vlmtui.ui.view import View


class BranchesView(ChatView, Protocol):
    """What branches need from the chat screen."""

    def show_draft(self) -> None:
        """Show the draft, and whether it edits an earlier message."""

    async def show_conversation(self) -> None:
        """Show the conversation after its turns changed."""


class Branches:
    """Edits messages, switches branches, starts new conversations and saves them as files."""

    def __init__(self, view: BranchesView, chat: Conversation) -> None:
        self._view = view
        self._chat = chat

    @property
    def actions(self) -> ActionMethods:
        return {
            "new_chat": self.new_chat,
            "save": self.save,
            "edit": self.edit,
            "leave_edit": self.leave_edit,
            "branch_before": self.show_before,
            "branch_after": self.show_after,
            "branch": self.show,
            "branch_here": self.branch_here,
        }

    async def new_chat(self) -> None:
        """Start a new conversation with the same model; the draft and its attachments stay."""
        if self._chat.running is not None:
            self._view.tell("Still answering.", Remedy.STOP_ANSWER)
            return
        self._chat.clear()
        await self._view.show_conversation()

    async def save(self, name: str = "") -> None:
        """Save the conversation as a file."""
        from vlmtui.session.conversation import save_conversation

        try:
            await save_conversation(self._chat, name, self._view)
        except VlmtuiError as error:
            self._view.tell_error(error)

    async def edit(self, number: str = "") -> None:
        """Edit message `number`, or else the selected one or the last. Sending creates a branch."""
        if number and not is_number(number):
            self._view.tell_error(bad_input("/edit takes the number of a message."))
            return
        if not number and self._view.marked is not None:
            number = str(self._chat.number_of(self._view.marked.exchange))
        before, was_editing = self._chat.draft.text, self._chat.editing is not None
        try:
            self._chat.begin_edit(int(number) if number else None)
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        if before.strip() and not was_editing:
            self._view.panel.take_text(before)
            self._view.tell("Your draft is in the message history: the Up key restores it.")
        self._view.show_draft()

    def branch_here(self) -> None:
        """Write another message after the selected one; sending creates a branch."""
        marked = self._view.marked
        if marked is None:
            return
        try:
            self._chat.require_rest()
            self._chat.leave_edit()
            if marked.exchange is not self._chat.last:
                self._chat.begin_edit(self._chat.number_of(marked.exchange) + 1)
                self._chat.draft.clear()
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        self._view.show_draft()

    def leave_edit(self) -> None:
        """Cancel editing; the message is unchanged."""
        self._chat.leave_edit()
        self._view.show_draft()

    async def show_before(self) -> None:
        """Previous branch (at the last fork)."""
        await self._step(-1)

    async def show_after(self) -> None:
        """Next branch (at the last fork)."""
        await self._step(1)

    async def show(self, number: str = "") -> None:
        """Show the branch with this number."""
        try:
            if not is_number(number):
                raise bad_input("/branch takes a number.")
            await self._chat.show_branch(int(number))
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        await self._view.show_conversation()

    async def _step(self, by: int) -> None:
        marked = self._view.marked
        try:
            if marked is None:
                moved = await self._chat.step(by)
            else:
                moved = marked.turn is not None and 1 <= marked.siblings.position + by <= marked.siblings.count
                if marked.turn is not None and moved:
                    await self._chat.show_sibling(Sibling(marked.turn, marked.siblings.position + by))
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        if moved:
            await self._view.show_conversation()
        else:
            self._view.tell("There is no other branch on that side.", Remedy.MAKE_BRANCH)


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
        controller: AppEngines,
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


class AdapterActions:
    """Chooses the adapter of the conversation."""

    def __init__(self, view: SettingsView, navigator: Navigator, controller: AppEngines, chat: Conversation) -> None:
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
