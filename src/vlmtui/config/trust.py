"""Whose code may run: the repositories and revisions that the user has said yes to."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from vlmtui.errors import bad_input
from vlmtui.paths import Paths

_UNKNOWN = "next"
"""Stands for the revision of a repository that was not downloaded yet: the first that is seen afterwards."""


class TrustStore:
    """A file of `model@revision` lines in the config folder. A yes holds for one revision of one model only."""

    def __init__(self, paths: Paths) -> None:
        self._file = paths.config / "trusted.json"

    def is_trusted(self, model: str, revision: str | None) -> bool:
        """Whether the user said yes to this revision (a commit); None: the repository is not downloaded."""
        known = self._read()
        if f"{model}@{revision or _UNKNOWN}" in known:
            return True
        promised = f"{model}@{_UNKNOWN}"
        if revision is not None and promised in known:
            # The yes was given before there was anything to name; from now on it names what came.
            self._write((known - {promised}) | {f"{model}@{revision}"})
            return True
        return False

    def trust(self, model: str, revision: str | None) -> None:
        """Remember a yes. Raises VlmtuiError where it cannot be stored."""
        self._write(self._read() | {f"{model}@{revision or _UNKNOWN}"})

    def _read(self) -> set[str]:
        import json  # the first paint needs none

        try:
            found = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return set()
        return {str(one) for one in found} if isinstance(found, list) else set()

    def _write(self, lines: set[str]) -> None:
        import json

        fresh = self._file.with_suffix(f".{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(json.dumps(sorted(lines), indent=1) + "\n", encoding="utf-8")
            fresh.replace(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise bad_input(f"{self._file} cannot be written.", detail=str(error)) from error


def revision_of(folder: Path | None) -> str | None:
    """The commit of a snapshot folder of the hub cache; `local` for any other folder; None for none."""
    if folder is None:
        return None
    return folder.name if folder.parent.name == "snapshots" else "local"
