"""The spool: a folder of answers whose client has disconnected. Each file has the events of one request as JSON
Lines."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui.domain.generation import Cancelled, Delta, EngineEvent, Failed, Finished, Vocabulary
from vlmtui.errors import VlmtuiError
from vlmtui.files import write_private
from vlmtui.paths import is_private_dir
from vlmtui.reading import read_whole


def join_deltas(deltas: Sequence[Delta]) -> Delta:
    """Merge deltas (at least one) of one request."""
    if len(deltas) == 1:
        return deltas[0]
    vocabulary: Vocabulary = {}
    for delta in deltas:
        vocabulary.update(delta.vocabulary)
    return Delta(
        request_id=deltas[0].request_id,
        text="".join(delta.text for delta in deltas),
        tokens=sum(delta.tokens for delta in deltas),
        token_ids=tuple(token for delta in deltas for token in delta.token_ids),
        vocabulary=vocabulary,
        logprobs=tuple(entry for delta in deltas for entry in delta.logprobs),
    )


FILES_MAX = 256
MAX_AGE_S = 30 * 24 * 3600.0

_FOLDER = "kept"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BYTES_MAX = 200_000_000
_encoder = msgspec.json.Encoder()


@functools.cache
def _decoder() -> msgspec.json.Decoder[EngineEvent]:
    """Return the decoder of events. It is built on first use, because building it is slow and the app does not need it
    to start."""
    return msgspec.json.Decoder(EngineEvent)


def spool_path(runtime: Path, request_id: str) -> Path:
    """Return the file of a request's events. An id with other characters than letters, digits, `_` and `-` is hashed,
    so that the path stays in the folder."""
    plain = _PLAIN.fullmatch(request_id)
    import hashlib  # loads OpenSSL, which would delay the app's start

    name = request_id if plain else hashlib.sha256(request_id.encode(errors="surrogatepass")).hexdigest()
    return runtime / _FOLDER / f"{name}.jsonl"


def write_spooled(runtime: Path, events: Sequence[EngineEvent]) -> None:
    """Write a request's events (at least one) atomically, mode 0600. Raises VlmtuiError."""
    data = b"".join(_encoder.encode(event) + b"\n" for event in events)
    write_private(spool_path(runtime, events[0].request_id), data)


def read_spooled(runtime: Path, request_id: str) -> list[EngineEvent] | None:
    """Return a request's events; None if there is no file, or an unreadable one. Raises VlmtuiError if the folder
    belongs to another user."""
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
    """Return the ids of the requests in the spool. Raises VlmtuiError if the folder belongs to another user."""
    folder = runtime / _FOLDER
    if not (is_private_dir(runtime) and is_private_dir(folder)):
        return []
    return [path.stem for path in folder.glob("*.jsonl") if _PLAIN.fullmatch(path.stem)]


def is_complete(events: Sequence[EngineEvent]) -> bool:
    return bool(events) and isinstance(events[-1], Finished | Failed | Cancelled)


def remove_spooled(runtime: Path, request_id: str) -> None:
    with suppress(OSError):
        spool_path(runtime, request_id).unlink(missing_ok=True)


def prune_spool(runtime: Path) -> None:
    with suppress(OSError):
        files = sorted((runtime / _FOLDER).glob("*.jsonl"), key=lambda file: file.stat().st_mtime, reverse=True)
        for number, file in enumerate(files):
            if number >= FILES_MAX or time.time() - file.stat().st_mtime > MAX_AGE_S:
                file.unlink(missing_ok=True)
