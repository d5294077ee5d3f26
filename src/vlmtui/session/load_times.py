"""How long each model's last load took, which tells how long the next one may take."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import VlmtuiError
from vlmtui.files import write_private
from vlmtui.reading import read_object

_log = logging.getLogger(__name__)
_MODELS_MAX = 100
_BYTES_MAX = 1_000_000


def last_load_s(file: Path, spec: LoadSpec) -> float | None:
    """Return how many seconds the last load of a model took; None if that is unknown. Blocking."""
    found = read_object(file, bytes_max=_BYTES_MAX).get(_key(spec))
    return float(found) if isinstance(found, int | float) else None


def note_load(file: Path, spec: LoadSpec, took_s: float) -> None:
    """Store how long a load took. Blocking."""
    known = read_object(file, bytes_max=_BYTES_MAX)
    known.pop(_key(spec), None)
    kept = dict([*known.items(), (_key(spec), took_s)][-_MODELS_MAX:])
    try:
        write_private(file, msgspec.json.encode(kept))
    except (OSError, VlmtuiError) as error:
        _log.warning("can't store how long a load took: %s", error)


def _key(spec: LoadSpec) -> str:
    return f"{spec.model} {spec.backend}"
