"""The Python code that a model brings along: which it is, so that a yes to it holds for no other."""

from __future__ import annotations

import hashlib
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
"""The files that may name code to import, under `auto_map`."""


class RemoteCode(msgspec.Struct, frozen=True, kw_only=True):
    """The code of one model, as it is now."""

    model: str
    """A repository id or a local folder."""
    revision: str | None = None
    """The commit of a repository; None where it is not downloaded yet, and of a folder."""
    files: dict[str, str] | None = None
    """Of a folder: the SHA-256 of each Python file and of what the configs import, by name."""
    repository: str = ""
    """The other repository that the code is taken from; empty: it is the model's own."""
    repository_revision: str | None = None
    """The commit of that one; None where it is not downloaded yet."""

    @property
    def digest(self) -> str | None:
        """One SHA-256 over all files of a folder."""
        if self.files is None:
            return None
        return hashlib.sha256(msgspec.json.encode(sorted(self.files.items()))).hexdigest()


def remote_code_of(model: str) -> RemoteCode:
    """The code that loading `model` would run. Raises VlmtuiError where it cannot be told what that is."""
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
    """The other repositories whose code the configs of a model's folder name (`owner/name--module.Class`)."""
    return {place.partition("--")[0] for place in _imports(folder) if "--" in place}


def _other_repository(folder: Path) -> str:
    found = sorted(imported_repositories(folder))
    if len(found) > 1:
        raise VlmtuiError(
            ErrorKind.REMOTE_CODE_REFUSED,
            f"The code of {folder.name} comes from several repositories: {', '.join(found)}.",
            hint="vlmtui runs foreign code only where it can tell which it is: of one repository.",
        )
    return next(iter(found), "")


def _commit(repository: str) -> str | None:
    snapshot = snapshot_of(repository) if repository else None
    return snapshot.name if snapshot is not None else None


def _files(folder: Path) -> dict[str, str]:
    """Every Python file below the folder, links included, and what the configs import."""
    files = {name: _digest(folder / name) for name in _python_files(folder)}
    imports = hashlib.sha256(msgspec.json.encode(sorted(_imports(folder)))).hexdigest()
    return {**files, "auto_map": imports}


def _python_files(folder: Path) -> list[str]:
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py"))
    if len(found) > _FILES_MAX:
        raise VlmtuiError(
            ErrorKind.REMOTE_CODE_REFUSED,
            f"{folder} holds more than {_FILES_MAX:,} Python files, so vlmtui does not run its code.",
            hint="Name the folder of the model alone.",
        )
    return found


def _digest(path: Path) -> str:
    return hashlib.sha256(read_whole(path, bytes_max=_FILE_BYTES_MAX, may_be_empty=True)).hexdigest()


def _imports(folder: Path) -> Iterator[str]:
    """The values of `auto_map` in a model's configs: `module.Class`, `owner/name--module.Class`."""
    for name in _CONFIGS:
        if not (folder / name).exists():
            continue
        config = read_json(folder / name, bytes_max=_FILE_BYTES_MAX)
        named = config.get("auto_map") if isinstance(config, dict) else None
        for value in named.values() if isinstance(named, dict) else ():
            values = value if isinstance(value, list) else [value]
            yield from (one for one in values if isinstance(one, str))
