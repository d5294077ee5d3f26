"""The files of a worker (socket, record, log, lock), the machine that it runs on, and checks of the user at the other
end of a socket."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import pwd
import re
import shutil
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui import __version__
from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import write_private
from vlmtui.paths import APP, Paths, is_network, is_private_dir, private_dir
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


SOCKET_FOLDER_MAX = 60
"""The most bytes of the path of a folder with sockets: `sun_path` has 108 on Linux and 104 on macOS."""
MARKER = "VLMTUI_WORKER"
"""The environment variable with the path of the worker's record. It identifies the worker's processes, which inherit
it."""
END_MARK = "(vlmtui guardian) The worker "
"""Begins the line of a worker's log that says how its server ended."""
HOME_SUFFIX = ".d"
RECORD_SUFFIX = ".json"
_RECORD_BYTES_MAX = 10_000_000
_SLUG_MAX = 24
_DIGEST_LENGTH = 8


class Machine(msgspec.Struct, frozen=True):
    """The machine, or the container, that a worker runs on. Several can share a home folder."""

    name: str
    id: str
    """systemd's machine id; empty if there is none."""
    boot: str
    """The kernel's id of this boot; empty if it has none."""
    processes: str
    """The namespace of process ids: the others' processes can't be seen."""

    @property
    def digest(self) -> str:
        """A short name, the same after a reboot."""
        import hashlib  # loads OpenSSL, which would delay the app's start

        return hashlib.sha256(f"{self.name} {self.id}".encode(errors="surrogatepass")).hexdigest()[:_DIGEST_LENGTH]

    def is_earlier(self, other: Machine) -> bool:
        """Return whether this is `other` before its last boot, so that none of its processes is left."""
        return (self.name, self.id) == (other.name, other.id) and self.boot != other.boot


@functools.cache
def this_machine() -> Machine:
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - it names no file
    boot = _line_of("/proc/sys/kernel/random/boot_id")
    return Machine(os.uname().nodename, _line_of("/etc/machine-id"), boot, namespace)


def _line_of(file: str) -> str:
    try:
        return Path(file).read_text(errors="replace").strip()
    except OSError:
        return ""


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a worker's record file. It lets a client end a worker that does not answer."""

    spec: LoadSpec
    pid: int
    """The pid of the guardian (`vlmtui.worker.guardian`), which leads the worker's session."""
    started_at: float
    """Seconds since the epoch."""
    log: str
    version: str = __version__
    """The version of vlmtui that started the worker."""
    machine: Machine = msgspec.field(default_factory=this_machine)


def socket_folder(runtime: Path) -> Path:
    """Return the folder of the workers' sockets and homes: `runtime`, or this user's folder that its link leads to."""
    with suppress(OSError):
        linked = Path(os.readlink(_link(runtime)))  # noqa: PTH115 - not below `runtime`
        found = linked.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            return linked
    return runtime.resolve()  # as a process names its working directory


def make_socket_folder(runtime: Path) -> Path:
    """Create and return the folder of the workers' sockets and homes. It is `runtime`, or a new folder in /tmp, to
    which a link in `runtime` leads: if the path of `runtime` is too long, or if its file system holds no sockets or is
    on the network. Raises VlmtuiError."""
    import tempfile  # not needed for the first paint

    private_dir(runtime)
    folder = socket_folder(runtime)
    if folder != runtime.resolve() or _holds_sockets(folder):
        return folder
    try:
        made = Path(tempfile.mkdtemp(prefix=f"{APP}-", dir="/tmp" if os.access("/tmp", os.W_OK) else None))
        while True:
            try:
                _link(runtime).symlink_to(made)
            except FileExistsError:
                if (folder := socket_folder(runtime)) != runtime.resolve():  # another process was faster
                    made.rmdir()
                    return folder
                _link(runtime).unlink(missing_ok=True)  # it leads nowhere
            else:
                return made
    except OSError as error:
        message = "Can't create a folder for the engine's sockets."
        hint = "Check that /tmp is writable."
        raise VlmtuiError(ErrorKind.BAD_INPUT, message, detail=str(error), hint=hint) from error


def _link(runtime: Path) -> Path:
    return runtime / f"sockets-{this_machine().digest}"


def _holds_sockets(folder: Path) -> bool:
    if len(os.fsencode(folder)) > SOCKET_FOLDER_MAX or is_network(folder):
        return False
    place = folder / f"try-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX) as trial:
        try:
            trial.bind(str(place))
            place.unlink()
        except OSError as error:
            return error.errno in _PASSING
    return True


_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
"""Errors that say nothing about a file system."""


class Endpoint(msgspec.Struct, frozen=True):
    """The files of a worker. Equal LoadSpecs have equal endpoints on a machine, so that their clients share a
    worker."""

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
        """Return the endpoint of a LoadSpec on this machine."""
        import hashlib  # loads OpenSSL, which would delay the app's start

        encoded = msgspec.json.encode(spec, order="deterministic") + this_machine().digest.encode()
        digest = hashlib.sha256(encoded).hexdigest()[:_DIGEST_LENGTH]
        slug = re.sub(r"[^a-z0-9]+", "-", spec.name.lower())[:_SLUG_MAX].strip("-")
        return cls.named(paths, f"{slug}-{digest}" if slug else digest)

    @classmethod
    def named(cls, paths: Paths, worker_id: str) -> Endpoint:
        """Return the endpoint of a worker by its id, the stem of its file names."""
        runtime, sockets = paths.runtime, socket_folder(paths.runtime)
        return cls(
            worker_id=worker_id,
            socket=sockets / f"{worker_id}.sock",
            record=runtime / f"{worker_id}{RECORD_SUFFIX}",
            spec_file=runtime / f"{worker_id}.spec",
            home=sockets / f"{worker_id}{HOME_SUFFIX}",
            lock=runtime / f"{worker_id}.lock",
            log=paths.logs / f"{worker_id}.log",
        )

    @classmethod
    def all(cls, paths: Paths) -> list[Endpoint]:
        """Return all endpoints with a file besides lock and log, sorted by id, including those of workers that have
        ended and of other machines.

        Raises VlmtuiError if the runtime folder belongs to another user.
        """
        if not is_private_dir(paths.runtime):
            return []
        files = [file for folder in {paths.runtime, socket_folder(paths.runtime)} for file in folder.iterdir()]
        found = {file.stem for file in files if file.suffix in (RECORD_SUFFIX, ".sock", ".spec", HOME_SUFFIX)}
        return [cls.named(paths, worker_id) for worker_id in sorted(found)]

    @property
    def runtime(self) -> Path:
        """The folder of all records and of the spool (`vlmtui.protocol.spool`)."""
        return self.record.parent

    def read_record(self) -> WorkerRecord | None:
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
