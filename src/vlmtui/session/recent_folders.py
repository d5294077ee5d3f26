"""The folders of files that were attached lately, across sessions."""

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
    """Folders, newest first. The file (0600) is a JSON list of paths; a damaged file counts as empty."""

    def __init__(self, file: Path) -> None:
        """`file`: `folders.json` in the state folder."""
        self._file = file

    @property
    def folders(self) -> list[Path]:
        """Newest first; some may not exist any more. Reads the file."""
        try:
            found = read_json(self._file, bytes_max=_BYTES_MAX, keep_surrogates=True)
        except VlmtuiError:
            return []
        if not isinstance(found, list):
            return []
        kept = [name for name in found if isinstance(name, str) and name.startswith("/") and "\0" not in name]
        return [Path(name) for name in dict.fromkeys(kept)][:KEPT_MAX]

    def remember(self, files: Iterable[Path]) -> None:
        """Add the folders of attached files. Does nothing if the file can't be written."""
        new = dict.fromkeys(file.absolute().parent for file in files)
        if not new:
            return
        kept = [str(folder) for folder in dict.fromkeys([*reversed(new), *self.folders])][:KEPT_MAX]
        try:
            write_private(self._file, json.dumps(kept, indent=1).encode() + b"\n")
        except VlmtuiError:
            return
