"""Writing files: whole or not at all, for their owner alone. The only place that does it.

What is written lies in the folder that it is meant for, without a name or under a temporary one, and takes its own name
in one step: a reader sees the old content or the new one, never a part. Whatever fails, the unfinished file is gone and
what stood there before stays. A symbolic link at the name is replaced, never followed; only `write_output`, for files
that a person names, follows links as a shell does.

Nothing is flushed to the disk (fsync) unless `durable` says so: a program that is killed loses nothing either way, but
a machine that loses power may lose what was written in the last half minute. It is set for a person's own work
(exports, saved prompts, the list of trusted code), not for what can be made again or is checked by its hash.

Every function is blocking and raises VlmtuiError (BAD_INPUT, DISK_FULL), with the system's reason as its detail.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.paths import private_dir
from vlmtui.text import one_line

TEMPORARY_PREFIX = ".new-"
"""How the names of unfinished files begin, where they need one: a process that is killed then may leave it behind."""
_PRIVATE = 0o600
_TRIES = 1000
_FOREIGN_FILES = (Path("/dev"), Path("/proc"))
"""Names below these are doors to something else (`/dev/stdout`): they are written to, never replaced."""


class NewFile:
    """An unfinished file in `folder`: `file` is open for writing, under a temporary name or none, until it is given its
    own."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        """Raises OSError."""
        self._folder = folder
        self._durable = durable
        self._path: Path | None = None
        descriptor = _without_a_name(folder)
        if descriptor is None:
            descriptor, made = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=folder)
            self._path = Path(made)
        self.file: BinaryIO = os.fdopen(descriptor, "wb")

    def replace(self, target: Path) -> None:
        """Finish the file as `target`, in the same folder or at least file system; what stood there is gone."""
        self._flush()
        if self._path is None:
            named = self._folder / f"{TEMPORARY_PREFIX}{os.urandom(8).hex()}"
            self._link(named)
            self._path = named
        self._path.replace(target)
        self._flush_folder(target.parent)

    def take(self, target: Path) -> bool:
        """Finish the file as `target`, unless something stands there: then it stays unfinished, and False is given."""
        self._flush()
        try:
            self._link(target)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links: an empty file takes the name first
            if self._path is None:
                raise
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
        """Close the file; where it was not finished, it is gone."""
        with suppress(OSError):  # what is not on the disk yet may find no room
            self.file.close()
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()

    def _link(self, name: Path) -> None:
        """Give the file that name as well. Raises FileExistsError, OSError."""
        if self._path is not None:
            name.hardlink_to(self._path)
            return
        folder = os.open(name.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:  # with a folder's descriptor, Python follows the link that stands for the open file
            os.link(_open_file(self.file.fileno()), name.name, dst_dir_fd=folder, follow_symlinks=True)
        finally:
            os.close(folder)

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
    """An unfinished file (0600) in `folder`, gone at the end unless it was given a name. `name` is for errors only."""
    new: NewFile | None = None
    try:
        new = NewFile(folder, durable=durable)
        yield new
    except (OSError, ValueError) as error:
        raise not_written(name, folder, error) from error
    finally:
        if new is not None:
            new.discard()


def write_atomically(target: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file in a folder that is there; one of that name is replaced."""
    with new_file(target.parent, target.name, durable=durable) as new:
        new.file.write(data)
        new.replace(target)


def write_private(target: Path, data: bytes, *, durable: bool = False) -> None:
    """As `write_atomically`, in a folder of the application's own: made when missing, open to its owner only."""
    private_dir(target.parent)
    write_atomically(target, data, durable=durable)


def write_new(target: Path, data: bytes) -> None:
    """Write a file in a folder that is there; one of that name is an error."""
    with new_file(target.parent, target.name, durable=True) as new:
        new.file.write(data)
        if not new.take(target):
            raise bad_input(f"{one_line(str(target))} is there already.", hint="Take another name.")


def write_numbered(folder: Path, name: str, data: bytes) -> Path:
    """Write a file that was not there before, and give its path: `name`, or `name-2` where that is taken, and so on."""
    with new_file(folder, name, durable=True) as new:
        new.file.write(data)
        for number in range(1, _TRIES):
            target = folder / _numbered(name, number)
            if new.take(target):
                return target
    raise bad_input(f"{one_line(name)} could not be written: {_TRIES} files of that name are there already.")


def free_path(folder: Path, name: str) -> Path:
    """A path in the folder where nothing is: `name`, or `name-2` where that is taken, and so on."""
    targets = (folder / _numbered(name, number) for number in range(1, _TRIES))
    return next((target for target in targets if not os.path.lexists(target)), folder / name)


def write_output(path: Path, content: bytes | Path) -> None:
    """Write, or copy, to where a person said, as a shell's `>` would: folders above are made, links are followed, and a
    device or pipe is written to. A regular file is replaced by a new one (0600), whole or not at all."""
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
        raise bad_input(f"{one_line(str(path))} is a folder.", hint="Name a file in it.")
    with new_file(target.parent, target.name, durable=True) as new:
        _fill(new.file, content)
        new.replace(target)


def open_to_append(path: Path) -> int:
    """A descriptor that writes at the end of a file (0600), made when missing; a link in its place is refused.

    For logs and histories, which grow a line at a time. Raises OSError.
    """
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _PRIVATE)


def not_written(name: str, folder: Path, error: Exception) -> VlmtuiError:
    """Why a file could not be written, in plain words."""
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.ENOSPC, errno.EDQUOT):
        message = f"{one_line(name)} could not be written: the disk is full."
        return VlmtuiError(ErrorKind.DISK_FULL, message, detail=str(error), hint=_ROOM)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    where = f"{one_line(name)} could not be written in {one_line(str(folder))}"
    return bad_input(f"{where}: {reason}.", detail=str(error), hint=_ELSEWHERE)


_ROOM = "Make room there, or name another place (VLMTUI_DATA_DIR for vlmtui's own files)."
_ELSEWHERE = "Check that you may write there, or name another place (VLMTUI_DATA_DIR for vlmtui's own files)."


def _without_a_name(folder: Path) -> int | None:
    """A descriptor of a new file (0600) in the folder that has no name, so that a killed process leaves nothing; None
    where there is no such thing (not Linux, some network file systems)."""
    if sys.platform != "linux":
        return None
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, _PRIVATE)
    except OSError:
        return None
    if os.path.lexists(_open_file(descriptor)):
        return descriptor
    os.close(descriptor)
    return None


def _open_file(descriptor: int) -> str:
    """A link to the file that this process has open, where /proc is mounted."""
    return f"/proc/self/fd/{descriptor}"


def _is_written_through(path: Path) -> bool:
    """Whether there is something at `path` that is no regular file and no folder."""
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
