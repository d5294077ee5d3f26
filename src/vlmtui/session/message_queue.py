"""Messages that were sent before the engine could take them: they wait, in their order."""

from __future__ import annotations

import msgspec

from vlmtui.session.draft import Draft
from vlmtui.session.exchange import Exchange
from vlmtui.store.records import StoredDraft


class QueuedMessage(msgspec.Struct, frozen=True):
    """A message that waits."""

    written: StoredDraft
    editing: Exchange | None = None
    """The exchange that it takes the place of, on a branch of its own."""

    @property
    def draft(self) -> Draft:
        """The message as a draft of its own."""
        draft = Draft()
        draft.put(self.written.text, self.written.attachments)
        return draft


class MessageQueue:
    """The messages of a conversation that wait, the first one first. Until they are sent they are stored as a part of
    the draft."""

    def __init__(self) -> None:
        self.messages: list[QueuedMessage] = []

    def __bool__(self) -> bool:
        return bool(self.messages)

    @property
    def attachments(self) -> int:
        """How many attachments they have together."""
        return sum(len(message.written.attachments) for message in self.messages)

    @property
    def editing(self) -> Exchange | None:
        """The exchange that the first one takes the place of."""
        return self.messages[0].editing if self.messages else None

    def add(self, draft: Draft, editing: Exchange | None) -> None:
        """Let a draft wait behind the others."""
        self.messages.append(QueuedMessage(StoredDraft(text=draft.text, attachments=draft.numbered), editing))

    def take_first(self) -> None:
        """The first one was sent."""
        del self.messages[0]

    def take_all(self, draft: Draft) -> Exchange | None:
        """Put all of them before what a draft holds, and forget them. Returns what the first one takes the place of."""
        editing, merged = self.editing, self._with(draft, draft.text)
        self.messages.clear()
        draft.put(merged.text, merged.attachments)
        return editing

    def with_draft(self, draft: Draft) -> StoredDraft:
        """All of them and the draft as one, a blank line between two, as it is stored."""
        return self._with(draft, draft.text_to_keep)

    def _with(self, draft: Draft, text: str) -> StoredDraft:
        waiting = [message.written for message in self.messages]
        drafts = [*waiting, StoredDraft(text=text, attachments=draft.numbered)]
        attachments = {number: item for one in drafts for number, item in one.attachments.items()}
        return StoredDraft(text="\n\n".join(one.text for one in drafts if one.text), attachments=attachments)
