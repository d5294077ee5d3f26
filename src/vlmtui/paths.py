"""Where files live. Folders are made on first use, readable by their owner only."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import msgspec
import platformdirs

from vlmtui.errors import ErrorKind, VlmtuiError

APP = "vlmtui"
DATA_DIR_VARIABLE = "VLMTUI_DATA_DIR"
"""Set, it names the folder that everything lies below."""
_SOCKET_PATH_MAX = 100
"""`sun_path` holds 108 bytes on Linux and 104 on macOS."""


class Paths(msgspec.Struct, frozen=True):
    """The application's folders.

    `config`: settings and the user's own families. `data`: conversations and stored media. `state`: logs and prompt
    history. `cache`: thumbnails; may be deleted at any time. `runtime`: sockets of running workers.
    """

    config: Path
    data: Path
    state: Path
    cache: Path
    runtime: Path

    @classmethod
    def default(cls) -> Paths:
        """The platform's own places, or all below `$VLMTUI_DATA_DIR` when that is set. Raises VlmtuiError where one of
        them is another user's: what he has put there would be believed."""
        root = os.environ.get(DATA_DIR_VARIABLE)
        if root:
            paths = cls.below(Path(root))
            _require_own(paths.config.parent)
        else:
            paths = cls._of_platform()
        for path in (paths.config, paths.families, paths.data, paths.state):
            _require_own(path)
        return paths

    @classmethod
    def _of_platform(cls) -> Paths:
        dirs = platformdirs.PlatformDirs(APP, appauthor=False)
        return cls(
            config=dirs.user_config_path,
            data=dirs.user_data_path,
            state=dirs.user_state_path,
            cache=dirs.user_cache_path,
            runtime=_default_runtime(),
        )

    @classmethod
    def below(cls, root: Path) -> Paths:
        """Everything below one folder; the sockets too, unless its name is too long for a socket path."""
        root = root.expanduser().absolute()
        runtime = root / "run"
        if len(os.fsencode(runtime)) > _SOCKET_PATH_MAX - 40:
            import hashlib  # loads OpenSSL, for which no first paint needs to wait

            digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
            runtime = _temporary() / f"{APP}-{os.getuid()}-{digest}"
        return cls(root / "config", root / "data", root / "state", root / "cache", runtime)

    @property
    def media(self) -> Path:
        """Stored images and videos, named by content hash."""
        return self.data / "media"

    @property
    def inbox(self) -> Path:
        """Where the user copies files to from elsewhere; new ones are offered for attaching."""
        return self.data / "inbox"

    @property
    def thumbnails(self) -> Path:
        """Small pictures of media, made when they are shown."""
        return self.cache / "thumbnails"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def families(self) -> Path:
        """The user's own family records."""
        return self.config / "families"


def _default_runtime() -> Path:
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_dir() and len(given) < _SOCKET_PATH_MAX - 50:
        return Path(given) / APP
    return _temporary() / f"{APP}-{os.getuid()}"


def _temporary() -> Path:
    """The folder for temporary files. Not `tempfile.gettempdir`, which raises where that folder is full."""
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return Path(next((name for name in named if name and Path(name).is_dir()), "/tmp")).absolute()


def use_data_dir(folder: str) -> None:
    """Keep everything below this folder, here and in every process that is started from now on."""
    os.environ[DATA_DIR_VARIABLE] = str(Path(os.path.expanduser(folder)).absolute())  # noqa: PTH111  (Path's fails on ~nobody)


def private_dir(path: Path) -> Path:
    """`path` as a folder of mode 0700 that belongs to this user; made when missing, with its parents, all of that mode.

    Raises VlmtuiError when something else stands there: a file, a symbolic link, another user's folder. In a
    world-writable place such as /tmp that is how one user would lure another's sockets to himself.
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
            f"The folder {path} cannot be made or used.",
            detail=str(error),
            hint="Check its permissions, or name another place with VLMTUI_DATA_DIR.",
        ) from error
    return path


def is_private_dir(path: Path) -> bool:
    """Whether there is a folder at `path`; it is this user's own then, and closed to others. To be asked before
    anything in it is believed. Raises VlmtuiError as `private_dir` does."""
    return os.path.lexists(path) and bool(private_dir(path))


def close_to_others(path: Path) -> None:
    """Take from other users what they may do with a folder of this user, where there is one."""
    with suppress(OSError):
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and found.st_mode & 0o077:
            path.chmod(0o700)


def _make_with_parents(path: Path) -> None:
    """`Path.mkdir` would make the parents with the mode of the umask."""
    if not path.is_dir() and not os.path.lexists(path):
        _make_with_parents(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise


def _require_own(path: Path) -> None:
    """Raise VlmtuiError where something stands at `path` that belongs to another user."""
    try:
        found = path.stat()
    except OSError:
        return
    if found.st_uid != os.getuid():
        raise _not_yours(path)


def _not_yours(path: Path) -> VlmtuiError:
    return VlmtuiError(
        ErrorKind.BAD_INPUT,
        f"{path} is not a folder of yours, so vlmtui will not use it.",
        hint="Remove it, or name another place with VLMTUI_DATA_DIR.",
    )


def bundled(name: str = "") -> Path:
    """A file or folder that ships inside the package."""
    return Path(__file__).with_name("bundled") / name


def bundled_model() -> Path:
    """The folder of the `shapes` model."""
    return bundled("shapes")


def sample_image() -> Path:
    """A picture to try things on: a red circle."""
    return bundled("samples") / "circle.png"
