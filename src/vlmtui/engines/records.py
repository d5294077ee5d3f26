"""Which engines are installed: one folder each in the data folder's `engines/`, with a record written last."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import msgspec

from vlmtui.engines.environment import Phase, one_at_a_time, read_state
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import write_private
from vlmtui.paths import Paths
from vlmtui.reading import read_struct

_RECORD = "engine.json"
_RECORD_BYTES_MAX = 10_000_000
ENVIRONMENT = "env"
"""The environment's folder within an engine's."""
ADDED = "added"
"""The variant of an engine that was not installed by vlmtui, but named by its interpreter."""


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that can be used."""

    name: str
    engine: str = "vllm"
    version: str
    """Of the engine, as its package's metadata has it."""
    variant: str
    """`cpu`, `cuda`, or `added`."""
    interpreter: str
    """The absolute path of its Python."""
    python: str = ""
    """The version of that Python."""
    search_path: tuple[str, ...] = ()
    """Folders beside the interpreter's own in which packages that the worker needs were put."""
    packages: dict[str, str] = {}
    """The version of every package in it, by name."""
    size_bytes: int = 0
    installed_at: float
    """Seconds since the epoch."""
    verified_at: float | None = None
    """When the bundled model last answered rightly in it."""

    @property
    def torch(self) -> str:
        """PyTorch's version, with its local tag; empty where it is not known."""
        return self.packages.get("torch", "")


class Engines:
    """The installed engines of one data folder. Every method looks anew: another process may have changed them."""

    def __init__(self, paths: Paths) -> None:
        self.folder = paths.data / "engines"

    def folder_of(self, name: str) -> Path:
        """The folder of an engine; it need not be there."""
        return self.folder / name

    def all(self) -> list[EngineRecord]:
        """Those that can be used, the newest first. Half-made ones, and those whose interpreter is gone, are not."""
        found = [record for name in self._names() if (record := self._read(name)) is not None]
        return sorted(found, key=lambda record: -record.installed_at)

    def half_made(self) -> list[str]:
        """Folders of engines that were begun and not finished, or that no longer work."""
        usable = {record.name for record in self.all()}
        return [name for name in self._names() if name not in usable]

    def write(self, record: EngineRecord) -> None:
        """Write a record; the engine can be used from now on. Raises VlmtuiError."""
        write_private(self.folder_of(record.name) / _RECORD, msgspec.json.encode(record), durable=True)

    def forget(self, name: str) -> None:
        """Take the record away: the engine is not used from now on, though its files are still there."""
        (self.folder_of(name) / _RECORD).unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove an engine, or what is there of one. Raises VlmtuiError where there is none or it cannot be deleted."""
        folder = self.folder_of(name)
        if name not in self._names():
            known = ", ".join(self._names()) or "none"
            message = f"No engine is called {name!r}."
            raise VlmtuiError(ErrorKind.BAD_INPUT, message, hint=f"Installed: {known}.")
        try:
            with one_at_a_time(folder, lambda: None):
                self.forget(name)
                shutil.rmtree(folder)
        except OSError as error:
            message = f"The engine {name} could not be removed."
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
        whole = record.variant == ADDED or read_state(folder / ENVIRONMENT).phase is Phase.READY
        return record if whole and record.name == name and Path(record.interpreter).exists() else None


class ChosenEngine(msgspec.Struct, frozen=True):
    """The Python that hosts the engine, and where it comes from."""

    interpreter: str
    record: EngineRecord | None = None
    """None: the engine is installed beside the app."""

    @property
    def search_path(self) -> tuple[str, ...]:
        return self.record.search_path if self.record else ()


def choose_engine(engines: Engines) -> ChosenEngine | None:
    """The engine beside the app, else the newest installed one that fits this machine's GPUs; None: there is none."""
    if importlib.util.find_spec("vllm") is not None:
        return ChosenEngine(sys.executable)
    records = engines.all()
    if len({record.variant for record in records}) > 1:
        from vlmtui.engines.hardware import find_hardware

        variant = find_hardware().variant
        records = [one for one in records if one.variant in (variant, ADDED)] or records
    return ChosenEngine(records[0].interpreter, records[0]) if records else None
