"""Shows which processes have the database open. Each locks its own file, and the kernel releases the lock when the
process dies. Unlike process ids, this works across containers that share the folder."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import private_dir


class ProcessLock:
    """A lock that a store holds while its process lives. `id` identifies it in the database."""

    def __init__(self, folder: Path) -> None:
        self._folder = private_dir(folder)
        self.id = ""
        self._descriptor = -1
        while not self.id:
            self._start()

    def is_alive(self, session: str) -> bool:
        """Whether the process of another session still runs. Removes the file of a dead one."""
        if session == self.id:
            return True
        path = self._folder / f"{session}.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def forget_dead(self) -> None:
        """Remove the files of dead processes."""
        for path in self._folder.glob("*.lock"):
            self.is_alive(path.stem)

    def close(self) -> None:
        if self._descriptor >= 0:
            with suppress(OSError):
                (self._folder / f"{self.id}.lock").unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def _start(self) -> None:
        name = secrets.token_hex(8)
        path = self._folder / f"{name}.lock"
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        # Before it is locked, another process could consider the new file a dead one's; this lock prevents that.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():
            self.id, self._descriptor = name, descriptor
        else:
            os.close(descriptor)


@contextmanager
def alone(path: Path, timeout_s: float) -> Iterator[None]:
    """Run the body in one process at a time. Raises VlmtuiError if another process takes too long."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise VlmtuiError(
                        ErrorKind.INTERNAL,
                        "Another vlmtui is still opening the conversations.",
                        detail=f"waited {timeout_s:g} s for {path}",
                        hint="Wait for it, or end it.",
                    ) from error
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
