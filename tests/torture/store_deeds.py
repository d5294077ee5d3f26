"""The commands of `vlmtui store`, each killed in the middle: backup and restore."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.torture.deeds import PICTURES, TURNS, Deed, fill
from tests.unit.store.made import exchange, opened
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths
from vlmtui.store.backup import restore_archive
from vlmtui.store.opening import FILE
from vlmtui.store.store import Store

_IN_LOG = 6
"""Turns that only the log has, as after a kill."""


class Backup(Deed):
    """No archive under its name that is not whole."""

    def prepare(self, folder: Path) -> None:
        fill(Paths.below(folder / "data"), "kept")
        leave_in_log(folder / "data")

    def again(self) -> None:
        self._archive.unlink(missing_ok=True)

    def command(self) -> list[str]:
        return ["vlmtui", "store", "backup", str(self._archive)]

    def wrong(self, *, done: bool) -> Iterator[str]:
        yield from self.media_wrong()
        if not self._archive.exists():
            if done:
                yield "there is no archive"
            return
        yield from archive_wrong(self._archive)

    @property
    def _archive(self) -> Path:
        return self.folder / "out.tar"


class Restore(Deed):
    """The old state or the restored state is there, nothing in between."""

    sets_aside = True

    def prepare(self, folder: Path) -> None:
        fill(Paths.below(folder / "source"), "kept")
        leave_in_log(folder / "source")
        run_store(folder / "source", "backup", str(folder / "in.tar"))
        fill(Paths.below(folder / "data"), "other")
        leave_in_log(folder / "data")
        shutil.copytree(folder / "data", folder / "as-it-was")

    def again(self) -> None:
        put_back(self.folder)

    def command(self) -> list[str]:
        return ["vlmtui", "store", "restore", str(self.folder / "in.tar")]

    def wrong(self, *, done: bool) -> Iterator[str]:
        yield from self.media_wrong()
        yield from archive_wrong(self.folder / "in.tar")
        found = stored_turns(self.paths)
        whole = {"kept": TURNS, "in the log": _IN_LOG}
        before = {"other": TURNS, "in the log": _IN_LOG}
        if found != whole and (done or found != before):
            yield f"there is {found}"


STORE_DEEDS: dict[str, type[Deed]] = {
    "store backup": Backup,
    "store restore": Restore,
}


def leave_in_log(root: Path) -> None:
    """Add a conversation that only the log has, as an app that is killed leaves it."""
    data = Paths.below(root).data
    store = opened(data)
    store.database.connection.execute("PRAGMA wal_autocheckpoint = 0")
    conversation = store.new_conversation(title="in the log")
    for number in range(_IN_LOG // 2):
        exchange(store, conversation, number)
    with tempfile.TemporaryDirectory() as kept:
        for file in data.glob(f"{FILE}*"):
            if not file.name.endswith("-shm"):
                shutil.copyfile(file, Path(kept) / file.name)
        store.close()
        for file in Path(kept).iterdir():
            shutil.copyfile(file, data / file.name)
    assert (data / f"{FILE}-wal").stat().st_size > 0


def put_back(folder: Path) -> None:
    """Let the data be as they were before the command."""
    shutil.rmtree(folder / "data")
    shutil.copytree(folder / "as-it-was", folder / "data")


def run_store(root: Path, *words: str) -> None:
    environment = {"HOME": str(root), "PATH": "/usr/bin:/bin", "VLMTUI_DATA_DIR": str(root)}
    command = [sys.executable, "-m", "vlmtui", "store", *words]
    source = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    subprocess.run(command, env={**environment, **source}, check=True, capture_output=True)


def stored_turns(paths: Paths) -> dict[str, int]:
    """Return how many turns each conversation has, by its title, as the next start finds them."""
    store = Store.open(paths.data, paths.media)
    try:
        return {
            one.conversation.title: len(store.tree(one.conversation.id)) for one in store.conversations(limit=1_000)
        }
    finally:
        store.close()


def archive_wrong(archive: Path) -> Iterator[str]:
    """Return the faults of an archive of the conversation `kept`."""
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths.below(Path(folder))
        try:
            restore_archive(archive, paths.data, paths.media)
        except (VlmtuiError, OSError, tarfile.TarError) as error:
            yield f"{archive.name}: {error}"
            return
        if (found := stored_turns(paths)) != {"kept": TURNS, "in the log": _IN_LOG}:
            yield f"{archive.name} has {found}"
        media = [path for path in paths.media.glob("??/*") if not path.name.startswith(".")]
        if len(media) != PICTURES:
            yield f"{archive.name} has {len(media)} stored files"
