"""A file system layer below the SQLite that Python's `sqlite3` uses, so that the product's own store runs over it.

The system's default VFS is wrapped by one whose files hand their writes, truncations and flushes to a `Disk` first.
It is registered in the same library that the module `_sqlite3` is linked to, which needs that to be a shared one.
"""

from __future__ import annotations

import ctypes
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

OK, IOERR = sqlite3.SQLITE_OK, sqlite3.SQLITE_IOERR
_NAME = b"vlmtui-faults"
_VFS_BYTES, _METHODS_BYTES = 168, 152
_V_NEXT, _V_NAME, _V_OPEN, _V_DELETE = 16, 24, 40, 48
"""Offsets in sqlite3_vfs on a 64-bit machine; sqlite.org/c3ref/vfs.html."""
_M_WRITE, _M_TRUNCATE, _M_SYNC = 24, 32, 40
"""Offsets in sqlite3_io_methods; sqlite.org/c3ref/io_methods.html."""

_Open = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_Delete = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_Write = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
_Truncate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_Sync = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)


class Watcher(Protocol):
    """What decides on every call that changes a file. Each returns a result code, and how much of it really happens."""

    def watches(self, path: str) -> bool: ...
    def opened(self, path: str) -> None: ...
    def write(self, path: str, at: int, data: bytes) -> tuple[int, bytes]:
        """Return the code, and the bytes that reach the file (for the processes that read it, not for good)."""
        ...

    def truncate(self, path: str, size: int) -> int: ...
    def sync(self, path: str) -> int: ...
    def delete(self, path: str) -> int: ...


class Unsupported(Exception):
    """Python's sqlite3 has its SQLite built in, or the machine is not a 64-bit one."""


class _Shim:
    """The wrapped VFS. One a process; `watcher` is None most of the time, and then nothing is touched."""

    def __init__(self) -> None:
        self.watcher: Watcher | None = None
        self.errors: list[BaseException] = []
        self._paths: dict[int, str] = {}
        self._methods: dict[int, Any] = {}
        self._library = _shared_library()
        find = self._library.sqlite3_vfs_find
        find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
        original = find(None)
        self._open = _Open(_pointer(original + _V_OPEN))
        self._delete = _Delete(_pointer(original + _V_DELETE))
        self._vfs = ctypes.create_string_buffer(ctypes.string_at(original, _VFS_BYTES), _VFS_BYTES)
        self._name = ctypes.create_string_buffer(_NAME)
        self._callbacks: list[Any] = []
        at = ctypes.addressof(self._vfs)
        _set_pointer(at + _V_NEXT, 0)
        _set_pointer(at + _V_NAME, ctypes.addressof(self._name))
        self._put(at + _V_OPEN, _Open, self._on_open)
        self._put(at + _V_DELETE, _Delete, self._on_delete)
        register = self._library.sqlite3_vfs_register
        register.restype, register.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]
        assert register(at, 1) == OK
        with sqlite3.connect(":memory:") as connection:  # the module must see it, or nothing would be tested
            connection.execute("SELECT 1")
        assert find(None) == at

    def _put(self, at: int, kind: Any, function: Callable[..., int]) -> None:
        def guarded(*arguments: Any) -> int:
            try:
                return function(*arguments)
            except BaseException as error:  # a callback from C cannot raise: the campaign looks here
                self.errors.append(error)
                return IOERR

        callback = kind(guarded)
        self._callbacks.append(callback)
        _set_pointer(at, ctypes.cast(callback, ctypes.c_void_p).value or 0)

    def _on_open(self, vfs: int, name: int | None, file: int, flags: int, out: int | None) -> int:
        code = int(self._open(vfs, name, file, flags, out))
        watcher = self.watcher
        if code != OK or name is None or watcher is None:
            return code
        path = (ctypes.string_at(name) or b"").decode()
        if watcher.watches(path):
            watcher.opened(path)
            self._paths[file] = path
            original = _pointer(file)
            if original not in self._methods:
                self._methods[original] = self._wrapped(original)
            _set_pointer(file, ctypes.addressof(self._methods[original]))
        return code

    def _wrapped(self, original: int) -> Any:
        """Return the table of a kind of file with our functions for what changes files."""
        table = ctypes.create_string_buffer(ctypes.string_at(original, _METHODS_BYTES), _METHODS_BYTES)
        write = _Write(_pointer(original + _M_WRITE))
        truncate = _Truncate(_pointer(original + _M_TRUNCATE))

        def on_write(file: int, data: int, count: int, at: int) -> int:
            whole = ctypes.string_at(data, count)
            code, reaching = self._asked().write(self._paths[file], at, whole)
            if reaching:
                buffer = ctypes.create_string_buffer(reaching, len(reaching))
                written = int(write(file, ctypes.addressof(buffer), len(reaching), at))
                return written if code == OK else code
            return code

        def on_truncate(file: int, size: int) -> int:
            code = self._asked().truncate(self._paths[file], size)
            return int(truncate(file, size)) if code == OK else code

        def on_sync(file: int, flags: int) -> int:
            return self._asked().sync(self._paths[file])

        at = ctypes.addressof(table)
        self._put(at + _M_WRITE, _Write, on_write)
        self._put(at + _M_TRUNCATE, _Truncate, on_truncate)
        self._put(at + _M_SYNC, _Sync, on_sync)
        return table

    def _on_delete(self, vfs: int, name: int, sync: int) -> int:
        path = (ctypes.string_at(name) or b"").decode()
        if self.watcher is not None and self.watcher.watches(path):
            code = self.watcher.delete(path)
            if code != OK:
                return code
        return int(self._delete(vfs, name, sync))

    def _asked(self) -> Watcher:
        assert self.watcher is not None, "a file outlived its history"
        return self.watcher


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Put `watcher` below all that SQLite opens in the body, and is closed in it. Raises what it raised."""
    shim = _shim()
    shim.watcher = watcher
    shim.errors.clear()
    try:
        yield
    finally:
        shim.watcher = None
    if shim.errors:
        raise shim.errors[0]


def is_supported() -> bool:
    try:
        _shim()
    except Unsupported:
        return False
    return True


@cache
def _shim() -> _Shim:
    return _Shim()


def _shared_library() -> Any:
    """Return the library that `_sqlite3` has loaded already."""
    import _sqlite3

    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    loaded = {line.split()[-1] for line in lines if "libsqlite3" in line}
    if ctypes.sizeof(ctypes.c_void_p) != 8 or len(loaded) != 1:
        raise Unsupported(f"{_sqlite3.__name__} is not linked to one shared libsqlite3")
    return ctypes.CDLL(loaded.pop())


def _pointer(at: int) -> int:
    return ctypes.c_void_p.from_address(at).value or 0


def _set_pointer(at: int, value: int) -> None:
    ctypes.c_void_p.from_address(at).value = value
