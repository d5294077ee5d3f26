"""What was typed before, across sessions."""

from __future__ import annotations

import json
import os
from pathlib import Path

from vlmtui.paths import private_dir

KEPT_MAX = 1000


class PromptHistory:
    """Newest last. One JSON string a line, in a file readable by its owner only; a damaged line is passed over."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._entries = self._read()
        self._place = len(self._entries)
        self._draft = ""

    def add(self, text: str) -> None:
        """Remember a prompt that was sent. A full or read-only disk loses the memory, not the prompt."""
        self._place = len(self._entries)
        if not text.strip() or (self._entries and self._entries[-1] == text):
            return
        self._entries.append(text)
        self._place = len(self._entries)
        try:
            private_dir(self._file.parent)
            handle = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(json.dumps(text) + "\n")
        except OSError:
            return

    def older(self, current: str) -> str | None:
        """The entry before the one shown; None at the oldest. `current` is kept as the draft when leaving it."""
        if self._place == 0:
            return None
        if self._place == len(self._entries):
            self._draft = current
        self._place -= 1
        return self._entries[self._place]

    def newer(self) -> str | None:
        """The entry after the one shown, at last the draft; None when the draft is shown already."""
        if self._place >= len(self._entries):
            return None
        self._place += 1
        return self._draft if self._place == len(self._entries) else self._entries[self._place]

    def _read(self) -> list[str]:
        try:
            lines = self._file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        entries: list[str] = []
        for line in lines[-KEPT_MAX:]:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, str):
                entries.append(entry)
        return entries
