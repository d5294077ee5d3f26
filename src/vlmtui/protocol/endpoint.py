"""The files of a worker (socket, record, log, lock), and checks of the user at the other end of a socket."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shutil
import socket
import struct
from pathlib import Path

import msgspec

from vlmtui import __version__
from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import write_private
from vlmtui.paths import Paths, is_private_dir
from vlmtui.reading import read_struct

_CREDENTIALS = "3i"
"""The kernel's `struct ucred`: pid, uid, gid."""


def require_own_peer(
    end: asyncio.StreamWriter | asyncio.BaseTransport, *, place: str = "this socket", hint: str = ""
) -> None:
    """Raise VlmtuiError(FOREIGN_PEER) unless the process at the other end belongs to this user or root.

    Checks nothing on other systems than Linux, which rely on the permissions of the socket and its folder.
    """
    uid = peer_uid(end.get_extra_info("socket"))
    if uid is not None and uid not in (os.getuid(), 0):
        message = f"Another user of this machine (uid {uid}) owns the other end of {place}."
        raise VlmtuiError(ErrorKind.FOREIGN_PEER, message, hint=hint)


def peer_uid(peer: socket.socket) -> int | None:
    """Return the uid of the process at the other end of a Unix socket, or None if the system does not report it."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_CREDENTIALS))
    _, uid, _ = struct.unpack(_CREDENTIALS, found)
    return int(uid)


class ForeignSocket(VlmtuiError):
    """A server's Unix socket belongs to another user, and the settings do not allow that user."""

    def __init__(self, shown: str, owner: str) -> None:
        message = f"{shown} belongs to another user of this machine: {owner}. Nothing was sent."
        hint = f'If you trust this user, name the engine in config.toml, with allow_owner = "{owner}".'
        super().__init__(ErrorKind.FOREIGN_PEER, message, hint=hint)
        self.owner = owner


def require_owner(uid: int, shown: str, *, allowed: str | None) -> None:
    """Raise ForeignSocket unless a socket's owner `uid` is this user, root, or `allowed` (a name or a number).

    `shown`: the socket's address for the error."""
    owner = _user_name(uid)
    if uid not in (os.getuid(), 0) and allowed not in (owner, str(uid)):
        raise ForeignSocket(shown, owner)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


SOCKET_PATH_MAX = 100
"""The most bytes of a socket's path. `sun_path` has 108 on Linux and 104 on macOS, with the final NUL."""
MARKER = "VLMTUI_WORKER_SOCKET"
"""The environment variable with the worker's socket path. It identifies the worker's processes, which inherit it."""
HOME_SUFFIX = ".d"
_RECORD_BYTES_MAX = 10_000_000
_SLUG_MAX = 24
_DIGEST_LENGTH = 8


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file beside a worker's socket. It lets a client end a worker that does not answer."""

    spec: LoadSpec
    pid: int
    """The pid of the guardian (`vlmtui.worker.guardian`), which leads the worker's session."""
    started_at: float
    """Seconds since the epoch."""
    log: str
    version: str = __version__
    """The version of vlmtui that started the worker."""


class Endpoint(msgspec.Struct, frozen=True):
    """The files of a worker. Equal LoadSpecs have equal endpoints, so that their clients share a worker."""

    worker_id: str
    socket: Path
    record: Path
    spec_file: Path
    """The LoadSpec as JSON, for the worker's option `--spec`."""
    home: Path
    """The private working directory of the worker's processes, with their temporary files and sockets. Processes are
    also found by it, because vLLM's children overwrite their visible environment when they set their title."""
    lock: Path
    """Locked (flock) by the client that starts or ends the worker."""
    log: Path

    @classmethod
    def of(cls, paths: Paths, spec: LoadSpec) -> Endpoint:
        """Return the endpoint of a LoadSpec. Raises VlmtuiError if the folder's path is too long for a socket."""
        room = SOCKET_PATH_MAX - len(os.fsencode(paths.runtime)) - len("/.sock") - _DIGEST_LENGTH - 1
        if room < 0:
            raise VlmtuiError(
                ErrorKind.BAD_INPUT,
                f"The path {paths.runtime} is too long for a socket.",
                hint="Set VLMTUI_DATA_DIR to a shorter path.",
            )
        import hashlib  # loads OpenSSL, which would delay the app's start

        digest = hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).hexdigest()[:_DIGEST_LENGTH]
        slug = re.sub(r"[^a-z0-9]+", "-", spec.name.lower())[: min(_SLUG_MAX, room)].strip("-")
        return cls.named(paths, f"{slug}-{digest}" if slug else digest)

    @classmethod
    def named(cls, paths: Paths, worker_id: str) -> Endpoint:
        """Return the endpoint of a worker by its id, the stem of its file names."""
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
        """Return all endpoints with a record or socket, sorted by id, including those of workers that have ended.

        Raises VlmtuiError if the runtime folder belongs to another user.
        """
        if not is_private_dir(paths.runtime):
            return []
        found = {file.stem for file in paths.runtime.iterdir() if file.suffix in (".json", ".sock")}
        return [cls.named(paths, worker_id) for worker_id in sorted(found)]

    @property
    def runtime(self) -> Path:
        """The folder of all endpoints and of the spool (`vlmtui.protocol.spool`)."""
        return self.socket.parent

    def read_record(self) -> WorkerRecord | None:
        """Return the record, or None if it is missing or unreadable."""
        try:
            return read_struct(self.record, WorkerRecord, bytes_max=_RECORD_BYTES_MAX)
        except VlmtuiError:
            return None

    def write_record(self, record: WorkerRecord) -> None:
        write_private(self.record, msgspec.json.encode(record))

    def write_spec(self, spec: LoadSpec) -> None:
        write_private(self.spec_file, msgspec.json.encode(spec))

    def remove(self) -> None:
        """Remove a dead worker's files. The log stays, and so does the lock, which another process may hold."""
        for file in (self.socket, self.record, self.spec_file):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.home, ignore_errors=True)
