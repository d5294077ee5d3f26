"""The folders that files were attached from, across sessions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from vlmtui.errors import VlmtuiError
from vlmtui.files import write_private
from vlmtui.reading import read_json

KEPT_MAX = 10
_BYTES_MAX = 1_000_000


class RecentFolders:
    """A JSON list of paths, newest first, in a file readable by its owner only. A damaged file is an empty list."""

    def __init__(self, file: Path) -> None:
        """`file` is `folders.json` in the state folder; it is read on demand."""
        self._file = file

    @property
    def folders(self) -> list[Path]:
        """Newest first; some may not exist any more. Reads a small file."""
        try:
            found = read_json(self._file, bytes_max=_BYTES_MAX, keep_surrogates=True)
        except VlmtuiError:
            return []
        if not isinstance(found, list):
            return []
        kept = [name for name in found if isinstance(name, str) and name.startswith("/") and "\0" not in name]
        return [Path(name) for name in dict.fromkeys(kept)][:KEPT_MAX]

    def remember(self, files: Iterable[Path]) -> None:
        """Remember the folders of attached files. Ignores a full or read-only disk."""
        new = dict.fromkeys(file.absolute().parent for file in files)
        if not new:
            return
        kept = [str(folder) for folder in dict.fromkeys([*reversed(new), *self.folders])][:KEPT_MAX]
        try:
            write_private(self._file, json.dumps(kept, indent=1).encode() + b"\n")
        except VlmtuiError:
            return
