"""Atomic, private file writing. All of vlmtui's files are written here.

A file is written in its target folder under a temporary name, and then renamed in one step: a reader sees the old
content or the new content, never a part. On any failure the unfinished file is removed and the old one stays. An
unfinished file is locked while it is written. If a process is killed, its unfinished file is no longer locked, and the
next write in the folder deletes it. A symbolic link at the target is replaced, never followed; only `write_output`, for
files that the user names, follows links as a shell does.

Files are flushed to disk (fsync) only with `durable`. Without fsync, a killed program loses nothing, but a power
failure may lose the last half minute of writes. `durable` is set for the user's own work (exports, saved prompts, the
list of trusted code), not for data that can be recreated or is verified by its hash.

Every function blocks and raises VlmtuiError (BAD_INPUT, DISK_FULL), with the system's reason as its detail.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.paths import is_network, private_dir
from vlmtui.text import one_line

TEMPORARY_PREFIX = ".new-"
"""Prefix of files that are unfinished, or about to be removed."""
_UNFINISHED = re.compile(re.escape(TEMPORARY_PREFIX) + r"vlmtui-[0-9a-f]{16}")
_PRIVATE = 0o600
_OLD_S = 3600.0
_TRIES = 1000
_FOREIGN_FILES = (Path("/dev"), Path("/proc"))
"""Files below these folders (`/dev/stdout`) are written to, never replaced."""


class NewFile:
    """A file in `folder`, open as `file`. It has a temporary name until `replace` or `take` renames it."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._durable = durable
        descriptor, self._path = _open_unfinished(folder)
        self.file: BinaryIO = os.fdopen(descriptor, "wb")

    def replace(self, target: Path) -> None:
        """Rename the file to `target`, on the same file system, replacing any existing file."""
        self._flush()
        self._path.replace(target)
        self._flush_folder(target.parent)

    def take(self, target: Path) -> bool:
        """Rename the file to `target` and return True. If `target` exists, change nothing and return False."""
        self._flush()
        try:
            target.hardlink_to(self._path)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links: reserve the name with an empty file
            try:
                os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE))
            except FileExistsError:
                return False
            try:
                self._path.replace(target)
            except OSError:
                target.unlink()
                raise
        self._flush_folder(target.parent)
        return True

    def discard(self) -> None:
        """Close the file, and delete it if it still has its temporary name."""
        with suppress(OSError):  # flushing the last bytes may fail on a full disk
            self.file.close()
        with suppress(OSError):
            self._path.unlink()

    def _flush(self) -> None:
        self.file.flush()
        if self._durable:
            os.fsync(self.file.fileno())

    def _flush_folder(self, folder: Path) -> None:
        if self._durable:
            with suppress(OSError):  # some file systems cannot flush a folder
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)


@contextmanager
def new_file(folder: Path, name: str, *, durable: bool = False) -> Iterator[NewFile]:
    """Open a new file (mode 0600) in `folder`. On exit the file is deleted unless it was renamed. `name`: the file's
    name in errors."""
    remove_abandoned(folder)
    new: NewFile | None = None
    try:
        new = NewFile(folder, durable=durable)
        yield new
    except (OSError, ValueError) as error:
        raise not_written(name, folder, error) from error
    finally:
        if new is not None:
            new.discard()


def remove_abandoned(folder: Path) -> None:
    """Delete the unfinished files that killed processes left in a folder. Errors are ignored. On a network file system,
    where the locks of other machines may not be seen, only those of an hour ago."""
    before = time.time() - _OLD_S if is_network(folder) else float("inf")
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(opened) as entries:
                names = [entry.name for entry in entries if _UNFINISHED.fullmatch(entry.name)]
            for name in names:
                with suppress(OSError):
                    _remove_if_abandoned(name, opened, before)
        finally:
            os.close(opened)


def write_atomically(target: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file in an existing folder, replacing any existing file."""
    with new_file(target.parent, target.name, durable=durable) as new:
        new.file.write(data)
        new.replace(target)


def write_private(target: Path, data: bytes, *, durable: bool = False) -> None:
    """Like `write_atomically`, but in a private folder (0700) of the application, which is created if missing."""
    private_dir(target.parent)
    write_atomically(target, data, durable=durable)


def write_new(target: Path, data: bytes) -> None:
    """Write a file in an existing folder. Raises VlmtuiError if the file exists."""
    with new_file(target.parent, target.name, durable=True) as new:
        new.file.write(data)
        if not new.take(target):
            raise bad_input(f"{one_line(str(target))} already exists.", hint="Choose another name.")


def write_numbered(folder: Path, name: str, data: bytes) -> Path:
    """Write a new file and return its path: `name`, or `name-2` if that exists, and so on."""
    with new_file(folder, name, durable=True) as new:
        new.file.write(data)
        for number in range(1, _TRIES):
            target = folder / _numbered(name, number)
            if new.take(target):
                return target
    raise bad_input(f"Can't write {one_line(name)}: there are already {_TRIES} files with that name.")


def write_output(path: Path, content: bytes | Path) -> None:
    """Write or copy to a path that the user named, like a shell's `>`: creates parent folders, follows symbolic links,
    and writes to devices and pipes. A regular file is replaced atomically by a new one (0600)."""
    try:
        if _is_written_through(path):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC), "wb") as file:
                _fill(file, content)
            return
        target = path.resolve() if path.is_symlink() else path
        target.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise not_written(path.name or str(path), path.parent, error) from error
    if target.is_dir():
        raise bad_input(f"{one_line(str(path))} is a folder.", hint="Choose a file in it.")
    with new_file(target.parent, target.name, durable=True) as new:
        _fill(new.file, content)
        new.replace(target)


def open_to_append(path: Path) -> int:
    """Open a file (0600, created if missing) for appending; a symbolic link is refused. Returns a descriptor.

    For logs and histories. Raises OSError.
    """
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _PRIVATE)


def not_written(name: str, folder: Path, error: Exception) -> VlmtuiError:
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.ENOSPC, errno.EDQUOT):
        message = f"Can't write {one_line(name)}: the disk is full."
        return VlmtuiError(ErrorKind.DISK_FULL, message, detail=str(error), hint=_ROOM)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    message = f"Can't write {one_line(name)} in {one_line(str(folder))}: {reason}."
    return bad_input(message, detail=str(error), hint=_ELSEWHERE)


_ROOM = "Free some space, or choose another folder (VLMTUI_DATA_DIR for vlmtui's own files)."
_ELSEWHERE = "Check the permissions, or choose another folder (VLMTUI_DATA_DIR for vlmtui's own files)."


def _open_unfinished(folder: Path) -> tuple[int, Path]:
    """Open a new file (0600) under a temporary name in the folder, and lock it. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        path = folder / f"{TEMPORARY_PREFIX}vlmtui-{os.urandom(8).hex()}"
        descriptor = os.open(path, flags, _PRIVATE)
        if _lock(descriptor) and path.exists():
            return descriptor, path
        os.close(descriptor)  # another process is removing it, since it was not locked yet


def _lock(descriptor: int) -> bool:
    """Lock a file until it is closed. Return False if another process has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _remove_if_abandoned(name: str, folder: int, before: float) -> None:
    """Delete a file of this user that is not locked and was written `before` this time. Raises OSError if it is locked
    or cannot be removed."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mtime > before:
        return
    descriptor = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(name, dir_fd=folder)
    finally:
        os.close(descriptor)


def _is_written_through(path: Path) -> bool:
    """Return True if `path` exists and is neither a regular file nor a folder (a device or pipe)."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100  (links must stay)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    is_foreign = any(absolute.is_relative_to(folder) for folder in _FOREIGN_FILES)
    return not stat.S_ISDIR(mode) and (is_foreign or not stat.S_ISREG(mode))


def _fill(file: BinaryIO, content: bytes | Path) -> None:
    if isinstance(content, bytes):
        file.write(content)
    else:
        with content.open("rb") as source:
            shutil.copyfileobj(source, file)


def _numbered(name: str, number: int) -> str:
    path = Path(name)
    return name if number == 1 else f"{path.stem}-{number}{path.suffix}"
