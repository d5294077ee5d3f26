"""Reading files that others made: regular files only, up to a size, and unchanged while they are read."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.text import human_bytes, one_line

T = TypeVar("T")
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
"""What a lone surrogate is written as; a pair of them, too."""
_KINDS = (
    (stat.S_ISDIR, "is a folder, not a file", "Name a file in it."),
    (stat.S_ISFIFO, "is a pipe (FIFO), not a file", "Write its content to a file first."),
    (stat.S_ISSOCK, "is a socket, not a file", ""),
    (stat.S_ISCHR, "is a device, not a file", ""),
    (stat.S_ISBLK, "is a device, not a file", ""),
)


def file_name(path: Path) -> str:
    """The file's own name as text that can be encoded: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(path.name).decode("utf-8", "replace")


def shown_name(path: Path) -> str:
    """The file's name for a message, on one line and with its control characters visible."""
    return one_line(path.name or str(path))


def source_text(path: Path) -> str:
    """Where a file is, as an absolute path; links are not followed, bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(path.absolute()).decode("utf-8", "replace")


def is_folder(path: Path) -> bool:
    """Whether a folder is there; False for every name that can be none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """Whether a regular file is there; False for every name that can be none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


@contextmanager
def opened(path: Path, *, bytes_max: int, may_be_empty: bool = False) -> Iterator[BinaryIO]:
    """A regular file, open for reading; what cannot be read is a BAD_INPUT error that names the file and the reason.

    Never blocks on a pipe or a device. On leaving without an error, raises when the file changed meanwhile.
    """
    with _open_regular(path) as file:
        before = os.fstat(file.fileno())
        if before.st_size == 0 and not may_be_empty:
            raise bad_input(f"{shown_name(path)} is empty (0 bytes).", hint="If it is still being written, try again.")
        if before.st_size > bytes_max:
            size = human_bytes(before.st_size)
            raise bad_input(f"{shown_name(path)} is too large: {size}, and the limit is {human_bytes(bytes_max)}.")
        yield file
        after = os.fstat(file.fileno())
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise bad_input(
                f"{shown_name(path)} changed while it was being read.",
                hint="Wait until it is fully written, then try again.",
            )


def _open_regular(path: Path) -> BinaryIO:
    """Looked at before it is opened, as opening a device may do something; and after, as it may be another one by
    then."""
    try:
        _require_regular(path, path.stat())
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    try:
        _require_regular(path, os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except (OSError, VlmtuiError):
        os.close(descriptor)
        raise


def read_whole(path: Path, *, bytes_max: int, may_be_empty: bool = False) -> bytes:
    """All bytes of a regular file, as they were at one moment. Errors as for `opened`."""
    with opened(path, bytes_max=bytes_max, may_be_empty=may_be_empty) as file:
        try:
            return file.read(os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise unreadable(path, error) from error


def read_json(path: Path, *, bytes_max: int, is_of_paths: bool = False) -> object:
    """The value of a JSON file, as Python's own parser reads it (`NaN` too), half characters as U+FFFD, unless they
    stand for the bytes of a path (`is_of_paths`). Raises VlmtuiError (BAD_INPUT) for every file that holds none,
    however deep it is nested."""
    import json  # the first paint needs none

    data = read_whole(path, bytes_max=bytes_max)
    try:
        value = json.loads(data)
        return _encodable(value) if not is_of_paths and _HALF_CHARACTER.search(data) else value
    except (ValueError, RecursionError) as error:
        raise bad_input(f"{shown_name(path)} is no valid JSON.", detail=_reason(error)) from error


def _encodable(value: object) -> object:
    """The value without lone surrogates, which no file, socket or terminal takes."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [_encodable(item) for item in value]
        case dict():
            return {_encodable(key): _encodable(item) for key, item in value.items()}
        case _:
            return value


def decode_json(data: bytes | str, wanted: type[T]) -> T:
    """The value of a JSON text, of the type that is wanted. Raises ValueError for every text that holds none, however
    deep it is nested."""
    import msgspec  # setting up a checkout reads files, too, and has no packages yet

    try:
        return msgspec.json.decode(data, type=wanted)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(_reason(error)) from error


def read_struct(path: Path, wanted: type[T], *, bytes_max: int) -> T:
    """The value of a JSON file, of the type that is wanted. Raises VlmtuiError (BAD_INPUT) for every file that holds
    none."""
    try:
        return decode_json(read_whole(path, bytes_max=bytes_max), wanted)
    except ValueError as error:
        raise bad_input(f"{shown_name(path)} does not hold what it should.", detail=str(error)) from error


def read_tail(path: Path, *, bytes_max: int) -> bytes:
    """The last bytes of a regular file, which may be growing. Raises VlmtuiError (BAD_INPUT)."""
    with _open_regular(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - bytes_max))
        return file.read(bytes_max)


def parse_toml(data: bytes) -> dict[str, object]:
    """The table of a TOML text. Raises ValueError, with the line where it is known, for every text that is none."""
    import tomllib  # most starts need none

    try:
        return tomllib.loads(data.decode())
    except RecursionError as error:
        raise ValueError(_reason(error)) from error


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def unreadable(path: Path, error: Exception) -> VlmtuiError:
    """Why the system would not give us the file, in plain words."""
    code = error.errno if isinstance(error, OSError) else None
    name, detail = shown_name(path), str(error)
    match code:
        case errno.ENOENT | errno.ENOTDIR if path.is_symlink():
            target = shown_name(Path(os.readlink(path)))  # noqa: PTH115  (Path.readlink fails on what is not UTF-8)
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
            raise bad_input(f"{shown_name(path)} {words}.", hint=hint)
    raise bad_input(f"{shown_name(path)} is not a regular file.")
