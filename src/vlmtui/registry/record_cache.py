"""The package's records, parsed, as one file in the cache folder. It is read in 4 ms, the eighty TOML files in 50."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui.errors import VlmtuiError
from vlmtui.files import write_private
from vlmtui.reading import read_struct
from vlmtui.registry.schema import Family

_NAME = "families.json"
_BYTES_MAX = 20_000_000


class _CacheFile(msgspec.Struct, frozen=True):
    stamp: str
    families: list[Family]


def stamp_of(files: Iterable[Path]) -> str:
    """What is another one as soon as one of the files is: their names, sizes and times of change."""
    facts = ((file.name, file.stat()) for file in files)
    return " ".join(sorted(f"{name}:{found.st_size}:{found.st_mtime_ns}" for name, found in facts))


def read_records(folder: Path, stamp: str) -> list[Family] | None:
    """What was kept in the folder; None where it was made from other files, or cannot be read."""
    try:
        found = read_struct(folder / _NAME, _CacheFile, bytes_max=_BYTES_MAX)
    except VlmtuiError:
        return None
    return found.families if found.stamp == stamp else None


def write_records(folder: Path, stamp: str, families: Sequence[Family]) -> None:
    """Keep the records. A folder that cannot be written only means that they are parsed again."""
    with suppress(VlmtuiError):
        write_private(folder / _NAME, msgspec.json.encode(_CacheFile(stamp, list(families))))
