"""Deeds in the app besides a chat, each interrupted by a kill."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from PIL import Image

from tests.support.terminal import Terminal
from tests.torture.campaign import Asked, Campaign, Role
from tests.torture.leftovers import files_left
from vlmtui.protocol.spool import spooled_requests
from vlmtui.store.opening import FILE

_VICTIMS: tuple[Role | None, ...] = (None, "server", "guardian", "core")
"""None is the app itself."""
_READY = "Message, or / for commands"
_F3, _F10 = "\x1bOR", "\x1b[21~"
_PATIENCE_S = 120.0
_OTHER_MODEL = "smolvlm"
_SIDE = 2500


class Scene:
    """An answered question in a folder of its own, then the deed, then a blow; afterwards all goes on."""

    def __init__(self, folder: Path, random: Random, number: int) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.random = random
        self.number = number
        self.campaign = Campaign(folder, seed=random.randrange(2**32))
        self.victim = random.choice(_VICTIMS)

    def play(self, name: str) -> list[str]:
        """Return the faults; `left` looks for remains later. The chat has come back once it
        shows the question as a message: a note may name it while the model still loads."""
        victim = self.victim
        try:
            with self.campaign.open_app() as terminal:
                terminal.wait_for(lambda text: _READY in text and "● " in text, timeout=_PATIENCE_S)
                self.answered(terminal, "before")
                SCENES[name](self, terminal)
                self.strike(terminal, victim)
            with self.campaign.open_app() as terminal:
                terminal.wait_for(f"▌ {self.campaign.asked[0].question}", timeout=_PATIENCE_S)
                self.empty(terminal)
                self.answered(terminal, "after")
                terminal.press("ctrl+q")
                terminal.wait_for_end(timeout=_PATIENCE_S)
        except AssertionError as error:
            first, _, screen = str(error).partition("\n")
            (self.folder / "screen.txt").write_text(screen)
            self.campaign.losses.add(self.number, "none", f"{first} ({self.folder.name}/screen.txt)")
        self.campaign.check_store(self.number, "none")
        found = [text for _, _, text in self.campaign.losses.found] + self.media_wrong()
        return [f"{text} ({victim or 'app'} killed)" for text in found]

    def left(self) -> list[str]:
        """Return the processes and files that are left when no process should run any more.
        An answer that outlived the second app, too, is fetched by the next one."""
        found = len(self.campaign.losses.found)
        self.campaign.check_processes()
        if spooled_requests(self.campaign.paths.runtime):
            with self.campaign.open_app() as terminal:
                terminal.wait_for(lambda text: _READY in text and "● " in text, timeout=_PATIENCE_S)
                until = time.monotonic() + _PATIENCE_S
                while spooled_requests(self.campaign.paths.runtime) and time.monotonic() < until:
                    terminal.read(0.1)
                terminal.press("ctrl+q")
                terminal.wait_for_end(timeout=_PATIENCE_S)
            self.campaign.check_processes()
        texts = [text for _, _, text in self.campaign.losses.found[found:]]
        files = files_left(self.campaign.paths, self.campaign.temporary, at_rest=True)
        return [f"{text} ({self.victim or 'app'} killed)" for text in (*texts, *(f"left: {path}" for path in files))]

    def answered(self, terminal: Terminal, when: str) -> None:
        """Ask, and wait for the whole answer on the screen and in the store."""
        question = f"say 20 {when}{self.number}"
        whole = " ".join(f"{when}{self.number}-{word}" for word in range(20))
        self.type(terminal, question)
        self.send(terminal)
        terminal.wait_for(lambda text: whole.split()[-1] in text, timeout=_PATIENCE_S)
        asked = Asked(question, 0, whole, must_be_whole=True, least=whole)
        self.campaign.asked.append(asked)
        deadline = time.monotonic() + _PATIENCE_S
        while self.campaign.answer_to(asked) != whole:
            assert time.monotonic() < deadline, f"the answer {when!r} never got into the store"
            time.sleep(0.05)

    def send(self, terminal: Terminal) -> None:
        """Send the message until the app accepts it: an answer from before may still run, and the message waits."""
        deadline = time.monotonic() + _PATIENCE_S
        while _READY not in terminal.text:
            assert time.monotonic() < deadline, f"the message is never taken:\n{terminal.text}"
            terminal.press("enter")
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                terminal.read(0.05)

    def type(self, terminal: Terminal, text: str) -> None:
        for key in text:
            terminal.type(key)
        terminal.wait_for(text, timeout=_PATIENCE_S)

    def empty(self, terminal: Terminal) -> None:
        """Take away what the composer holds of the draft before."""
        self.type(terminal, " .")
        terminal.type("\x15")
        terminal.wait_for(_READY, timeout=_PATIENCE_S)

    def strike(self, terminal: Terminal, victim: Role | None) -> None:
        """Kill at any moment of the next second."""
        until = time.monotonic() + self.random.uniform(0.0, 1.2)
        while time.monotonic() < until:
            terminal.read(0.02)
        if victim is not None:
            self.campaign.kill_worker(victim)
            time.sleep(self.random.uniform(0.0, 0.5))
        os.kill(terminal.pid, signal.SIGKILL)

    def media_wrong(self) -> list[str]:
        """Stored files that do not hold what their names say, and what a turn or draft needs and is not there."""
        stored = [path for path in self.campaign.paths.media.glob("??/*") if not path.name.startswith(".")]
        sound = {path.stem for path in stored if hashlib.sha256(path.read_bytes()).hexdigest() == path.stem}
        wrong = [f"{path.name} is damaged" for path in stored if path.stem not in sound]
        with contextlib.closing(sqlite3.connect(self.campaign.paths.data / FILE, timeout=10)) as database:
            needed = {row[0] for row in database.execute("SELECT DISTINCT sha256 FROM media_references")}
        return wrong + [f"{sha256} is needed and not there" for sha256 in sorted(needed - sound)]

    # -- the deeds

    def attach(self, terminal: Terminal) -> None:
        """A picture that takes a while to be read and stored."""
        noise = self.random.randbytes(_SIDE * _SIDE * 3)
        picture = self.folder / "noise.png"
        Image.frombytes("RGB", (_SIDE, _SIDE), noise).save(picture, compress_level=0)
        terminal.paste(str(picture))

    def fan_out(self, terminal: Terminal) -> None:
        self.type(terminal, "say 100 fan")
        terminal.type("\x1bs")
        terminal.wait_for("Fan out:", timeout=_PATIENCE_S)
        terminal.type("\x15seed=1,2,3")
        terminal.press("enter")

    def compare(self, terminal: Terminal) -> None:
        self.type(terminal, "say 100 sides")
        terminal.type(_F10)
        terminal.wait_for("Raw prompt", timeout=_PATIENCE_S)
        terminal.press("ctrl+r")

    def switch(self, terminal: Terminal) -> None:
        terminal.type(_F3)
        terminal.wait_for("Models", timeout=_PATIENCE_S)
        self.type(terminal, _OTHER_MODEL)
        terminal.press("enter")


SCENES: dict[str, Callable[[Scene, Terminal], None]] = {
    "attach": Scene.attach,
    "fan-out": Scene.fan_out,
    "compare": Scene.compare,
    "model switch": Scene.switch,
}
