"""Reads untrusted files: only regular files, up to a size limit. Raises if a file changes while it is read."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.text import human_bytes, one_line

T = TypeVar("T")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
"""Surrogates in JSON, escaped or as bytes, single or in pairs."""
_KINDS = (
    (stat.S_ISDIR, "is a folder, not a file", "Choose a file in it."),
    (stat.S_ISFIFO, "is a pipe (FIFO), not a file", "Write its content to a file first."),
    (stat.S_ISSOCK, "is a socket, not a file", ""),
    (stat.S_ISCHR, "is a device, not a file", ""),
    (stat.S_ISBLK, "is a device, not a file", ""),
)
_DOWNLOAD = re.compile(
    rb"(?:40[134]\b.{0,40}|(?:entry|repository|page|file)? ?not found|invalid username or password|access denied"
    rb"|access to model .{0,200}|unauthorized|forbidden)[\s.!]*",
    re.IGNORECASE | re.DOTALL,
)
_LFS = "Run `git lfs pull` in its folder, or download it again with `hf download`."
_STAND_INS = (
    (re.compile(rb"version https?://(?:git-lfs|hawser|git-media)\."), "a Git LFS pointer, not the file itself", _LFS),
    (re.compile(rb"# xet version "), "a Xet pointer, not the file itself", "Download it again with `hf download`."),
    (re.compile(rb"(?i)<!doctype html|<html|<head"), "a web page (HTML), not the file itself", ""),
    (re.compile(rb"(?i)<\?xml|<error>"), "an XML document, not the file itself", ""),
    (re.compile(rb"\{\s*\"error\"\s*:"), "a server's error message, not the file itself", ""),
)
"""What files hold after a clone or a download that did not get the content: beginning, words, advice."""


def stand_in(head: bytes) -> tuple[str, str] | None:
    """Return what a file holds instead of its content (`a Git LFS pointer, not the file itself`) and the advice, which
    may be empty; None if its first bytes (512 or more) show nothing of that kind."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for pattern, words, mend in _STAND_INS:
        if pattern.match(start):
            return words, mend
    if _DOWNLOAD.fullmatch(start[:400]):
        return "a server's error message, not the file itself", ""
    return None


def file_name(path: Path) -> str:
    """Return the file's name as valid text: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(path.name).decode("utf-8", "replace")


def shown_name(path: Path) -> str:
    """Return the file's name for a message: on one line, with control characters made visible."""
    return one_line(path.name or str(path))


def source_text(path: Path) -> str:
    """Return the absolute path without following links; bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(path.absolute()).decode("utf-8", "replace")


def is_folder(path: Path) -> bool:
    """Return True if `path` is a folder; False also for invalid paths."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """Return True if `path` is a regular file; False also for invalid paths."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


@contextmanager
def opened(path: Path, *, bytes_max: int, may_be_empty: bool = False) -> Iterator[BinaryIO]:
    """Open a regular file for reading. Raises BAD_INPUT with the file's name and the reason if it cannot be read.

    Never blocks on a pipe or a device. On exit, raises if the file changed while it was open.
    """
    with _open_regular(path) as file:
        before = os.fstat(file.fileno())
        if before.st_size == 0 and not may_be_empty:
            raise bad_input(f"{shown_name(path)} is empty (0 bytes).", hint="If it is still being written, try again.")
        if before.st_size > bytes_max:
            size = human_bytes(before.st_size)
            raise bad_input(f"{shown_name(path)} is too large: {size}; the limit is {human_bytes(bytes_max)}.")
        yield file
        after = os.fstat(file.fileno())
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise bad_input(
                f"{shown_name(path)} changed while it was being read.",
                hint="Wait until it is fully written, then try again.",
            )


def _open_regular(path: Path) -> BinaryIO:
    """Open a regular file. Its type is checked before, since opening a device has effects, and again afterwards, since
    the file may have been replaced."""
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
    """Return all bytes of a regular file. Raises as `opened` does."""
    with opened(path, bytes_max=bytes_max, may_be_empty=may_be_empty) as file:
        try:
            return file.read(os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise unreadable(path, error) from error


def read_json(path: Path, *, bytes_max: int) -> object:
    """Parse a JSON file with Python's parser (which accepts `NaN`). Lone surrogates become `?`. Raises VlmtuiError
    (BAD_INPUT) for invalid or too deeply nested JSON."""
    import json  # not needed for the first paint

    data = read_whole(path, bytes_max=bytes_max)
    try:
        value = json.loads(data)
        if not _SURROGATE.search(data):
            return value
        return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        said, hint = stand_in(data[:1024]) or ("not valid JSON", "")
        raise bad_input(f"{shown_name(path)} is {said}.", detail=_reason(error), hint=hint) from error


def read_object(path: Path, *, bytes_max: int) -> dict[str, object]:
    """Return the object in a JSON file; an empty one if the file has none or can't be read."""
    try:
        found = read_json(path, bytes_max=bytes_max)
    except VlmtuiError:
        return {}
    return found if isinstance(found, dict) else {}


def decode_json(data: bytes | str, wanted: type[T]) -> T:
    """Decode JSON as the wanted type. Raises ValueError for invalid or too deeply nested JSON."""
    import msgspec  # setting up a checkout also imports this module, before any package is installed

    try:
        return msgspec.json.decode(data, type=wanted)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(_reason(error)) from error


def read_struct(path: Path, wanted: type[T], *, bytes_max: int) -> T:
    """Decode a JSON file as the wanted type. Raises VlmtuiError (BAD_INPUT)."""
    try:
        return decode_json(read_whole(path, bytes_max=bytes_max), wanted)
    except ValueError as error:
        raise bad_input(f"{shown_name(path)} does not have the expected content.", detail=str(error)) from error


def read_tail(path: Path, *, bytes_max: int) -> bytes:
    """Return the last bytes of a regular file, which may still grow. Raises VlmtuiError (BAD_INPUT)."""
    with _open_regular(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - bytes_max))
        return file.read(bytes_max)


def parse_toml(data: bytes) -> dict[str, object]:
    """Parse TOML. Raises ValueError, with the line number if known."""
    import tomli  # three times as fast as tomllib; the worker has no use for it

    try:
        return tomli.loads(data.decode())
    except RecursionError as error:
        raise ValueError(_reason(error)) from error


def merged(base: Mapping[str, object], own: Mapping[str, object]) -> dict[str, object]:
    """Return `base`, overridden by the values of `own`; tables in both are merged recursively."""
    found = dict(base)
    for name, value in own.items():
        old = found.get(name)
        found[name] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return found


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def unreadable(path: Path, error: Exception) -> VlmtuiError:
    code = error.errno if isinstance(error, OSError) else None
    name, detail = shown_name(path), str(error)
    match code:
        case errno.ENOENT | errno.ENOTDIR if path.is_symlink():
            target = shown_name(Path(os.readlink(path)))  # noqa: PTH115  (Path.readlink fails on what is not UTF-8)
            return bad_input(f"{name} is a broken link to {target}.", detail=detail)
        case errno.ENOENT | errno.ENOTDIR:
            return bad_input(f"{name} does not exist.", detail=detail, hint="Check the path.")
        case errno.ELOOP:
            return bad_input(f"{name} is a circular link.", detail=detail)
        case errno.EACCES | errno.EPERM:
            return bad_input(f"Can't read {name}: permission denied.", detail=detail, hint="Check it with `ls -l`.")
        case errno.ENAMETOOLONG:
            return bad_input(f"{name[:60]}… is too long for a path.", detail=detail)
        case _:
            return bad_input(f"Can't read {name}.", detail=detail)


def _require_regular(path: Path, found: os.stat_result) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    for test, words, hint in _KINDS:
        if test(found.st_mode):
            raise bad_input(f"{shown_name(path)} {words}.", hint=hint)
    raise bad_input(f"{shown_name(path)} is not a regular file.")
