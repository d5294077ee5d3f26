"""Rounds of a chat in a real terminal, each with something killed or broken in it, and a check after it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

import psutil
import pytest

from tests.support.terminal import Terminal
from tests.torture.leftovers import files_left
from tests.torture.server import install
from tests.torture.worker import said
from vlmtui.engine.local.host import WorkerHost
from vlmtui.engine.local.processes import worker_processes
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.store.opening import FILE

EngineKind = Literal["scripted", "vllm", "transformers", "pinned"]
"""`scripted` and `pinned` say words that are asked for: the former in the worker itself, the latter in a server that
the worker starts as that of another version of vLLM. The others are the bundled model."""
SAYING: tuple[EngineKind, ...] = ("scripted", "pinned")
Role = Literal["server", "guardian", "core"]
Blow = Literal["app", "server", "guardian", "core", "hang-up", "logout", "disk full", "draft", "none"]
BLOWS: tuple[Blow, ...] = ("app", "server", "guardian", "core", "hang-up", "logout", "disk full", "draft", "none")
_SERVER = "vllm.entrypoints.cli.main"
_COLUMNS = 100
"""Too few for the side pane: an answer's rows have nothing beside them."""
_ROOT = Path(__file__).parents[2]
_WORDS = 150
_CHAT_MAX = 5
"""Questions in one chat with a real model. In a longer one, with answers that were cut off, it may count otherwise."""
_REACH_S = 3.0
_START_S, _END_S, _REST_S = 120.0, 60.0, 120.0
_MODEL_S = 300.0
"""For what a real model says: on a busy machine one or two tokens come in a second."""


@dataclass
class Losses:
    """The faults that a campaign found, by kind, each with its round and a sentence."""

    found: list[tuple[int, Blow, str]] = field(default_factory=list)

    def add(self, number: int, blow: Blow, what: str) -> None:
        self.found.append((number, blow, what))


@dataclass
class Asked:
    """A question of the campaign and how far its answer must have come."""

    question: str
    number: int
    """Its number among the messages with this text, from 0."""
    whole: str
    """The whole answer, blanks at its end removed."""
    least: str = ""
    """A beginning of the answer that must be in the store now."""
    must_be_whole: bool = False


class Campaign:
    """Everything lives below one folder, which must have a short name (sockets)."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        engine: EngineKind = "scripted",
        keep_alive_s: float = 3.0,
        kept_after_s: float = 3.0,
    ) -> None:
        """`kept_after_s`: what was on the screen so long before the blow has to be in the store. Text is stored every
        second, but a disk may be slow."""
        self.folder = folder
        self.random = Random(seed)
        self.engine: EngineKind = engine
        self.keep_alive_s = keep_alive_s
        self.kept_after_s = kept_after_s
        self.login = folder / "login"
        self.login.mkdir(mode=0o700, exist_ok=True)
        kinds = ("config", "data", "state", "cache")
        self.folders = {f"XDG_{kind.upper()}_HOME": str(folder / "data" / kind) for kind in kinds}
        """As of a user who sets no folder of his own, so that a logout meets what it would meet there."""
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("VLMTUI_DATA_DIR", raising=False)
            for name, value in {**self.folders, "XDG_RUNTIME_DIR": str(self.login)}.items():
                patch.setenv(name, value)
            self.paths = Paths.default()
        self.full = folder / "full"
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.asked: list[Asked] = []
        self.losses = Losses()
        self.rounds: Counter[Blow] = Counter()
        self.demanded = 0
        """Words that had to be in the store at the moment of a blow, in all."""
        self._draft = ""
        self._backend = install(self.paths, folder / "site") if engine == "pinned" else "transformers"

    # -- one round

    def round(self, number: int, blow: Blow) -> None:
        """Start the app, ask, strike, look."""
        self.rounds[blow] += 1
        try:
            with self.open_app() as terminal:
                self._check_resumed(terminal, number, blow)
                self._one(terminal, number, blow)
        except AssertionError as error:
            first, _, screen = str(error).partition("\n")
            (self.folder / f"screen-{number}.txt").write_text(screen)
            self.losses.add(number, blow, f"{first} (screen-{number}.txt)")
        self.full.unlink(missing_ok=True)
        self.check_store(number, blow)
        for path in files_left(self.paths, self.temporary, at_rest=False):
            self.losses.add(number, blow, f"left: {path}")

    def open_app(self, *, resume: bool = False) -> Terminal:
        begun = resume or bool(self.asked) or bool(self._draft)
        options = ["--continue"] if begun else ["--model", "shapes"]
        if self.engine in ("transformers", "pinned"):
            options = ["--model", "shapes", "--backend", self._backend, *(["--continue"] if begun else [])]
        return self.start(options)

    def start(self, options: Sequence[str], more: Mapping[str, str] | None = None) -> Terminal:
        """Start the app with these options. `more`: further environment variables."""
        command = self.command(*options, "--keep-alive", f"{self.keep_alive_s:g}s")
        return Terminal(command, env={**self.environment(), **(more or {})}, cwd=str(_ROOT), columns=_COLUMNS)

    def command(self, *words: str) -> list[str]:
        """Return a command of vlmtui with this campaign's engine."""
        return [sys.executable, "-m", "tests.torture.app", self.engine, str(self.full), *words]

    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])),
            "TMPDIR": str(self.temporary),
            "XDG_RUNTIME_DIR": str(self.login),
            **self.folders,
            "VLMTUI_GRAPHICS": "off",
            "VLMTUI_KEEP_ALIVE": f"{self.keep_alive_s:g}s",
        }

    def _check_resumed(self, terminal: Terminal, number: int, blow: Blow) -> None:
        """The chat stands with its model, and shows what was there before."""
        draft = self._draft

        def stands(text: str) -> bool:
            return "● " in text and (draft or "Message, or / for commands") in text

        terminal.wait_for(stands, timeout=_START_S)
        engines = sum(role_of(process) == "guardian" for process in self.processes())
        if engines > 1:
            self.losses.add(number, blow, f"{engines} engines are loaded")
        if self.asked:
            last = self.asked[-1]
            if last.must_be_whole:
                terminal.wait_for(last.question, timeout=_START_S)
                self._wait_for_store(lambda: self.answer_to(last) == last.whole, number, blow, "the answer's rest")
                # Until then Enter is refused: a slow model takes seconds from the last word to the stop token.
                self._wait_for_store(lambda: self._has_ended(last), number, blow, "the answer's end")
        if draft:
            terminal.type("\x7f" * len(draft))
            terminal.wait_for("Message, or / for commands", timeout=_START_S)
            self._draft = ""

    def _one(self, terminal: Terminal, number: int, blow: Blow) -> None:
        if blow == "draft":
            self._leave_a_draft(terminal, number)
            return
        if self.engine not in SAYING and self.asked and len(self.asked) % _CHAT_MAX == 0:
            self._begin_a_chat(terminal, number, blow)
        asked = self._ask(terminal, number)
        if blow == "disk full":
            self.full.touch()
        words = asked.whole.split()
        after = self.random.uniform(0.0, 0.9)
        shown = self._stream(terminal, asked, int(len(words) * after))
        self._strike(terminal, asked, blow, shown)
        terminal_is_there = blow not in ("app", "hang-up", "logout")
        if terminal_is_there:
            self._end_in_order(terminal, asked, blow)

    def _begin_a_chat(self, terminal: Terminal, number: int, blow: Blow) -> None:
        self._wait_for_store(lambda: self._has_ended(self.asked[-1]), number, blow, "the answer's end")
        last = f"▌ {self.asked[-1].question}"
        terminal.wait_for(last, timeout=_START_S)
        terminal.press("ctrl+n")
        terminal.wait_for(lambda text: last not in text, timeout=_START_S)

    def _ask(self, terminal: Terminal, number: int) -> Asked:
        if self.engine in SAYING:
            question = f"say {_WORDS} k{number}"
            whole = "".join(said(question)).strip()
        else:
            question = "Count to 100."
            whole = " ".join(str(one) for one in range(1, 101))
        asked = Asked(question, sum(one.question == question for one in self.asked), whole)
        before = terminal.text.count(question)
        for key in question:
            terminal.type(key)
        terminal.wait_for(lambda text: text.count(question) > before)
        terminal.press("enter")
        self.asked.append(asked)
        stored = self.paths.data / FILE
        self._wait_for_store(lambda: stored.exists() and self._found(asked) is not None, number, "none", "the question")
        terminal.wait_for(lambda text: " ".join(whole.split()[:2]) in _flat(text, question), timeout=_MODEL_S)
        return asked

    def _stream(self, terminal: Terminal, asked: Asked, count: int) -> str:
        """Wait until so many words stand on the screen; those that have stood there long enough to be stored."""
        words = asked.whole.split()
        seen: list[tuple[float, int]] = []
        for place in range(10, count + 1, 10):
            two = " ".join(words[place - 2 : place])
            terminal.wait_for(lambda text, two=two: two in _flat(text, asked.question), timeout=_MODEL_S)  # type: ignore[misc]
            seen.append((time.monotonic(), place))
        now = time.monotonic()
        stored = max((place for at, place in seen if now - at > self.kept_after_s), default=0)
        self.demanded += stored
        return " ".join(words[:stored])

    def _strike(self, terminal: Terminal, asked: Asked, blow: Blow, shown: str) -> None:
        asked.least = shown
        match blow:
            case "app":
                os.kill(terminal.pid, signal.SIGKILL)
                asked.must_be_whole = True
            case "hang-up":
                terminal.hang_up()
                asked.must_be_whole = True
            case "logout":
                terminal.hang_up()
                asked.must_be_whole = True
                folder = self.random.choice([self.login, self.paths.runtime])
                for path in folder.iterdir():  # as logind does, or a program that cleans up
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                until = time.monotonic() + _REACH_S
                while not any(worker.report for worker in asyncio.run(WorkerHost(self.paths).find_all())):
                    if time.monotonic() > until:
                        self.losses.add(0, blow, f"the engine is out of reach without the files of {folder.name}")
                        break
            case "server" | "guardian" | "core":
                self.kill_worker(blow)
            case "disk full":
                time.sleep(self.random.uniform(0.2, 1.5))
                self.full.unlink()
                asked.must_be_whole = True
            case _:
                asked.must_be_whole = True

    def _end_in_order(self, terminal: Terminal, asked: Asked, blow: Blow) -> None:
        if asked.must_be_whole:
            last = " ".join(asked.whole.split()[-2:])
            terminal.wait_for(lambda text: last in _flat(text, asked.question), timeout=_MODEL_S)
            self._wait_for_store(lambda: self.answer_to(asked) == asked.whole, 0, blow, "the answer")
        else:
            self._wait_for_store(lambda: self._has_ended(asked), 0, blow, "the answer's end")
        terminal.press("ctrl+q")
        terminal.wait_for_end(timeout=_END_S)

    def _leave_a_draft(self, terminal: Terminal, number: int) -> None:
        self._draft = f"an unsent thought {number}"
        terminal.type(self._draft)
        terminal.wait_for(self._draft)
        self._wait_for_store(lambda: self._draft in self._drafts(), number, "draft", "the draft")
        os.kill(terminal.pid, signal.SIGKILL)

    def end_workers(self) -> None:
        """Kill the guardians, and wait until no worker is left."""
        self.kill_worker("guardian")
        while self.processes():
            time.sleep(0.05)

    def kill_worker(self, which: Role) -> None:
        for endpoint in Endpoint.all(self.paths):
            for process in worker_processes(endpoint):
                with contextlib.suppress(psutil.Error):
                    if role_of(process) == which:
                        process.kill()

    # -- looking

    def check_store(self, number: int, blow: Blow) -> None:
        """Everything asked, and of every answer what must be there, is in the database, and that is whole."""
        with contextlib.closing(self._connect()) as database:
            (found,) = database.execute("PRAGMA integrity_check").fetchone()
        if found != "ok":
            self.losses.add(number, blow, f"the database: {found}")
        for asked in self.asked:
            answer = self.answer_to(asked)
            if answer is None:
                self.losses.add(number, blow, f"the question {asked.question!r} is not in the store")
            elif not asked.whole.startswith(answer):
                self.losses.add(number, blow, f"the answer to {asked.question!r} holds something else: {answer!r}")
            elif not answer.startswith(asked.least):
                self.losses.add(number, blow, f"of the answer to {asked.question!r} only {answer!r} is in the store")

    def check_processes(self) -> None:
        """Once the keep-alive has passed, no process of any worker is left."""
        deadline = time.monotonic() + self.keep_alive_s + _REST_S
        while left := self.processes():
            if time.monotonic() > deadline:
                self.losses.add(0, "none", f"processes left: {[process.cmdline() for process in left]}")
                return
            time.sleep(0.2)

    def processes(self) -> list[psutil.Process]:
        """Return the processes that run in this campaign's folder."""
        inside: list[psutil.Process] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.cwd().startswith(str(self.folder)) and process.status() != psutil.STATUS_ZOMBIE:
                    inside.append(process)
        return inside

    def _wait_for_store(self, holds: object, number: int, blow: Blow, what: str) -> None:
        deadline = time.monotonic() + (_END_S if self.engine in SAYING else _MODEL_S)
        assert callable(holds)
        while not holds():
            if time.monotonic() > deadline:
                self.losses.add(number, blow, f"{what} never got into the store")
                return
            time.sleep(0.1)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.paths.data / FILE, timeout=10)

    def answer_to(self, asked: Asked) -> str | None:
        """The newest answer to a question; None where the question is not there, empty where it has none."""
        found = self._found(asked)
        return None if found is None else found[0].strip()

    def _has_ended(self, asked: Asked) -> bool:
        """Return whether the store has an end of the newest answer to a question."""
        found = self._found(asked)
        return found is not None and found[1] not in ("", "running")

    def _found(self, asked: Asked) -> tuple[str, str] | None:
        """Text and state of the newest answer to a question, empty where it has none; None without the question."""
        with contextlib.closing(self._connect()) as database:
            sql = "SELECT id FROM turns WHERE role = 'user' AND text = ? ORDER BY id LIMIT 1 OFFSET ?"
            user = database.execute(sql, (asked.question, asked.number)).fetchone()
            if user is None:
                return None
            sql = "SELECT text, state FROM turns WHERE parent = ? ORDER BY id DESC LIMIT 1"
            return database.execute(sql, user).fetchone() or ("", "")

    def _drafts(self) -> str:
        with contextlib.closing(self._connect()) as database:
            return "\n".join(text for (text,) in database.execute("SELECT text FROM drafts"))


def _flat(text: str, question: str) -> str:
    """Return the screen's text below the newest place of the question, in one line."""
    return " ".join(text.rpartition(question)[2].split())


def role_of(process: psutil.Process) -> str:
    """Return the name of a worker's part that a process is; empty: none."""
    command = process.cmdline()
    if "--guardian" in command:
        return "server"
    if "vlmtui.worker" in command or "tests.torture.worker" in command:
        return "guardian"
    if _SERVER in command:
        return "core"
    parent = process.parent()
    if parent is not None and _SERVER in parent.cmdline():
        return ""  # it has to end with the server
    return "core" if any("EngineCore" in part for part in command) or "-c" in command else ""
