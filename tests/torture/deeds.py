"""Commands that change the store, each in a process that is killed while it works."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.torture.leftovers import files_left
from tests.torture.nursery import Nursery, Nursling
from tests.unit.store.made import attachment, exchange, opened
from vlmtui.domain.conversation import Media, Text, Turn
from vlmtui.paths import Paths
from vlmtui.store.opening import FILE

TURNS, PICTURES, _PICTURE_BYTES = 200, 6, 500_000
_END_S = 120.0


class Deed:
    """A command in a folder of its own, some times killed and once let through to its end."""

    kills = 6
    sets_aside = False
    """True if it renames the existing database."""
    goes_on = False
    """True if the next process continues the killed one's work, and so has less to do."""

    def __init__(self, folder: Path, random: Random, nursery: Nursery, before: Path) -> None:
        """`before`: the folder with the state before a command; the first command makes it, the others copy it."""
        self.folder = folder
        self.random = random
        self.paths = Paths.below(folder / "data")
        self.killed = 0
        """The number of kills that met a living process."""
        self._nursery = nursery
        if not before.exists():
            self.prepare(before)
        shutil.copytree(before, folder)
        (folder / "tmp").mkdir()
        (folder / "data").mkdir(exist_ok=True)

    def prepare(self, folder: Path) -> None:
        """Make what there is before, in `folder`, its data in `folder / "data"`."""
        raise NotImplementedError

    def again(self) -> None:
        """Make it as it was, where a deed that was done leaves nothing to do."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def wrong(self, *, done: bool) -> Iterator[str]:
        """Return the faults, after a kill or once it is `done`."""
        raise NotImplementedError

    def play(self) -> list[str]:
        """Kill it at several moments, then let it end; what was wrong at any time.

        What a kill left may stand until the last time, which writes to the same places.
        """
        kill_within_s = self._whole_s() * (2 / self.kills if self.goes_on else 1)
        found: list[str] = []
        for _ in range(self.kills):
            self.again()
            self._start_and_kill(self.random.random() * kill_within_s)
            found += [f"after a kill: {text}" for text in (*self._damaged(), *self.wrong(done=False))]
        ended = self._start().wait(_END_S)
        if ended != 0:
            found.append(f"it ends with {ended}: {(self.folder / 'log').read_text()[-300:]}")
        found += [*self._damaged(), *self.wrong(done=True)]
        return found + [f"left: {path}" for path in files_left(self.paths, self.folder / "tmp", at_rest=True)]

    def run_again(self) -> None:
        """Let the command run to its end once more."""
        self._start().wait(_END_S)

    def media_wrong(self) -> Iterator[str]:
        """Stored files that do not hold what their names say."""
        for path in self.paths.media.glob("??/*"):
            if not path.name.startswith(".") and hashlib.sha256(path.read_bytes()).hexdigest() != path.stem:
                yield f"{path.name} is damaged"

    def turns(self, title: str) -> list[int]:
        """Return the number of turns of each conversation with that title."""
        sql = "SELECT (SELECT count(*) FROM turns WHERE conversation = c.id) FROM conversations AS c WHERE title = ?"
        return [row[0] for row in self.rows(sql, title)]

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        if not (self.paths.data / FILE).exists():
            return []
        with contextlib.closing(sqlite3.connect(self.paths.data / FILE, timeout=10)) as database:
            return database.execute(sql, values).fetchall()

    def _damaged(self) -> Iterator[str]:
        if (self.paths.data / FILE).exists() and self.rows("PRAGMA integrity_check") != [("ok",)]:
            yield "the database is damaged"
        if not self.sets_aside and any(self.paths.data.glob("*.replaced-*")):
            yield "the database was set aside"

    def _start(self) -> Nursling:
        environment = {
            "HOME": str(self.folder),
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.folder / "tmp"),
            "VLMTUI_DATA_DIR": str(self.folder / "data"),
        }
        return self._nursery.start(self.command(), environment, self.folder)

    def _whole_s(self) -> float:
        """Return the seconds that it takes in a copy of the folder's data."""
        shutil.copytree(self.folder / "data", self.folder / "kept")
        started = time.monotonic()
        self._start().wait(_END_S)
        took = time.monotonic() - started
        shutil.rmtree(self.folder / "data")
        (self.folder / "kept").rename(self.folder / "data")
        return took

    def _start_and_kill(self, after_s: float) -> None:
        process = self._start()
        process.wait(after_s)
        self.killed += process.end(signal.SIGKILL, _END_S) == -signal.SIGKILL


class Import(Deed):
    """A document with pictures comes in wholly or not at all."""

    def prepare(self, folder: Path) -> None:
        fill(Paths.below(folder / "source"), "brought")
        export = ["-m", "vlmtui", "export", "--all", "--format", "json", "-o", str(folder / "out")]
        environment = {**os.environ, "VLMTUI_DATA_DIR": str(folder / "source")}
        subprocess.run([sys.executable, *export], env=environment, check=True, capture_output=True)

    def command(self) -> list[str]:
        (document,) = (self.folder / "out").glob("*.json")
        return ["vlmtui", "import", str(document)]

    def wrong(self, *, done: bool) -> Iterator[str]:
        found = self.turns("brought")
        if any(count != TURNS for count in found) or (done and not found):
            yield f"conversations of {found} turns and not of {TURNS}"
        yield from self.media_wrong()


class Export(Deed):
    """No document under its name that is not whole."""

    def prepare(self, folder: Path) -> None:
        for number in range(4):
            fill(Paths.below(folder / "data"), f"kept {number}")

    def command(self) -> list[str]:
        return ["vlmtui", "export", "--all", "--format", "json", "-o", str(self.folder / "out")]

    def wrong(self, *, done: bool) -> Iterator[str]:
        documents = list((self.folder / "out").glob("*.json"))
        for path in documents:
            try:
                turns = json.loads(path.read_bytes())["turns"]
            except ValueError as error:
                yield f"{path.name}: {error}"
            else:
                if len(turns) != TURNS:
                    yield f"{path.name} has {len(turns)} turns"
        if done and len(documents) < 4:
            yield f"{len(documents)} documents of 4"
        if done and (unfinished := [path.name for path in (self.folder / "out").rglob(".*")]):
            yield f"unfinished: {unfinished}"


class Purge(Deed):
    """Deleted conversations go with their media; the others stay with theirs."""

    goes_on = True

    def prepare(self, folder: Path) -> None:
        paths = Paths.below(folder / "data")
        fill(paths, "stays")
        for number in range(12):
            fill(paths, f"goes {number}")
        store = opened(paths.data)
        for entry in store.conversations():
            if entry.conversation.title.startswith("goes"):
                store.delete(entry.conversation.id)
        store.close()

    def command(self) -> list[str]:
        return ["tests.torture.deeds", "purge", str(self.paths.data)]

    def wrong(self, *, done: bool) -> Iterator[str]:
        yield from self.media_wrong()
        if self.turns("stays") != [TURNS]:
            yield f"what was not deleted has {self.turns('stays')} turns"
        media = len([path for path in self.paths.media.glob("??/*") if not path.name.startswith(".")])
        if media < PICTURES:
            yield "a picture that is needed is gone"
        gone = self.rows("SELECT count(*) FROM conversations WHERE deleted_ms IS NOT NULL")
        if done and (gone != [(0,)] or media != PICTURES):
            yield f"{gone} deleted conversations and {media} pictures are there"


DEEDS: dict[str, type[Deed]] = {"import": Import, "export": Export, "purge": Purge}


def fill(paths: Paths, title: str) -> None:
    """A conversation with pictures of its own."""
    store = opened(paths.data)
    conversation = store.new_conversation(title=title, model="shapes")
    for number in range(TURNS // 2):
        if number < PICTURES:
            content = b"\x89PNG\r\n\x1a\n" + Random(f"{title} {number}").randbytes(_PICTURE_BYTES)
            picture = attachment(paths.media, content, name=f"{number}.png")
            leaf = store.conversation(conversation).leaf
            asked = store.add_turn(conversation, leaf, Turn("user", (Text("What is "), Media(picture))))
            store.add_turn(conversation, asked, Turn("user", (Text("And?"),)))
        else:
            exchange(store, conversation, number)
    store.close()


def main(words: Sequence[str]) -> int:
    """`purge DATA`: what is no command of its own."""
    store = opened(Path(words[-1]))
    # The times of a store are a millisecond apart at least, so many quick writes bring them ahead of the clock.
    store.purge_deleted(-60)
    store.close()
    return 0
