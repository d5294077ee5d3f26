"""The errors of a conversation database that can't be used."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.text import counted


class Damage(NamedTuple):
    """A damaged database. It stays unchanged until the user agrees to replace it."""

    path: Path
    reason: str
    """What is damaged."""
    backup: Path | None
    """The newest good daily copy."""
    lacking: int | None
    """The maximum number of turns that the backup lacks; None if unknown."""
    file: tuple[int, int] | None
    """The `file_identity` of the database."""

    @property
    def offer(self) -> str:
        """Return a sentence with the date of the newest good backup, and the number of turns that it lacks."""
        if self.backup is None:
            return "There is no good backup."
        when = time.strftime("%-d %b %Y, %H:%M", time.localtime(self.backup.stat().st_mtime))
        turns = "an unknown number of turns" if self.lacking is None else f"at most {counted(self.lacking, 'turn')}"
        return f"The newest good backup, of {when}, lacks {turns if self.lacking != 0 else 'no turn'}."

    @property
    def successor(self) -> str:
        """Return a noun for what would replace the database, for a sentence after `offer`: `it` (the backup) or `an
        empty database`."""
        return "an empty database" if self.backup is None else "it"


class StoreError(VlmtuiError):
    """The database can't be used now; the same call may succeed later. `damage`: set if the database is damaged."""

    def __init__(
        self, kind: ErrorKind, message: str, *, detail: str = "", hint: str = "", damage: Damage | None = None
    ) -> None:
        super().__init__(kind, message, detail=detail, hint=hint)
        self.damage = damage


def damaged(damage: Damage) -> StoreError:
    """Return the error for a damaged database. Its hint says how to continue."""
    return StoreError(
        ErrorKind.INTERNAL,
        f"The conversation database {damage.path} is damaged.",
        detail=damage.reason,
        hint=f"{damage.offer} `vlmtui store restore` continues with {damage.successor} and keeps the damaged file.",
        damage=damage,
    )
