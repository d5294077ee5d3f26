"""The spool: answers that a worker writes to disk while no client takes them, one file of JSON lines a request."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui.domain.generation import Cancelled, EngineEvent, Failed, Finished
from vlmtui.errors import VlmtuiError
from vlmtui.files import write_private
from vlmtui.paths import is_private_dir
from vlmtui.reading import read_whole

FILES_MAX = 256
"""Files beyond that number are deleted, the oldest first."""
STAYS_S = 30 * 24 * 3600.0
"""Files older than that are deleted: whoever wanted them has not come."""

_FOLDER = "kept"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BYTES_MAX = 200_000_000
_encoder = msgspec.json.Encoder()


@functools.cache
def _decoder() -> msgspec.json.Decoder[EngineEvent]:
    """Made when it is needed: that takes longer than all else here, and the app's start needs none."""
    return msgspec.json.Decoder(EngineEvent)


def spool_path(runtime: Path, request_id: str) -> Path:
    """Where a request's events stand, below the runtime folder. No id leads elsewhere."""
    plain = _PLAIN.fullmatch(request_id)
    import hashlib  # loads OpenSSL, for which no first paint needs to wait

    name = request_id if plain else hashlib.sha256(request_id.encode(errors="surrogatepass")).hexdigest()
    return runtime / _FOLDER / f"{name}.jsonl"


def write_spooled(runtime: Path, events: Sequence[EngineEvent]) -> None:
    """Write a request's events (at least one), mode 0600, in one step. Raises VlmtuiError."""
    data = b"".join(_encoder.encode(event) + b"\n" for event in events)
    write_private(spool_path(runtime, events[0].request_id), data)


def read_spooled(runtime: Path, request_id: str) -> list[EngineEvent] | None:
    """A request's events; None where there is no file, or none that can be read. Raises VlmtuiError where the folder is
    another user's."""
    path = spool_path(runtime, request_id)
    if not (is_private_dir(runtime) and is_private_dir(path.parent)):
        return None
    try:
        lines = read_whole(path, bytes_max=_BYTES_MAX).splitlines()
        events = [_decoder().decode(line) for line in lines if line]
    except (VlmtuiError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return events if events and all(event.request_id == request_id for event in events) else None


def spooled_requests(runtime: Path) -> list[str]:
    """The ids of the requests that have a file. Raises VlmtuiError where the folder is another user's."""
    folder = runtime / _FOLDER
    if not (is_private_dir(runtime) and is_private_dir(folder)):
        return []
    return [path.stem for path in folder.glob("*.jsonl") if _PLAIN.fullmatch(path.stem)]


def is_complete(events: Sequence[EngineEvent]) -> bool:
    """Whether the last event is a terminal one."""
    return bool(events) and isinstance(events[-1], Finished | Failed | Cancelled)


def remove_spooled(runtime: Path, request_id: str) -> None:
    """Delete a request's file. Harmless when there is none."""
    with suppress(OSError):
        spool_path(runtime, request_id).unlink(missing_ok=True)


def prune_spool(runtime: Path) -> None:
    """Delete files that nobody has come for."""
    with suppress(OSError):
        files = sorted((runtime / _FOLDER).glob("*.jsonl"), key=lambda file: file.stat().st_mtime, reverse=True)
        for number, file in enumerate(files):
            if number >= FILES_MAX or time.time() - file.stat().st_mtime > STAYS_S:
                file.unlink(missing_ok=True)
