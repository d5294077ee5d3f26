"""Loads the model families' TOML records: the package's, then the user's own. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from threading import Lock

import msgspec

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.reading import merged, parse_toml, read_whole
from vlmtui.registry.engine_arguments import refused_by_record, typed_hint
from vlmtui.registry.schema import Family
from vlmtui.text import did_you_mean

_RECORD_BYTES_MAX = 1_000_000
_FOLDER = Path(__file__).with_name("families")
_FIRST = "shapes.toml"
_OWN = ("family", "title", "models", "checked", "checked_note", "note")
"""Fields that are not inherited through `extends`."""


class Registry(Mapping[str, Family]):
    """The families by name, in file order. Records are read when first needed."""

    def __init__(self, families: Mapping[str, Family] | None = None, *, users: Path | None = None) -> None:
        """`families`: all families; None: those of the package and of the folder `users`."""
        self._families = families
        self._users = users
        self._warnings: tuple[VlmtuiError, ...] = ()
        self._reading = Lock()

    @classmethod
    def bundled(cls) -> Registry:
        """Load the records that ship with the package. Raises VlmtuiError naming an invalid file."""
        return cls(_bundled_families())

    @classmethod
    def with_users(cls, folder: Path) -> Registry:
        """Return the families of the package and of the user's folder, whose records add or replace families.

        An invalid record of the user only causes a warning.
        """
        return cls(users=folder)

    @property
    def warnings(self) -> tuple[VlmtuiError, ...]:
        self.read()
        return self._warnings

    def read(self) -> Mapping[str, Family]:
        """Return the families; read their records on the first call. Thread-safe."""
        with self._reading:
            if self._families is None:
                self._families, self._warnings = _all_families(self._users)
            return self._families

    def at_hand(self) -> Registry:
        """Return this registry if its records are loaded, otherwise a registry that knows only the bundled model
        `shapes` and so loads fast."""
        if self._families is not None:
            return self
        file = _FOLDER / _FIRST
        family = parse_family(file.read_bytes(), file.name)
        return Registry({family.family: family})

    def __getitem__(self, name: str) -> Family:
        return self.read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())


def parse_family(data: bytes, name: str) -> Family:
    """Parse a TOML record that does not extend another. Raises VlmtuiError with the file name and the field."""
    return _family(_table(data, name), name, dict)


_Tables = Mapping[object, tuple[dict[str, object], str]]


def _bundled_families() -> dict[str, Family]:
    families = (_family(table, name, bundled_tables) for table, name in bundled_tables().values())
    return {family.family: family for family in families}


def _all_families(users: Path | None) -> tuple[dict[str, Family], tuple[VlmtuiError, ...]]:
    """Return the package's families and those of a user's folder, and the errors of that folder's files."""
    families = _bundled_families()
    warnings: list[VlmtuiError] = []
    try:
        files = _files(users) if users is not None and users.is_dir() else []
    except OSError as error:
        files = []
        warnings.append(bad_input(f"Can't read the folder {users}.", detail=str(error)))
    for file in files:
        try:
            name = str(file)
            table = _table(read_whole(file, bytes_max=_RECORD_BYTES_MAX), name)
            family = _family(table, name, bundled_tables)
            if (refused := refused_by_record(family)) is not None:
                argument, kind = refused
                what = f"the engine argument {argument!r} names {kind}, which a record cannot set."
                raise _invalid(name, what, typed_hint(argument))
            families[family.family] = family
        except VlmtuiError as error:
            warnings.append(error)
    return families, tuple(warnings)


@cache
def bundled_tables() -> _Tables:
    """Return the package's records as TOML tables, by family, each with its file name. Users' records may extend
    them."""
    return {table["family"]: (table, name) for table, name in _tables(_files(_FOLDER))}


def _files(folder: Path) -> list[Path]:
    return sorted(
        (file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name.casefold()
    )


def _tables(files: Iterable[Path]) -> Iterator[tuple[dict[str, object], str]]:
    for file in files:
        yield _table(file.read_bytes(), file.name), file.name


def _table(data: bytes, name: str) -> dict[str, object]:
    try:
        table = parse_toml(data)
    except ValueError as error:
        raise bad_input(f"The model record {name} is not valid TOML.", detail=str(error)) from error
    if not isinstance(table.get("family"), str):
        raise bad_input(f"The model record {name} has no field 'family'.", hint='Add: family = "NAME"')
    return table


def _family(table: dict[str, object], name: str, bases: Callable[[], _Tables]) -> Family:
    """Build a family from its TOML table. `bases`: returns the tables that a record may extend; called only if
    needed."""
    own = {field: value for field, value in table.items() if field != "extends"}
    base = table.get("extends")
    if base is not None:
        tables = bases()
        if base not in tables:
            raise _invalid(name, f"unknown family {base!r}.", did_you_mean(str(base), tables))
        inherited = tables[base][0]
        if "extends" in inherited:
            raise _invalid(name, f"{base!r} itself extends another family.", "Extend that one.")
        own = merged({key: inherited[key] for key in inherited if key not in _OWN}, own)
    try:
        return msgspec.convert(own, Family)
    except msgspec.ValidationError as error:
        raise _invalid(name, f"{error}.") from error


def _invalid(name: str, what: str, hint: str = "") -> VlmtuiError:
    return bad_input(f"Invalid model record {name}: {what}", hint=hint)
