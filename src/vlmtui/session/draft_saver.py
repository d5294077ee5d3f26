"""Stores the draft."""

from __future__ import annotations

from vlmtui.session.persistence import Recorder
from vlmtui.session.stored_answer import LiveConversation
from vlmtui.store.records import StoredDraft

_EMPTY = StoredDraft()


class DraftSaver:
    """Stores a draft when it differs from the one stored or scheduled."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._saved = _EMPTY

    def save(self, conversation: LiveConversation, draft: StoredDraft) -> None:
        """Store the draft within a second; an empty one deletes the stored one."""
        self._write(conversation, draft)

    def delete(self, conversation: LiveConversation) -> None:
        """Delete the conversation's stored draft."""
        self._write(conversation, _EMPTY)

    def note(self, stored: StoredDraft = _EMPTY) -> None:
        """Note which draft is stored: that of an opened conversation, or none after sending."""
        self._saved = stored

    def _write(self, conversation: LiveConversation, draft: StoredDraft) -> None:
        if draft != self._saved:
            self._saved = draft
            self._recorder.save_draft(conversation, draft)
