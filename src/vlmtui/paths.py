"""The application's folders. They are created on first use, readable by their owner only."""

from __future__ import annotations

import functools
import os
import stat
from contextlib import suppress
from pathlib import Path

import msgspec
import platformdirs

from vlmtui.errors import ErrorKind, VlmtuiError, require_text
from vlmtui.text import one_line

APP = "vlmtui"
DATA_DIR_VARIABLE = "VLMTUI_DATA_DIR"
"""Environment variable with the folder to keep everything in."""

_NETWORK = frozenset({
    "9p", "acfs", "afs", "auristorfs", "beegfs", "ceph", "cifs", "coda", "fuse", "gfs", "gfs2", "gpfs", "lustre",
    "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs",
})  # fmt: skip
"""Types of file systems that other machines write, as `/proc/self/mountinfo` names them. Those of FUSE (sshfs,
GlusterFS, …) count too."""
_MOUNTS = Path("/proc/self/mountinfo")


class Paths(msgspec.Struct, frozen=True):
    """The application's folders.

    `config`: settings and the user's own families. `data`: conversations and stored media. `state`: logs and prompt
    history. `cache`: thumbnails; may be deleted at any time. `runtime`: records and sockets of running workers, and
    answers that no client has fetched; not in `$XDG_RUNTIME_DIR`, which is emptied at logout.
    """

    config: Path
    data: Path
    state: Path
    cache: Path
    runtime: Path

    @classmethod
    def default(cls) -> Paths:
        """Return the platform's standard folders, or those below `$VLMTUI_DATA_DIR` if set. Raises VlmtuiError if a
        folder belongs to another user (vlmtui would trust the files in it), or if its path is not UTF-8 (it could not
        be sent to a worker)."""
        root = os.environ.get(DATA_DIR_VARIABLE)
        if root:
            paths = cls.below(Path(root))
            _require_own(paths.config.parent)
        else:
            paths = cls._of_platform()
        for path in (paths.config, paths.data, paths.state, paths.cache, paths.runtime):
            message = f"vlmtui can't use the folder {one_line(str(path))}: its path is not UTF-8."
            require_text(str(path), message, hint="Rename it, or set VLMTUI_DATA_DIR to another folder.")
        for path in (paths.config, paths.families, paths.data, paths.state):
            _require_own(path)
        return paths

    @classmethod
    def _of_platform(cls) -> Paths:
        dirs = platformdirs.PlatformDirs(APP, appauthor=False)
        state = dirs.user_state_path
        return cls(
            config=dirs.user_config_path,
            data=dirs.user_data_path,
            state=state,
            cache=dirs.user_cache_path,
            runtime=state / "run",
        )

    @classmethod
    def below(cls, root: Path) -> Paths:
        root = root.expanduser().absolute()
        return cls(root / "config", root / "data", root / "state", root / "cache", root / "run")

    @property
    def media(self) -> Path:
        """Stored images and videos, named by content hash."""
        return self.data / "media"

    @property
    def inbox(self) -> Path:
        """A folder the user copies files into; new ones are offered as attachments."""
        return self.data / "inbox"

    @property
    def seen(self) -> Path:
        """Cached images that show what a model receives after preprocessing."""
        return self.cache / "seen"

    @property
    def thumbnails(self) -> Path:
        """Cached thumbnails, created when they are shown."""
        return self.cache / "thumbnails"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def families(self) -> Path:
        """The user's own family records."""
        return self.config / "families"


def use_data_dir(folder: str) -> None:
    """Store everything below this folder, in this process and the processes that it starts."""
    os.environ[DATA_DIR_VARIABLE] = str(Path(os.path.expanduser(folder)).absolute())  # noqa: PTH111  (Path's fails on ~nobody)


def private_dir(path: Path) -> Path:
    """Make sure that `path` is this user's folder with mode 0700, and return it. Missing parents are created too.

    Raises VlmtuiError if it is a file, a symbolic link or another user's folder. In a world-writable folder such as
    /tmp, another user could otherwise receive this user's sockets.
    """
    try:
        _make_with_parents(path)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise _not_yours(path)
        if found.st_mode & 0o077:
            path.chmod(0o700)
    except OSError as error:
        raise VlmtuiError(
            ErrorKind.BAD_INPUT,
            f"Can't create or use the folder {path}.",
            detail=str(error),
            hint="Check its permissions, or set VLMTUI_DATA_DIR to another folder.",
        ) from error
    return path


def is_private_dir(path: Path) -> bool:
    """Return whether `path` exists; if so, make it private. Raises VlmtuiError as `private_dir` does."""
    return os.path.lexists(path) and bool(private_dir(path))


def close_to_others(path: Path) -> None:
    """Remove other users' access to a folder of this user, if it exists."""
    with suppress(OSError):
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and found.st_mode & 0o077:
            path.chmod(0o700)


def _make_with_parents(path: Path) -> None:
    """Create a folder and its parents with mode 0700. `Path.mkdir` would create the parents with the umask's mode."""
    if not path.is_dir() and not os.path.lexists(path):
        _make_with_parents(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise


def _require_own(path: Path) -> None:
    try:
        found = path.stat()
    except OSError:
        return
    if found.st_uid != os.getuid():
        raise _not_yours(path)


def _not_yours(path: Path) -> VlmtuiError:
    return VlmtuiError(
        ErrorKind.BAD_INPUT,
        f"vlmtui won't use {path}: it is not your own folder.",
        hint="Remove it, or set VLMTUI_DATA_DIR to another folder.",
    )


def file_system_of(folder: Path) -> str:
    """Return the type of a folder's file system, as `nfs4`; empty if it is unknown or the folder is missing."""
    try:
        device = folder.stat().st_dev
    except OSError:
        return ""
    return _type_of(device)


def is_network(folder: Path) -> bool:
    """Return whether other machines may write the folder's file system."""
    return (found := file_system_of(folder)) in _NETWORK or found.startswith("fuse.")


@functools.lru_cache(maxsize=64)
def _type_of(device: int) -> str:
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        mount, _, source = line.partition(" - ")
        if mount.split()[2:3] == [wanted] and source:
            return source.split()[0]
    return ""


def bundled(name: str = "") -> Path:
    """Return the path of a file or folder that ships with the package."""
    return Path(__file__).with_name("bundled") / name


def bundled_model() -> Path:
    """Return the folder of `shapes`, the small model that ships with vlmtui."""
    return bundled("shapes")


def sample_image() -> Path:
    """Return the path of a sample image: a red circle."""
    return bundled("samples") / "circle.png"
