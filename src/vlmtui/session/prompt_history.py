"""The history of sent messages, across sessions."""

from __future__ import annotations

import json
import os
from pathlib import Path

from vlmtui.errors import VlmtuiError
from vlmtui.files import open_to_append
from vlmtui.paths import private_dir
from vlmtui.reading import read_tail

KEPT_MAX = 1000
_BYTES_MAX = 20_000_000


class PromptHistory:
    """Sent messages, newest last. The file (0600) has one JSON string per line; damaged lines are skipped."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._is_open = False
        """True if the file's last line is incomplete; the next entry then begins a new line."""
        self._entries = self._read()
        self._place = len(self._entries)
        self._draft = ""

    @property
    def entries(self) -> list[str]:
        """All messages, newest last. Hostile text: it may be pasted."""
        return list(self._entries)

    def add(self, text: str) -> None:
        """Add a sent message. If the file can't be written, the message is remembered only in this session."""
        self._place = len(self._entries)
        if not text.strip() or (self._entries and self._entries[-1] == text):
            return
        self._entries.append(text)
        self._place = len(self._entries)
        try:
            private_dir(self._file.parent)
            with os.fdopen(open_to_append(self._file), "w", encoding="utf-8") as file:
                file.write(("\n" if self._is_open else "") + json.dumps(text) + "\n")
            self._is_open = False
        except (VlmtuiError, OSError):
            return

    def older(self, current: str) -> str | None:
        """Return the message before the one shown; None at the oldest. `current`: the draft, to which `newer` returns
        in the end."""
        if self._place == 0:
            return None
        if self._place == len(self._entries):
            self._draft = current
        self._place -= 1
        return self._entries[self._place]

    def newer(self) -> str | None:
        """Return the message after the one shown, and after the newest message the draft; None if the draft is
        shown."""
        if self._place >= len(self._entries):
            return None
        self._place += 1
        return self._draft if self._place == len(self._entries) else self._entries[self._place]

    def _read(self) -> list[str]:
        try:
            text = read_tail(self._file, bytes_max=_BYTES_MAX).decode("utf-8", "replace")
        except VlmtuiError:
            return []
        self._is_open = bool(text) and not text.endswith("\n")
        lines = text.splitlines()
        entries: list[str] = []
        for line in lines[-KEPT_MAX:]:
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, str):
                entries.append(entry)
        return entries
