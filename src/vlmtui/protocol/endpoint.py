"""Where the worker of a spec is found: its socket, its record, its log."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import msgspec

from vlmtui import __version__
from vlmtui.domain.engine import DEFAULT_BACKEND, LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import write_private
from vlmtui.paths import Paths, is_private_dir
from vlmtui.reading import read_struct

SOCKET_PATH_MAX = 100
"""Bytes; `sun_path` holds 108 on Linux and 104 on macOS, the final NUL included."""
MARKER = "VLMTUI_WORKER_SOCKET"
"""Environment variable that every process of a worker inherits: the path of its socket. Tells ours from others'."""
HOME_SUFFIX = ".d"
_RECORD_BYTES_MAX = 10_000_000
_SLUG_MAX = 24
_DIGEST_LENGTH = 8
_LATER_FIELDS: dict[str, object] = {"backend": DEFAULT_BACKEND, "code_revision": None, "code_sha256": None}
"""Fields that specs of vlmtui 0.1 had not, with what they meant then. They are no part of a name that needs none of
them, so that a worker of that version that still runs is met, and refused for its version."""


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is written beside a worker's socket, so that it can be found and ended when it no longer answers."""

    spec: LoadSpec
    pid: int
    """Of the guardian: the leader of the worker's session."""
    started_at: float
    """Seconds since the epoch."""
    log: str
    version: str = __version__
    """Of the vlmtui that started it."""


class Endpoint(msgspec.Struct, frozen=True):
    """The files of one worker. Two equal specs have the same ones, so that their clients meet."""

    worker_id: str
    socket: Path
    record: Path
    spec_file: Path
    """The spec as JSON, for `--spec` of the worker."""
    home: Path
    """The working directory of all processes of the worker: neutral ground for imports, and a mark of ours that no
    process loses by naming itself anew (vLLM's children do, which wipes their environment as others see it). Their
    temporary files and sockets lie in it, so that they are private and go with it."""
    lock: Path
    """Held (flock) by the client that starts or ends the worker."""
    log: Path

    @classmethod
    def of(cls, paths: Paths, spec: LoadSpec) -> Endpoint:
        """The endpoint of a spec. Raises VlmtuiError when the runtime folder's name is too long for a socket."""
        room = SOCKET_PATH_MAX - len(os.fsencode(paths.runtime)) - len("/.sock") - _DIGEST_LENGTH - 1
        if room < 0:
            raise VlmtuiError(
                ErrorKind.BAD_INPUT,
                f"The name of the folder {paths.runtime} is too long to hold a socket.",
                hint="Name a shorter place with VLMTUI_DATA_DIR.",
            )
        import hashlib  # loads OpenSSL, for which no first paint needs to wait

        named = msgspec.to_builtins(spec, order="deterministic")
        for field, default in _LATER_FIELDS.items():
            if named[field] == default:
                del named[field]
        digest = hashlib.sha256(msgspec.json.encode(named)).hexdigest()[:_DIGEST_LENGTH]
        slug = re.sub(r"[^a-z0-9]+", "-", spec.name.lower())[: min(_SLUG_MAX, room)].strip("-")
        return cls.named(paths, f"{slug}-{digest}" if slug else digest)

    @classmethod
    def named(cls, paths: Paths, worker_id: str) -> Endpoint:
        """The endpoint of a worker whose id is known, from its record's file name."""
        runtime = paths.runtime
        return cls(
            worker_id=worker_id,
            socket=runtime / f"{worker_id}.sock",
            record=runtime / f"{worker_id}.json",
            spec_file=runtime / f"{worker_id}.spec",
            home=runtime / f"{worker_id}{HOME_SUFFIX}",
            lock=runtime / f"{worker_id}.lock",
            log=paths.logs / f"{worker_id}.log",
        )

    @classmethod
    def all(cls, paths: Paths) -> list[Endpoint]:
        """Every endpoint with a record or a socket in the runtime folder, by id; the worker may be long gone.

        Raises VlmtuiError where that folder is another user's: who puts sockets there is not to be spoken to."""
        if not is_private_dir(paths.runtime):
            return []
        found = {file.stem for file in paths.runtime.iterdir() if file.suffix in (".json", ".sock")}
        return [cls.named(paths, worker_id) for worker_id in sorted(found)]

    @property
    def runtime(self) -> Path:
        """The folder that all of them are in, and kept answers (`vlmtui.protocol.spool`)."""
        return self.socket.parent

    def read_record(self) -> WorkerRecord | None:
        """The record, or None where there is none that can be read."""
        try:
            return read_struct(self.record, WorkerRecord, bytes_max=_RECORD_BYTES_MAX)
        except VlmtuiError:
            return None

    def write_record(self, record: WorkerRecord) -> None:
        write_private(self.record, msgspec.json.encode(record))

    def write_spec(self, spec: LoadSpec) -> None:
        write_private(self.spec_file, msgspec.json.encode(spec))

    def remove(self) -> None:
        """Take away what a worker that is gone has left. Its log stays; so does the lock, which others may hold."""
        for file in (self.socket, self.record, self.spec_file):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.home, ignore_errors=True)
