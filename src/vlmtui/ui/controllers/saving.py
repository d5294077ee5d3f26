"""Texts that a person wants as a file, beside where the app was started. No widgets here."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from vlmtui.errors import VlmtuiError, bad_input

_TRIES = 1000


def free_path(folder: Path, name: str) -> Path:
    """A path in the folder where nothing is: `name`, or `name-2` where that is taken. Blocking."""
    targets = (folder / _numbered(name, number) for number in range(1, _TRIES))
    return next((target for target in targets if not os.path.lexists(target)), folder / name)


def save_new(folder: Path, name: str, data: bytes) -> Path:
    """Write a file that was not there before, whole or not at all: `name`, or `name-2` where that is taken. Blocking.

    Raises VlmtuiError where the folder cannot be written or the disk is full.
    """
    temporary: Path | None = None
    try:
        descriptor, made = tempfile.mkstemp(prefix=".vlmtui-", dir=folder)
        temporary = Path(made)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        for number in range(1, _TRIES):
            target = folder / _numbered(name, number)
            if _took(temporary, target):
                return target
    except OSError as error:
        raise _not_saved(name, folder, error.strerror or str(error)) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()
    raise _not_saved(name, folder, f"{_TRIES} files of that name are there already")


def _numbered(name: str, number: int) -> str:
    path = Path(name)
    return name if number == 1 else f"{path.stem}-{number}{path.suffix}"


def _took(temporary: Path, target: Path) -> bool:
    """Give the file its name, unless there is one of that name. A link never replaces; where the file system has none,
    the name is taken by an empty file first."""
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError:
        try:
            target.open("xb").close()
        except FileExistsError:
            return False
        temporary.replace(target)
    return True


def _not_saved(name: str, folder: Path, reason: str) -> VlmtuiError:
    return bad_input(f"{name} could not be saved in {folder}: {reason}.", hint="Start vlmtui in a folder of yours.")
