"""Identifies the Python code that comes with a model, so that the user's permission covers no other code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.reading import is_folder, read_json, read_whole
from vlmtui.registry.hub_cache import snapshot_of

_FILES_MAX = 1_000
_FILE_BYTES_MAX = 10_000_000
_CONFIGS = (
    "config.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
)
"""Files that may name code to import, under `auto_map`."""


class RemoteCode(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    """A repository id or a local folder."""
    revision: str | None = None
    """The commit of a repository; None if it is not downloaded yet, or for a folder."""
    files: dict[str, str] | None = None
    """SHA-256 by name of each Python file of a local folder, and of the configs' imports; None for a repository."""
    repository: str = ""
    """Another repository that provides the code; empty: the model's own."""
    repository_revision: str | None = None
    """The commit of `repository`; None if it is not downloaded yet."""

    @property
    def digest(self) -> str | None:
        """One SHA-256 over all files of a folder; None for a repository."""
        if self.files is None:
            return None
        return _sha256(msgspec.json.encode(sorted(self.files.items())))


def remote_code_of(model: str) -> RemoteCode:
    """Return the code that loading `model` would run. Raises VlmtuiError if it cannot be identified."""
    folder = Path(model)
    if is_folder(folder):
        other = _other_repository(folder)
        return RemoteCode(model=model, files=_files(folder), repository=other, repository_revision=_commit(other))
    snapshot = snapshot_of(model)
    if snapshot is None:
        return RemoteCode(model=model)
    other = _other_repository(snapshot)
    return RemoteCode(model=model, revision=snapshot.name, repository=other, repository_revision=_commit(other))


def imported_repositories(folder: Path) -> set[str]:
    """Return the other repositories whose code a model folder's configs import (`owner/name--module.Class`)."""
    return {place.partition("--")[0] for place in _imports(folder) if "--" in place}


def _other_repository(folder: Path) -> str:
    found = sorted(imported_repositories(folder))
    if len(found) > 1:
        raise VlmtuiError(
            ErrorKind.REMOTE_CODE_REFUSED,
            f"The code of {folder.name} comes from several repositories: {', '.join(found)}.",
            hint="vlmtui only runs code from a single other repository.",
        )
    return next(iter(found), "")


def _commit(repository: str) -> str | None:
    snapshot = snapshot_of(repository) if repository else None
    return snapshot.name if snapshot is not None else None


def _files(folder: Path) -> dict[str, str]:
    """Return a hash for every Python file below the folder (links included), and one for the classes that the configs
    import."""
    files = {name: _digest(folder / name) for name in _python_files(folder)}
    imports = _sha256(msgspec.json.encode(sorted(_imports(folder))))
    return {**files, "auto_map": imports}


def _python_files(folder: Path) -> list[str]:
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py"))
    if len(found) > _FILES_MAX:
        raise VlmtuiError(
            ErrorKind.REMOTE_CODE_REFUSED,
            f"vlmtui won't run the code in {folder}: it has more than {_FILES_MAX:,} Python files.",
            hint="Use a folder that contains only the model.",
        )
    return found


def _digest(path: Path) -> str:
    return _sha256(read_whole(path, bytes_max=_FILE_BYTES_MAX, may_be_empty=True))


def _sha256(data: bytes) -> str:
    import hashlib  # loads OpenSSL, which is not needed for the first paint

    return hashlib.sha256(data).hexdigest()


def _imports(folder: Path) -> Iterator[str]:
    """Yield the values of `auto_map` in a model's configs: `module.Class`, `owner/name--module.Class`."""
    for name in _CONFIGS:
        if not (folder / name).exists():
            continue
        config = read_json(folder / name, bytes_max=_FILE_BYTES_MAX)
        named = config.get("auto_map") if isinstance(config, dict) else None
        for value in named.values() if isinstance(named, dict) else ():
            values = value if isinstance(value, list) else [value]
            yield from (one for one in values if isinstance(one, str))
