"""Starts of the app during which a message is typed: it must be in the composer or sent, once, whenever it was typed.

python -m tests.torture.starts --starts 50 [--seed 1] [--engine vllm]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.support.terminal import Terminal
from tests.torture.campaign import Campaign
from tests.torture.server import Talker
from vlmtui.store.opening import FILE

WAYS = ("load", "attach", "continue", "server", "list", "question", "plain output")
"""Kinds of starts: a model that loads, one that is loaded, a stored conversation, a server, the list of models, a
question before the load, and Textual's own driver."""
MANNERS = ("keys", "keys", "paste", "enter")
"""How a message is typed. A paste begins once the app asks for marked pastes, Enter also before."""
_READY, _PASTES = "● ", b"\x1b[?2004h"
_PATIENCE_S = 240.0
_OWN_CODE = "phi3_v"
"""A family whose models bring their own code, so that a question comes before the load."""
_GAPS_S = (0.0, 0.0, 0.01, 0.03)


@contextlib.contextmanager
def talking_server() -> Iterator[str]:
    """The address of a server whose model says words."""
    loop, server = asyncio.new_event_loop(), Talker()
    listening = loop.run_until_complete(asyncio.start_server(server.serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(listening.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Starts:
    """Starts of one app, each with a message typed at another moment."""

    def __init__(self, folder: Path, random: Random, server: str, *, engine: str = "scripted") -> None:
        self.wrong: list[str] = []
        """A sentence for each loss."""
        self._folder = folder
        self._random = random
        self._server = server
        self._campaign = Campaign(
            folder, seed=1, engine="scripted" if engine == "scripted" else "vllm", keep_alive_s=90.0
        )
        self._number = 0

    def play(self, way: str) -> None:
        """Start the app, type at a random moment, and look where the text is."""
        self._number += 1
        manner = self._random.choice(MANNERS) if self._number > 1 else "enter"  # so there is something to continue
        moment = self._random.choice(("the start", "the first paint", "the first paint"))
        after_s = self._random.uniform(0, 0.6)
        about = f"start {self._number} ({way}, {manner}, {after_s:.2f} s after {moment})"
        try:
            with self._open(way) as terminal:
                while moment == "the first paint" and not terminal.text.strip():
                    terminal.read(0.01)
                self._type(terminal, manner, after_s)
                if way in ("list", "question"):
                    self._choose_model(terminal, way)
                self._check(terminal, manner if way != "list" else "keys")
                terminal.press("ctrl+q")
                terminal.wait_for_end(timeout=_PATIENCE_S)
        except AssertionError as error:
            first, _, screen = str(error).partition("\n")
            (self._folder / f"start-{self._number}.txt").write_text(screen)
            self.wrong.append(f"{about}: {first} (start-{self._number}.txt)")
        if found := self._strange():
            self.wrong.append(f"{about}: in the store {found}")
        print(about, flush=True)

    def end(self) -> None:
        """End the loaded models."""
        self._campaign.end_workers()

    @property
    def _word(self) -> str:
        return f"say 3 n{self._number}qwertzuiop"

    def _open(self, way: str) -> Terminal:
        match way:
            case "continue":
                options = ["--continue"]
            case "server":
                options = ["--engine", self._server]
            case "list":
                options = []
            case "question":
                options = ["--model", _OWN_CODE]
            case _:
                options = ["--model", "shapes"]
        more = {"VLMTUI_GRAPHICS": self._random.choice(("auto", "off"))}  # `auto` asks the terminal, which answers
        more |= {"VLMTUI_OUTPUT": "plain"} if way == "plain output" else {}
        if way == "load":
            self._campaign.end_workers()
        return self._campaign.start(options, more)

    def _type(self, terminal: Terminal, manner: str, after_s: float) -> None:
        self._wait(terminal, after_s)
        if manner == "paste":
            while _PASTES not in terminal.raw:
                terminal.read(0.01)
            self._wait(terminal, after_s)
            terminal.paste(self._word)
            return
        for key in self._word:
            terminal.type(key)
            self._wait(terminal, self._random.choice(_GAPS_S))
        if manner == "enter":
            terminal.press("enter")

    def _wait(self, terminal: Terminal, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            terminal.read(0.01)

    def _choose_model(self, terminal: Terminal, way: str) -> None:
        """Answer the question, and choose the model in the list. If nothing was asked, its filter has the text."""
        if way == "question":
            terminal.wait_for("Let this model run its own code?", timeout=_PATIENCE_S)
            terminal.press("escape")
            terminal.wait_for(lambda text: "picks one" in text and "own code" not in text, timeout=_PATIENCE_S)
            terminal.type("\x18m")
        else:
            terminal.wait_for(f"▌ {self._word}", timeout=_PATIENCE_S)
            terminal.type("\x15")
        terminal.wait_for("Type to filter", timeout=_PATIENCE_S)
        terminal.type("shapes")
        terminal.wait_for("▌ shapes", timeout=_PATIENCE_S)
        terminal.press("enter")
        if way == "list":
            terminal.type(self._word)

    def _check(self, terminal: Terminal, manner: str) -> None:
        """Wait until the text is in the composer once, or until it is sent and answered."""
        word = self._word
        if manner == "enter" and self._campaign.engine == "scripted":
            terminal.wait_for(f"{word.split()[-1]}-2", timeout=_PATIENCE_S)
            return
        if manner == "enter":  # a real model answers what it likes
            terminal.wait_for(lambda text: f"▌ {word}" in text and "Message, or /" in text, timeout=_PATIENCE_S)
            return

        def composed(text: str) -> bool:
            lines = [line for line in text.splitlines() if "▌" in line and word.split()[-1] in line]
            return _READY in text and len(lines) == 1 and lines[0].partition("▌")[2].split("│")[0].strip() == word

        terminal.wait_for(composed, timeout=_PATIENCE_S)
        terminal.type("\x15")
        terminal.wait_for("Message, or / for commands", timeout=_PATIENCE_S)

    def _strange(self) -> list[str]:
        """Return the stored texts of the user that were not typed like that, or more than once."""
        path = self._campaign.paths.data / FILE
        if not path.exists():
            return []
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as database:
            drafts = [text for (text,) in database.execute("SELECT text FROM drafts WHERE text != ''")]
            sent = [text for (text,) in database.execute("SELECT text FROM turns WHERE role = 'user'")]
        typed = {f"say 3 n{number}qwertzuiop" for number in range(1, self._number + 1)}
        return [*drafts, *(text for text in sent if text not in typed or sent.count(text) > 1)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.starts", description=__doc__)
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("scripted", "vllm"), default="scripted")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="vlmtui-"))
    with talking_server() as server:
        starts = Starts(folder, Random(options.seed), server, engine=options.engine)
        for number in range(options.starts):
            starts.play(options.ways[number % len(options.ways)])
        starts.end()
    print(f"{options.starts} starts, {len(starts.wrong)} with a loss", *starts.wrong, sep="\n")
    if not starts.wrong:
        shutil.rmtree(folder)
    return 1 if starts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
