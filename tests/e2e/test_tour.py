"""The tour at 80×24 with the real engine: someone who knows nothing does only what its text says."""

from __future__ import annotations

import re
import sys
from itertools import takewhile
from pathlib import Path

import msgspec
import pytest

from tests.support.terminal import KEYS, Terminal, search_paths
from vlmtui.paths import Paths
from vlmtui.session.tour import STEPS
from vlmtui.store.store import Store

pytestmark = [pytest.mark.engine, pytest.mark.e2e]
APP = [sys.executable, "-m", "vlmtui", "tour"]
_KEY = r"Ctrl\+\w+|F\d+|Esc|Enter|↓|Delete three times|/(?=,)|\d(?=:)"
_TO_DO = re.compile(
    rf"(?:[Pp]ress|then|and) (?P<key>{_KEY})"
    r"|[Tt]ype “(?P<text>[^”]+)”(?P<space> and a space)?"
)
_SENT = KEYS | {"↓": KEYS["down"], "delete three times": "\x1b[3~" * 3, "esc": "\x1b", "ctrl+home": "\x1b[1;5H"}
_SENT |= {"f9": "\x1b[20~", "f10": "\x1b[21~", "f12": "\x1b[24~", "/": "/"}
_MOVES_ONLY = frozenset({"↓", "ctrl+home", "/"})
"""Keys after which nothing on the screen has to look different."""


class Newcomer:
    """Reads the panel at the top, and does what it says."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    @property
    def told(self) -> str:
        lines = takewhile(lambda line: line.startswith("▌"), self._terminal.text.splitlines())
        return " ".join(line.removeprefix("▌").strip() for line in lines)

    def does(self, told: str) -> None:
        for found in _TO_DO.finditer(told):
            if found["key"]:
                self._press(found["key"].lower())
            else:
                self._write(found["text"] + (" " if found["space"] else ""))

    def _press(self, key: str) -> None:
        before = self._terminal.text
        self._terminal.type(_SENT.get(key, key))
        if key not in _MOVES_ONLY:
            self._terminal.wait_for(lambda text: text != before)
        self.waits()

    def _write(self, text: str) -> None:
        self._terminal.type(text)
        self._terminal.wait_for(text.rsplit(maxsplit=1)[-1])
        self.waits()

    def waits(self) -> None:
        """Wait until the screen stands still."""
        seen = -1
        while seen != len(self._terminal.raw):
            seen = len(self._terminal.raw)
            self._terminal.read(1.0)


def environment(paths: Paths, folder: Path) -> dict[str, str]:
    """The shared worker, found by its runtime folder, and everything else in a folder of the test's own."""
    root = paths.config.parent
    return {"HOME": str(folder), **search_paths(), "VLMTUI_DATA_DIR": str(root), "VLMTUI_GRAPHICS": "off"}


def test_a_stranger_finishes_the_tour_with_what_the_screen_says(loaded_worker: Paths, tmp_path: Path) -> None:
    kept = conversations(loaded_worker)
    with Terminal(APP, env=environment(loaded_worker, tmp_path), columns=80, rows=24) as terminal:
        user = Newcomer(terminal)
        terminal.wait_for("Message, or / for commands")
        for number, step in enumerate(STEPS[:4], 1):
            terminal.wait_for(f"step {number} of {len(STEPS)}: {step.title[:20]}")
            user.waits()
            user.does(user.told)
        terminal.wait_for("step 5 of")
        user.waits()
        terminal.press("ctrl+q")
        assert terminal.wait_for_end() == 0
        assert "4 steps are done. `vlmtui tour` goes on with: Break a placeholder." in screen_end(terminal)
    with Terminal(APP, env=environment(loaded_worker, tmp_path), columns=80, rows=24) as terminal:
        user = Newcomer(terminal)
        terminal.wait_for("Message, or / for commands")
        terminal.wait_for("step 5 of")
        terminal.type(KEYS["f10"])  # it was left in the comparison
        for number, step in enumerate(STEPS[4:], 5):
            terminal.wait_for(f"step {number} of {len(STEPS)}: {step.title[:20]}")
            user.waits()
            user.does(user.told)
        terminal.wait_for("all 10 steps are done")
        user.waits()
        terminal.press("ctrl+q")
        assert terminal.wait_for_end() == 0
    assert conversations(loaded_worker) == kept, "the user's own conversations are not touched"
    home = loaded_worker.state / "tour"
    own = msgspec.structs.replace(loaded_worker, data=home / "data", state=home / "state")
    assert conversations(own) >= 1


def screen_end(terminal: Terminal) -> str:
    return " ".join(terminal.raw.decode(errors="replace").split())


def conversations(paths: Paths) -> int:
    store = Store.open(paths.data, paths.media).store
    try:
        return len(store.conversations(limit=100))
    finally:
        store.close()
