"""The parsed styles of the first screen, kept from one start to the next: parsing them takes ten times as long."""

from __future__ import annotations

import pickle
import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from textual.css.stylesheet import Stylesheet

from vlmtui.errors import VlmtuiError
from vlmtui.files import new_file

_PARSERS = ("textual.css.", "textual.color", "textual.geometry", "textual.style")
"""The modules of which the parsed styles are made."""


class StartStyles:
    """A file beside Python's compiled ones, as trusted as they are."""

    def __init__(self, file: Path | None = None) -> None:
        """`file`: another one than that of this program and this version of Python."""
        self._file = file or Path(cache_from_source(__file__)).with_suffix(".all")
        self._known: frozenset[object] = frozenset()

    def fill(self, stylesheet: Stylesheet) -> None:
        """Give a stylesheet whose variables are set what was parsed with them before."""
        parsed: dict[Any, Any] = {}
        with suppress(OSError, ValueError, EOFError, TypeError, AttributeError, ImportError, pickle.UnpicklingError):
            made_of, parsed = pickle.loads(self._file.read_bytes())
            parsed = parsed if made_of == _made_of(stylesheet) else {}
        self._known = frozenset(parsed)
        for key, rules in parsed.items():
            stylesheet._parse_cache[key] = rules

    def keep(self, stylesheet: Stylesheet) -> None:
        """Keep what the stylesheet has parsed, unless the file has it. Where it can't be written, nothing changes."""
        parsed = {key: stylesheet._parse_cache[key] for key in [*stylesheet._parse_cache.keys()]}
        if parsed.keys() <= self._known or sys.dont_write_bytecode:
            return
        data = pickle.dumps((_made_of(stylesheet), parsed))
        with suppress(VlmtuiError), new_file(self._file.parent, self._file.name) as new:
            new.file.write(data)
            new.replace(self._file)


def _made_of(stylesheet: Stylesheet) -> tuple[object, ...]:
    """Return what parsed styles depend on, but for their text: the variables, and the code that parses."""
    sources = sorted(file for name in [*sys.modules] if name.startswith(_PARSERS) and (file := _source(name)))
    facts = [(file, (found := Path(file).stat()).st_mtime_ns, found.st_size) for file in sources]
    return sys.version, stylesheet._variables, facts


def _source(module: str) -> str:
    return str(getattr(sys.modules[module], "__file__", None) or "")
