"""The installed engines: each has a folder in the data folder's `engines/`, with a record that is written last."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import msgspec

from vlmtui.engines.uv import installation_lock
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import write_private
from vlmtui.paths import Paths
from vlmtui.reading import read_struct

_RECORD = "engine.json"
_RECORD_BYTES_MAX = 10_000_000
ADDED = "added"
"""The variant of an engine that the user added by its interpreter."""


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An installed engine that can be used."""

    name: str
    engine: str = "vllm"
    version: str
    """The engine's version, from its package metadata."""
    variant: str
    """`cpu`, `cuda`, or `added`."""
    interpreter: str
    """The absolute path of its Python."""
    python: str = ""
    """The version of that Python."""
    search_path: tuple[str, ...] = ()
    """Extra folders with packages that the worker needs and the interpreter lacks."""
    packages: dict[str, str] = {}
    """The version of every installed package, by name."""
    size_bytes: int = 0
    installed_at: float
    """Seconds since the epoch."""
    pinned: bool = False
    """Whether it serves only models that ask for its version, by a server of its own."""

    @property
    def torch(self) -> str:
        """PyTorch's version with its local tag; empty if unknown."""
        return self.packages.get("torch", "")


class Engines:
    """The installed engines of one data folder. Every method rereads the disk, as other processes may change it."""

    def __init__(self, paths: Paths) -> None:
        self.folder = paths.data / "engines"

    def folder_of(self, name: str) -> Path:
        """Return the folder of an engine; it need not exist."""
        return self.folder / name

    def all(self) -> list[EngineRecord]:
        """Return the usable engines, newest first. Skips incomplete ones and those whose interpreter is gone."""
        found = [record for name in self._names() if (record := self._read(name)) is not None]
        return sorted(found, key=lambda record: -record.installed_at)

    def incomplete(self) -> list[str]:
        """Return the names of engines whose installation is unfinished, or that no longer work."""
        usable = {record.name for record in self.all()}
        return [name for name in self._names() if name not in usable]

    def write(self, record: EngineRecord) -> None:
        """Write a record, which makes the engine usable. Raises VlmtuiError."""
        write_private(self.folder_of(record.name) / _RECORD, msgspec.json.encode(record), durable=True)

    def forget(self, name: str) -> None:
        """Delete the record, so that the engine is no longer used. Its files stay."""
        (self.folder_of(name) / _RECORD).unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Delete an engine, complete or not. Raises VlmtuiError if there is none or it cannot be deleted."""
        folder = self.folder_of(name)
        if name not in self._names():
            known = ", ".join(self._names()) or "none"
            message = f"Unknown engine: {name!r}."
            raise VlmtuiError(ErrorKind.BAD_INPUT, message, hint=f"Installed: {known}.")
        try:
            with installation_lock(folder, lambda: None):
                self.forget(name)
                shutil.rmtree(folder)
        except OSError as error:
            message = f"Can't remove the engine {name}."
            raise VlmtuiError(ErrorKind.BAD_INPUT, message, detail=str(error), hint="Check its folder.") from error

    def _names(self) -> list[str]:
        try:
            return sorted(one.name for one in self.folder.iterdir() if one.is_dir() and one.name[:1] != ".")
        except OSError:
            return []

    def _read(self, name: str) -> EngineRecord | None:
        folder = self.folder_of(name)
        try:
            record = read_struct(folder / _RECORD, EngineRecord, bytes_max=_RECORD_BYTES_MAX)
        except VlmtuiError:
            return None
        return record if record.name == name and Path(record.interpreter).exists() else None


class ChosenEngine(msgspec.Struct, frozen=True):
    """The interpreter that will host the engine, and its record."""

    interpreter: str
    record: EngineRecord | None = None
    """None: the engine is installed in the app's own environment."""

    @property
    def search_path(self) -> tuple[str, ...]:
        return self.record.search_path if self.record else ()


def choose_engine(engines: Engines) -> ChosenEngine | None:
    """Return the engine in the app's environment, else the newest installed one for this machine's GPUs, else None.
    Engines for models that ask for a version are left out."""
    if importlib.util.find_spec("vllm") is not None:
        return ChosenEngine(sys.executable)
    records = [record for record in engines.all() if not record.pinned]
    if len({record.variant for record in records}) > 1:
        from vlmtui.engines.hardware import find_hardware

        variant = find_hardware().variant
        records = [one for one in records if one.variant in (variant, ADDED)] or records
    return ChosenEngine(records[0].interpreter, records[0]) if records else None


def pinned_engine(engines: Engines, version: str) -> EngineRecord | None:
    """Return the newest engine with this version of vLLM, one for it alone first; None if it is not installed."""
    fitting = [record for record in engines.all() if record.version.partition("+")[0] == version]
    return min(fitting, key=lambda record: not record.pinned, default=None)
