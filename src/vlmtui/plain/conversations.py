"""The stored conversations: found, opened, renamed, pinned, deleted."""

from __future__ import annotations

from collections.abc import Mapping

from vlmtui.errors import bad_input
from vlmtui.plain.messages import Messages
from vlmtui.plain.models import Models
from vlmtui.plain.parts import Parts, RunCommand
from vlmtui.session.conversation_list import ConversationList, Entry, ago, undelete_last
from vlmtui.session.resume import resume_point, resumed_model
from vlmtui.store.records import ConversationId
from vlmtui.text import is_number, one_line

_LISTED = 20
_WAYS = "A number opens one; rename N TITLE, pin N or delete N; words search; Enter leaves the list."


class Conversations:
    """The list of conversations, and the one that is open."""

    def __init__(self, parts: Parts, messages: Messages, models: Models) -> None:
        self._parts = parts
        self._messages = messages
        self._models = models

    @property
    def commands(self) -> Mapping[str, RunCommand]:
        return {
            "conversations": self.show_list,
            "undelete": self.undelete,
        }

    async def show_list(self, argument: str) -> None:
        """List the conversations, those with some words if given, and ask what to do with them."""
        chat, output = self._parts.holder.chat, self._parts.output
        listed = ConversationList(self._parts.services.store, chat.id if chat is not None else None)
        given = argument
        while True:
            await listed.find(given)
            if not listed.entries:
                output.tell(f"No conversation has “{one_line(given)}”." if given else "There is no conversation yet.")
                return
            shown = listed.entries[:_LISTED]
            output.lines(_row(number, entry) for number, entry in enumerate(shown, 1))
            if len(listed.entries) > len(shown) or not listed.is_whole:
                output.tell("… and more; words find them.")
            output.tell(_WAYS)
            given = await output.ask("Conversation: ")
            if not given:
                return
            if is_number(given):
                await self.open(_entry(shown, given).id)
                return
            verb, _, rest = given.partition(" ")
            number, _, title = rest.strip().partition(" ")
            if verb in ("rename", "pin", "delete") and is_number(number):
                await self._change(listed, verb, _entry(shown, number), title)
                given = listed.query

    async def open(self, conversation: ConversationId) -> None:
        """Open a conversation with the loaded model, or else with its own. Raises VlmtuiError."""
        parts, services = self._parts, self._parts.services
        await parts.holder.require_chat().open(conversation)
        self._messages.show_conversation()
        parts.holder.tell_notice()
        if parts.controller.model is None:
            found = await services.store.run(lambda store: resume_point(store, conversation))
            await self._models.choose(resumed_model(services.registry, services.settings.engines, found))

    async def undelete(self, argument: str) -> None:
        """Restore the conversation deleted last."""
        found = await undelete_last(self._parts.services.store)
        self._parts.output.tell(f"Restored “{one_line(found.title) or 'untitled'}”.")

    async def _change(self, listed: ConversationList, verb: str, entry: Entry, title: str) -> None:
        name = one_line(entry.conversation.title) or "untitled"
        match verb:
            case "rename":
                await listed.rename(entry, title)
            case "pin":
                await listed.toggle_pin(entry)
            case "delete" if await self._parts.output.confirm(f"Delete “{name}”?"):
                await listed.delete(entry)
                self._parts.output.tell(f"Deleted “{name}”. /undelete restores it.")


def _entry(shown: list[Entry], number: str) -> Entry:
    if not 1 <= int(number) <= len(shown):
        raise bad_input(f"There is no conversation {one_line(number)}.", hint=f"The list has 1 to {len(shown)}.")
    return shown[int(number) - 1]


def _row(number: int, entry: Entry) -> str:
    record = entry.conversation
    title = one_line(record.title) or "untitled"
    pictures = f", {entry.pictures.count} attachment{'s' * (entry.pictures.count != 1)}" if entry.pictures.count else ""
    draft = f", draft: {one_line(entry.listed.draft)}" if entry.listed.draft else ""
    pinned = ", pinned" * record.pinned + ", imported" * record.imported
    return f"  {number}  {title}, {one_line(record.model)}, {ago(record.updated_ms)}{pictures}{pinned}{draft}"
