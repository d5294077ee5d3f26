"""The package's records as one file that is read in a millisecond: parsing eighty TOML files is a tenth of a start."""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui.errors import VlmtuiError
from vlmtui.paths import private_dir
from vlmtui.registry.schema import Family

_NAME = "families.json"


class _Parsed(msgspec.Struct, frozen=True):
    stamp: str
    families: list[Family]


def stamp_of(files: Iterable[Path]) -> str:
    """What is another one as soon as one of the files is: their names, sizes and times of change."""
    facts = ((file.name, file.stat()) for file in files)
    return " ".join(sorted(f"{name}:{found.st_size}:{found.st_mtime_ns}" for name, found in facts))


def read(folder: Path, stamp: str) -> list[Family] | None:
    """What was kept in the folder; None where it was made from other files, or cannot be read."""
    try:
        found = msgspec.json.decode((folder / _NAME).read_bytes(), type=_Parsed)
    except (OSError, msgspec.MsgspecError):
        return None
    return found.families if found.stamp == stamp else None


def write(folder: Path, stamp: str, families: Sequence[Family]) -> None:
    """Keep the records. A folder that cannot be written only means that they are parsed again."""
    with suppress(OSError, VlmtuiError):
        temporary = private_dir(folder) / f"{_NAME}.{os.getpid()}"
        temporary.write_bytes(msgspec.json.encode(_Parsed(stamp, list(families))))
        temporary.replace(folder / _NAME)
