"""Messages sent before the engine was ready, in order."""

from __future__ import annotations

import msgspec

from vlmtui.session.draft import Draft
from vlmtui.session.exchange import Exchange
from vlmtui.store.records import StoredDraft


class QueuedMessage(msgspec.Struct, frozen=True):
    """A queued message."""

    written: StoredDraft
    editing: Exchange | None = None
    """The exchange that it replaces, on a new branch."""

    @property
    def draft(self) -> Draft:
        """The message as a new draft."""
        draft = Draft()
        draft.put(self.written.text, self.written.attachments)
        return draft


class MessageQueue:
    """The queued messages of a conversation, first to be sent first. Until then they are stored as part of the
    draft."""

    def __init__(self) -> None:
        self.messages: list[QueuedMessage] = []

    def __bool__(self) -> bool:
        return bool(self.messages)

    @property
    def attachments(self) -> int:
        """How many attachments all messages have together."""
        return sum(len(message.written.attachments) for message in self.messages)

    @property
    def editing(self) -> Exchange | None:
        """The exchange that the first message replaces."""
        return self.messages[0].editing if self.messages else None

    def add(self, draft: Draft, editing: Exchange | None) -> None:
        """Append a draft."""
        self.messages.append(QueuedMessage(StoredDraft(text=draft.text, attachments=draft.numbered), editing))

    def take_first(self) -> None:
        """Remove the first message: it was sent."""
        del self.messages[0]

    def take_all(self, draft: Draft) -> Exchange | None:
        """Move all messages to the start of a draft. Return the exchange that the first one replaces."""
        editing, merged = self.editing, self._with(draft, draft.text)
        self.messages.clear()
        draft.put(merged.text, merged.attachments)
        return editing

    def with_draft(self, draft: Draft) -> StoredDraft:
        """Return all messages and the draft joined by blank lines, as stored."""
        return self._with(draft, draft.text_to_store)

    def _with(self, draft: Draft, text: str) -> StoredDraft:
        waiting = [message.written for message in self.messages]
        drafts = [*waiting, StoredDraft(text=text, attachments=draft.numbered)]
        attachments = {number: item for one in drafts for number, item in one.attachments.items()}
        return StoredDraft(text="\n\n".join(one.text for one in drafts if one.text), attachments=attachments)
