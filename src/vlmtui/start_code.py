"""The compiled code of the modules that a start imports, in one file.

Python finds, checks and reads each module by itself, which takes longer than running most of them. The file is made of
Python's own compiled files, lies among them, and is used under their condition: a module whose source has another time
or size is imported as usual.
"""

from __future__ import annotations

import marshal
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from mmap import ACCESS_READ, mmap
from types import CodeType, ModuleType

_HEADER = slice(4, 16)
"""Of a compiled file, behind Python's magic number: flags, time and size of the source."""
_LENGTH_BYTES = 8
_Entry = tuple[str, str, bool, bytes, int, int]
"""A module's source and compiled file, whether it is a package, the compiled file's header, where its code is."""


class StartCode:
    """Finds modules in the file while the app starts, and adds to the file what it lacked."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._before: frozenset[str] = frozenset()
        """The modules that were imported when this began."""
        self._entries: dict[str, _Entry] = {}
        self._code = memoryview(b"")
        self._missed: list[str] = []
        """The modules of this start that were imported as usual."""

    @classmethod
    def of_app(cls) -> StartCode:
        """Return that of this program and this version of Python."""
        own = __spec__.cached or __file__
        return cls(f"{own.removesuffix('.pyc')}.all")

    def begin(self) -> None:
        """Import from the file from now on."""
        self._before = frozenset(sys.modules)
        self._entries, self._code = self._read()
        sys.meta_path.insert(0, self)

    def end(self) -> None:
        """Import as usual from now on: what was imported until now is what a start needs."""
        if self not in sys.meta_path:
            return
        sys.meta_path.remove(self)
        loaded = [(name, sys.modules[name]) for name in sys.modules.keys() - self._before]
        self._missed = [name for name, one in loaded if type(getattr(one, "__loader__", None)) is SourceFileLoader]
        self._entries, self._code = {}, memoryview(b"")

    @property
    def is_complete(self) -> bool:
        """Whether the file had all of the start that has ended."""
        return not self._missed

    def complete(self) -> None:
        """Add to the file what the start had to find. Where it can't be written, starts stay as they are."""
        if sys.dont_write_bytecode or not os.access(os.path.dirname(self._file), os.W_OK):  # noqa: PTH120
            return
        found = {name: one for name in self._missed if (one := _found(sys.modules[name])) is not None}
        if not found:
            return
        from contextlib import suppress
        from pathlib import Path

        from vlmtui.errors import VlmtuiError
        from vlmtui.files import new_file

        entries, code = self._read()
        pieces: dict[str, tuple[_Entry, bytes | memoryview]] = {
            name: (entry, code[entry[4] : entry[5]]) for name, entry in entries.items() if _is_current(entry)
        }
        pieces |= found
        placed, end = {}, 0
        for name, (entry, piece) in pieces.items():
            placed[name] = (*entry[:4], end, end := end + len(piece))
        index = marshal.dumps((_made_for(), placed))
        target = Path(self._file)
        with suppress(VlmtuiError), new_file(target.parent, target.name) as new:
            new.file.write(len(index).to_bytes(_LENGTH_BYTES, "little") + index)
            new.file.writelines(piece for _, piece in pieces.values())
            new.replace(target)

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module, as the import system asks."""
        entry = self._entries.get(name)
        if entry is None or not _is_current(entry):
            return None
        source, cached, is_package, _, begin, end = entry
        spec = ModuleSpec(name, _Loader(name, source, self._code[begin:end]), origin=source, is_package=is_package)
        spec.has_location = True
        spec.cached = cached
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(os.path.dirname(source))  # noqa: PTH120
        return spec

    def _read(self) -> tuple[dict[str, _Entry], memoryview]:
        """Return what is in the file, if it was made for this Python and this search path."""
        try:
            with open(self._file, "rb") as file:  # noqa: PTH123 - pathlib is not imported yet
                whole = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
            begin = _LENGTH_BYTES + int.from_bytes(whole[:_LENGTH_BYTES], "little")
            made_for, entries = marshal.loads(whole[_LENGTH_BYTES:begin])
        except (OSError, ValueError, EOFError, TypeError):
            return {}, memoryview(b"")
        return (entries, whole[begin:]) if made_for == _made_for() else ({}, memoryview(b""))


def this_start() -> StartCode | None:
    """Return the start that has begun and not ended; None: there is none."""
    return next((finder for finder in sys.meta_path if isinstance(finder, StartCode)), None)


class _Loader(SourceFileLoader):
    """Loads a module whose code is known already."""

    def __init__(self, name: str, source: str, code: memoryview) -> None:
        super().__init__(name, source)
        self._code: memoryview | None = code

    def get_code(self, fullname: str) -> CodeType | None:
        known, self._code = self._code, None
        if known is None:
            return super().get_code(fullname)
        code: CodeType = marshal.loads(known)
        return code


def _made_for() -> tuple[str, list[str]]:
    return sys.version, sys.path[1:]  # without the folder of the program, or the current one


def _is_current(entry: _Entry) -> bool:
    try:
        found = os.stat(entry[0])  # noqa: PTH116
    except OSError:
        return False
    facts = (0, int(found.st_mtime), found.st_size)
    return entry[3] == b"".join((fact & 0xFFFFFFFF).to_bytes(4, "little") for fact in facts)


def _found(module: ModuleType) -> tuple[_Entry, bytes] | None:
    """Return a module's entry and code, if Python has them in a compiled file."""
    spec = module.__spec__
    if spec is None or spec.origin is None or spec.cached is None:
        return None
    try:
        with open(spec.cached, "rb") as file:  # noqa: PTH123
            whole = file.read()
    except OSError:
        return None
    is_package = spec.submodule_search_locations is not None
    entry = (spec.origin, spec.cached, is_package, whole[_HEADER], 0, 0)
    return (entry, whole[_HEADER.stop :]) if _is_current(entry) else None
