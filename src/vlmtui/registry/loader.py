"""Reads the family records. Importing this costs nothing heavy: no jinja2, no vllm."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources

import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.schema import Family


class Registry(Mapping[str, Family]):
    """The families by name, in the order of their files."""

    def __init__(self, families: Mapping[str, Family]) -> None:
        self._families = dict(families)

    @classmethod
    def bundled(cls) -> Registry:
        """The records that ship with the package. Raises VlmtuiError naming the file when one is wrong."""
        folder = resources.files("vlmtui.registry") / "families"
        files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
        families = (parse_family(file.read_bytes(), file.name) for file in files)
        return cls({family.family: family for family in families})

    def __getitem__(self, name: str) -> Family:
        return self._families[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._families)

    def __len__(self) -> int:
        return len(self._families)


def parse_family(data: bytes, name: str) -> Family:
    """A record from the bytes of its TOML file. Raises VlmtuiError with the file's name and the field."""
    try:
        return msgspec.convert(tomllib.loads(data.decode()), Family)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        message = f"The model record {name} is not valid."
        raise VlmtuiError(ErrorKind.BAD_INPUT, message, detail=str(error)) from error
