"""How long each model's last load took, which tells how long the next one may take."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from vlmtui.domain.engine import LoadSpec, LoadStage
from vlmtui.errors import VlmtuiError
from vlmtui.files import write_private
from vlmtui.reading import read_object

_log = logging.getLogger(__name__)
_MODELS_MAX = 100
_BYTES_MAX = 1_000_000


class LoadTimes(msgspec.Struct, frozen=True):
    """When a load had which progress, in seconds since its start."""

    began: dict[str, float]
    """The start of each stage."""
    took: float

    def left_s(self, began: Mapping[LoadStage, float], elapsed_s: float) -> float:
        """Return the seconds that another load of the model may still take. `began`, `elapsed_s`: its progress."""
        stage = [LoadStage.ENVIRONMENT, *began][-1]
        until_stage = self.began.get(stage, began.get(stage, 0.0))
        return max(0.0, self.took - until_stage - (elapsed_s - began.get(stage, 0.0)))


def last_load(file: Path, spec: LoadSpec) -> LoadTimes | None:
    """Return how long the last load of a model took; None if that is unknown. Blocking."""
    try:
        return msgspec.convert(read_object(file, bytes_max=_BYTES_MAX).get(_key(spec)), LoadTimes)
    except msgspec.ValidationError:
        return None


def note_load(file: Path, spec: LoadSpec, times: LoadTimes) -> None:
    """Store how long a load took. Blocking."""
    known = read_object(file, bytes_max=_BYTES_MAX)
    known.pop(_key(spec), None)
    kept = dict([*known.items(), (_key(spec), msgspec.to_builtins(times))][-_MODELS_MAX:])
    try:
        write_private(file, msgspec.json.encode(kept))
    except (OSError, VlmtuiError) as error:
        _log.warning("can't store how long a load took: %s", error)


def _key(spec: LoadSpec) -> str:
    return f"{spec.model} {spec.backend}"
