"""The user's permissions to run models' own Python code. For a repository, a permission is for one commit; for a
folder, it is for the present content of its files."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from vlmtui.errors import VlmtuiError
from vlmtui.files import write_private
from vlmtui.paths import Paths
from vlmtui.reading import read_json
from vlmtui.registry.remote_code import RemoteCode

_UNKNOWN = "next"
"""Stands for the commit of a repository that is not downloaded yet; replaced by its commit after the download."""
_BYTES_MAX = 10_000_000


class _TrustedFolder(msgspec.Struct, frozen=True):
    folder: str
    files: dict[str, str]
    """SHA-256 by name, as `RemoteCode.files`."""
    repository: str = ""
    """`owner/name@commit` of another repository that provides the code."""


class TrustStore:
    """The file `trusted.json` in the config folder. It contains `model@commit` for a repository, and the hashes of the
    files for a folder."""

    def __init__(self, paths: Paths) -> None:
        self._file = paths.config / "trusted.json"

    def is_trusted(self, code: RemoteCode) -> bool:
        """Return True if the user allowed this code at this commit, or with these file hashes."""
        commits, folders = self._read()
        if code.files is not None:
            return _TrustedFolder(code.model, dict(code.files), _other(code)) in folders
        if _key(code) in commits:
            return True
        promised = f"{code.model}@{_UNKNOWN}"
        if code.revision is not None and promised in commits:
            # It was allowed before its commit was known; record the commit now.
            self._write((commits - {promised}) | {_key(code)}, folders)
            return True
        return False

    def trust(self, code: RemoteCode) -> None:
        """Record the user's permission. Raises VlmtuiError if it cannot be stored."""
        commits, folders = self._read()
        if code.files is None:
            self._write(commits | {_key(code)}, folders)
        else:
            others = [one for one in folders if one.folder != code.model]
            self._write(commits, [*others, _TrustedFolder(code.model, dict(code.files), _other(code))])

    def changes(self, code: RemoteCode) -> tuple[str, ...]:
        """Return the names of a folder's files that have changed since the user allowed its code; empty if the user has
        never allowed it."""
        known = next((one for one in self._read()[1] if one.folder == code.model), None)
        if known is None or code.files is None:
            return ()
        now = code.files
        changed = {name for name in {*known.files, *now} if known.files.get(name) != now.get(name)}
        return (*sorted(changed), *([code.repository] if _other(code) != known.repository else []))

    def _read(self) -> tuple[set[str], list[_TrustedFolder]]:
        """Read the file; a damaged one counts as empty."""
        try:
            found = read_json(self._file, bytes_max=_BYTES_MAX)
        except VlmtuiError:
            return set(), []
        items = found if isinstance(found, list) else []
        folders = []
        for one in items:
            try:
                folders.append(msgspec.convert(one, _TrustedFolder))
            except msgspec.ValidationError:
                continue
        return {one for one in items if isinstance(one, str)}, folders

    def _write(self, commits: set[str], folders: Iterable[_TrustedFolder]) -> None:
        lines = [*sorted(commits), *(msgspec.to_builtins(one) for one in folders)]
        write_private(self._file, msgspec.json.format(msgspec.json.encode(lines), indent=1) + b"\n", durable=True)


def _key(code: RemoteCode) -> str:
    other = _other(code)
    return f"{code.model}@{code.revision or _UNKNOWN}" + (f" {other}" if other else "")


def _other(code: RemoteCode) -> str:
    return f"{code.repository}@{code.repository_revision or _UNKNOWN}" if code.repository else ""
