"""The choice of who writes to the terminal: our frames, or Textual itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import textual

_KNOWN: Final = "8.2."
"""The Textual whose compositor's updates `frames` knows."""


def sends_frames(environment: Mapping[str, str], version: str | None = None) -> bool:
    """Return whether only what differs is sent. `VLMTUI_OUTPUT=plain`, or another Textual than the known one: Textual's
    own driver writes, and pictures are drawn with characters. `version`: None: the installed one."""
    if environment.get("VLMTUI_OUTPUT") == "plain":
        return False
    return (_installed_version() if version is None else version).startswith(_KNOWN)


def _installed_version() -> str:
    """Return Textual's version by the name of its metadata folder, or "". `textual.__version__` reads the metadata with
    an e-mail parser, which takes 15 ms of the start."""
    folder = Path(textual.__file__).parent.parent
    return next((found.name.split("-")[1] for found in folder.glob("textual-*.dist-info")), "")
