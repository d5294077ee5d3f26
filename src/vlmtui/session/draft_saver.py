"""Storing the message that is being written."""

from __future__ import annotations

from vlmtui.session.persistence import Recorder
from vlmtui.session.stored_answer import LiveConversation
from vlmtui.store.records import StoredDraft

_EMPTY = StoredDraft()


class DraftSaver:
    """Has the recorder write a draft where it is another one than the store has, or will have soon."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._saved = _EMPTY

    def save(self, conversation: LiveConversation, draft: StoredDraft) -> None:
        """Write it within a second; an empty one deletes the stored one."""
        self._write(conversation, draft)

    def delete(self, conversation: LiveConversation) -> None:
        """The conversation has no draft any more."""
        self._write(conversation, _EMPTY)

    def note(self, stored: StoredDraft = _EMPTY) -> None:
        """The store has this one: that of a conversation that was opened, or none once it was sent."""
        self._saved = stored

    def _write(self, conversation: LiveConversation, draft: StoredDraft) -> None:
        if draft != self._saved:
            self._saved = draft
            self._recorder.keep_draft(conversation, draft)
