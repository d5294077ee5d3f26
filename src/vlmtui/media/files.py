"""Reading the user's files without being fooled, and keeping them by content hash."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.paths import private_dir

_CHUNK = 4 * 1024 * 1024
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_KINDS = (
    (stat.S_ISDIR, "is a folder", "Name a file in it."),
    (stat.S_ISFIFO, "is a pipe (FIFO)", "Write its content to a file first."),
    (stat.S_ISSOCK, "is a socket", ""),
    (stat.S_ISCHR, "is a device", ""),
    (stat.S_ISBLK, "is a device", ""),
)


class Stored(NamedTuple):
    """A file of the store: the hex digest of its bytes, and where it lies."""

    sha256: str
    path: Path


def file_name(path: Path) -> str:
    """The file's own name as text that can be encoded: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(path.name).decode("utf-8", "replace")


def shown(path: Path) -> str:
    """The file's name for a message, made `visible`."""
    return visible(path.name or str(path))


def visible(text: str) -> str:
    """`text` with its control characters, bidi marks and stray bytes written out, so that they act on no terminal."""
    return _UNSEEN.sub(lambda match: ascii(match.group())[1:-1], text)


def human_bytes(count: int) -> str:
    """`340 kB`, `1.2 GB`: powers of 1000, as file managers and camera makers count."""
    size = float(count)
    for unit in ("bytes", "kB", "MB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit in ("bytes", "kB") or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


@contextmanager
def opened(path: Path, *, bytes_max: int) -> Iterator[BinaryIO]:
    """A regular file, open for reading; what cannot be read is a BAD_INPUT error that names the file and the reason.

    Never blocks on a pipe or a device. On leaving without an error, raises when the file changed meanwhile.
    """
    try:
        _require_regular(path, path.stat())
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    with os.fdopen(descriptor, "rb") as file:
        before = os.fstat(descriptor)
        _require_regular(path, before)
        if before.st_size == 0:
            raise bad_input(f"{shown(path)} is empty (0 bytes).", hint="If it is still being written, try again.")
        if before.st_size > bytes_max:
            raise bad_input(
                f"{shown(path)} is too large: {human_bytes(before.st_size)}, and the limit is {human_bytes(bytes_max)}."
            )
        yield file
        after = os.fstat(descriptor)
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise bad_input(
                f"{shown(path)} changed while it was being read.",
                hint="Wait until it is fully written, then try again.",
            )


def read_whole(path: Path, *, bytes_max: int) -> bytes:
    """All bytes of a regular file, as they were at one moment. Errors as for `opened`."""
    with opened(path, bytes_max=bytes_max) as file:
        try:
            return file.read(os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise unreadable(path, error) from error


def store_bytes(data: bytes, store: Path, suffix: str, *, name: str) -> Stored:
    """Keep `data` as `store/ab/<sha256><suffix>` (0600, whole or not at all). What is there already is left alone."""
    sha256 = hashlib.sha256(data).hexdigest()
    target = private_dir(private_dir(store) / sha256[:2]) / f"{sha256}{suffix}"
    if not _is_stored(target, sha256):
        with _whole_or_nothing(target.parent, name) as (file, temporary):
            file.write(data)
            file.close()
            temporary.replace(target)
    return Stored(sha256, target)


def store_copy(source: BinaryIO, store: Path, suffix: str, *, name: str) -> Stored:
    """Keep a copy of an open file under its content hash, as `store_bytes` does, in bounded memory."""
    digest = hashlib.sha256()
    source.seek(0)
    with _whole_or_nothing(private_dir(store), name) as (file, temporary):
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            file.write(chunk)
        file.close()
        sha256 = digest.hexdigest()
        target = private_dir(store / sha256[:2]) / f"{sha256}{suffix}"
        if not _is_stored(target, sha256):
            temporary.replace(target)
    return Stored(sha256, target)


def write_atomically(target: Path, data: bytes) -> None:
    """Write a file of mode 0600, whole or not at all. Raises VlmtuiError when there is no room."""
    with _whole_or_nothing(private_dir(target.parent), target.name) as (file, temporary):
        file.write(data)
        file.close()
        temporary.replace(target)


def unreadable(path: Path, error: Exception) -> VlmtuiError:
    """Why the system would not give us the file, in plain words."""
    code = error.errno if isinstance(error, OSError) else None
    name, detail = shown(path), str(error)
    match code:
        case errno.ENOENT | errno.ENOTDIR if path.is_symlink():
            target = shown(Path(os.readlink(path)))  # noqa: PTH115  (Path.readlink fails on what is not UTF-8)
            return bad_input(f"{name} is a link to {target}, which does not exist.", detail=detail)
        case errno.ENOENT | errno.ENOTDIR:
            return bad_input(
                f"{name} does not exist.", detail=detail, hint="Check the path, and which folder it is in."
            )
        case errno.ELOOP:
            return bad_input(f"{name} is a link that leads in a circle.", detail=detail)
        case errno.EACCES | errno.EPERM:
            return bad_input(
                f"{name} may not be read: permission denied.", detail=detail, hint="Look at it with `ls -l`."
            )
        case errno.ENAMETOOLONG:
            return bad_input(f"{name[:60]}… is too long for a path.", detail=detail)
        case _:
            return bad_input(f"{name} could not be read.", detail=detail)


def _require_regular(path: Path, found: os.stat_result) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    for test, words, hint in _KINDS:
        if test(found.st_mode):
            raise bad_input(f"{shown(path)} {words}, not a picture or video.", hint=hint)
    raise bad_input(f"{shown(path)} is not a regular file.")


def _is_stored(target: Path, sha256: str) -> bool:
    """Whether the file holds what its name says: a full disk, a copied folder or a failing disk may have left another
    content behind, and it is written again then."""
    try:
        found = target.stat()
        return _digest_of(target, found.st_size, found.st_ctime_ns) == sha256
    except OSError:
        return False


@lru_cache(maxsize=1024)
def _digest_of(path: Path, _size: int, _changed_ns: int) -> str:
    """The hex digest of a file, read once as long as its size and the time of its last change are the same."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _whole_or_nothing(folder: Path, name: str) -> Iterator[tuple[BinaryIO, Path]]:
    """A temporary file of mode 0600 in `folder`; it is gone afterwards unless the caller renamed it."""
    temporary: Path | None = None
    try:
        descriptor, created = tempfile.mkstemp(prefix=".new-", dir=folder)
        temporary = Path(created)
        with os.fdopen(descriptor, "wb") as file:
            yield file, temporary
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise bad_input(
            f"{name} could not be kept: " + ("the disk is full." if full else f"{folder} cannot be written."),
            detail=str(error),
            hint="Make room there, or name another place with VLMTUI_DATA_DIR.",
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
