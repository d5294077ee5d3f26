"""Decides whether vlmtui's own driver or Textual's writes to the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import textual

_KNOWN: Final = "8.2."
"""The version of Textual whose compositor `frames` can read."""


def sends_frames(environment: Mapping[str, str], version: str | None = None) -> bool:
    """Return whether vlmtui's own driver writes to the terminal, which sends only changed cells. With
    `VLMTUI_OUTPUT=plain` or an untested version of Textual, Textual's driver writes, and images are drawn with
    characters. `version`: the version of Textual; None: the installed one."""
    if environment.get("VLMTUI_OUTPUT") == "plain":
        return False
    return (_installed_version() if version is None else version).startswith(_KNOWN)


def _installed_version() -> str:
    """Return Textual's version, from the name of its metadata folder; empty if there is no such folder.
    `textual.__version__` reads the metadata with an e-mail parser, which takes 15 ms of the start."""
    folder = Path(textual.__file__).parent.parent
    return next((found.name.split("-")[1] for found in folder.glob("textual-*.dist-info")), "")
