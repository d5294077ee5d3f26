"""Plain mode: its commands, and sessions in pseudo-terminals in which no typed text is lost."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pexpect
import pytest
from PIL import Image

from tests.support.plain_app import HOLD
from tests.support.scripted_engine import Die, Hold, ScriptedHost, scripted_info
from tests.support.sounds import write_tone, write_with_pictures
from tests.support.typed_lines import TypedLines
from tests.unit.store.made import exchange
from vlmtui.cli.help import command_parsers
from vlmtui.config.settings import Settings
from vlmtui.domain.engine import REMOTE_BACKEND
from vlmtui.engine.interface import changed_since_load
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.plain.repl import ELSEWHERE, Repl
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.resume import ResumePoint, resume_point
from vlmtui.store.opening import FILE
from vlmtui.store.records import StoredTurn
from vlmtui.store.store import Store
from vlmtui.ui.actions import ACTIONS
from vlmtui.ui.services import ExitReport, Services

ROOT = Path(__file__).parents[2]
SLASHES = {action.id for action in ACTIONS.values() if action.slash}
PROMPT = "\r\n> "
CONTROL = re.compile(rb"[\x00-\x06\x0b-\x0c\x0e-\x1f\x7f]")
"""Bytes that a terminal that only appends can't use. readline rings no bell and edits with backspaces."""


def services(
    folder: Path,
    host: ScriptedHost | None = None,
    *,
    model: str | None = "shapes",
    resumed: ResumePoint | None = None,
    settings: Settings | None = None,
) -> Services:
    """Return the services of plain mode, with files in a folder and a scripted engine."""
    paths = Paths.below(folder)
    return Services(
        paths=paths,
        settings=settings or Settings(),
        registry=Registry.bundled(),
        host=host or ScriptedHost(),
        store=AsyncStore(paths),
        keep_alive_s=0,
        initial_model=model,
        resumed=resumed,
    )


async def said(folder: Path, *lines: str, host: ScriptedHost | None = None, **others: Any) -> tuple[str, ExitReport]:
    """Run a session with these input lines; return its output and its report."""
    terminal = TypedLines(lines)
    _, report = await Repl(services(folder, host, **others), terminal).run()
    return terminal.text, report


def test_every_slash_command_runs_or_names_a_command(tmp_path: Path) -> None:
    runs = Repl(services(tmp_path), TypedLines([])).commands.keys()
    assert runs <= SLASHES
    assert ELSEWHERE.keys() <= SLASHES - runs
    named = [found for text in ELSEWHERE.values() for found in re.findall(r"`vlmtui (\w+)", text)]
    assert named and set(named) <= command_parsers().keys()


async def test_every_command_that_plain_mode_lacks_names_another(tmp_path: Path) -> None:
    lacking = sorted(SLASHES - Repl(services(tmp_path), TypedLines([])).commands.keys())
    text, _ = await said(tmp_path, *(ACTIONS[id].slash for id in lacking))
    for id in lacking:
        assert f"{ACTIONS[id].title} is in the full screen" in text
    assert "Compare is in the full screen, or `vlmtui ask --mode both …`." in text


def test_remedies_name_commands_that_run(tmp_path: Path) -> None:
    terminal = TypedLines([])
    repl = Repl(services(tmp_path), terminal)
    slashes = {ACTIONS[id].slash for id in repl.commands}
    for remedy in Remedy:
        terminal.text = ""
        repl.tell("Failed.", remedy)
        assert set(re.findall(r"/\w+", terminal.text)) <= slashes


async def test_a_message_before_a_model_is_chosen_becomes_the_draft(tmp_path: Path) -> None:
    text, report = await said(tmp_path, "/nonsense", "a message", model=None)
    assert "There is no command /nonsense." in text
    assert "No model is loaded.\n/model picks a model." in text
    assert report.conversation is not None
    with opened_store(tmp_path) as store:
        assert store.draft(report.conversation).text == "a message"


async def test_models_are_listed_and_loaded_by_name(tmp_path: Path) -> None:
    text, report = await said(tmp_path, "/model", "/model no-such-model", "/model shapes", "hello", model=None)
    assert "  shapes, bundled\n" in text
    assert "Error: " in text and "no-such-model" in text
    assert "shapes is ready: vLLM 0.32.0, 4,096 tokens of context." in text
    assert "a red circle at the left" in text
    assert report.model == "shapes"


async def test_a_server_without_version_and_context_is_ready(tmp_path: Path) -> None:
    info = msgspec.structs.replace(scripted_info(), engine="Server", engine_version="", max_model_len=0)
    text, _ = await said(tmp_path, "hello", host=ScriptedHost(info=info))
    assert "shapes is ready: Server, its context is unknown." in text


async def test_a_server_of_the_command_line_is_used_whatever_model_is_named(tmp_path: Path) -> None:
    """`--plain --engine URL --model FAMILY` once loaded the family's model on this machine."""
    shapes, host, terminal = resolve(Registry.bundled(), "shapes"), ScriptedHost(), TypedLines(["/quit"])
    spec = msgspec.structs.replace(shapes.spec, backend=REMOTE_BACKEND, name="fake at http://box:1", model="fake")
    served = msgspec.structs.replace(shapes, spec=spec)
    given = msgspec.structs.replace(services(tmp_path, host, model="qwen2_5_vl"), served=served)
    await Repl(given, terminal).run()
    assert [opened[0] for opened in host.opened] == [spec] and "Loading fake at http://box:1." in terminal.text


async def test_changed_files_of_the_model_are_told_and_a_command_loads_them(tmp_path: Path) -> None:
    host, message = ScriptedHost(answers=[["one"]]), changed_since_load("shapes", ("config.json",))
    host.refuse = VlmtuiError(ErrorKind.MODEL_CHANGED, message, remedy=Remedy.RESTART_ENGINE)  # others use it
    text, _ = await said(tmp_path, "hello", "/model shapes", host=host)
    assert text.count("Loading shapes.") == text.count(f"{message} /model NAME loads it again.") == 2
    assert "loaded already" not in text and "one" in text


async def test_answers_branch_and_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    host = ScriptedHost(answers=[["one"], ["two"]])
    lines = ("hello", "/retry", "/branch 1", "/export chat.md", "/export chat.md", "/export")
    text, _ = await said(tmp_path, *lines, host=host)
    assert "answer 2/2" in text and "answer 1/2" in text
    written = (tmp_path / "chat.md").read_text()
    assert "one" in written and "two" not in written
    assert "chat.md already exists." in text and "/export takes a file name." in text


async def test_settings_apply_to_the_next_message(tmp_path: Path) -> None:
    host = ScriptedHost()
    text, _ = await said(tmp_path, "/set temperature 0.5", "/system Be brief.", "/set colour red", "hello", host=host)
    assert "Temperature" in text and "0.5" in text
    assert "System prompt set" in text
    assert "has no parameter colour" in text
    [request] = host.engines[0].requests
    assert request.sampling.temperature == 0.5


async def test_an_engine_that_died_is_loaded_again(tmp_path: Path) -> None:
    host = ScriptedHost(answers=[["half ", Die()], ["whole"]])
    text, _ = await said(tmp_path, "hello", "again", host=host)
    assert "half" in text and "It is loading again." in text and "whole" in text


async def test_a_conversation_whose_model_is_not_here_opens_and_takes_another(tmp_path: Path) -> None:
    paths = Paths.below(tmp_path)
    store = Store.open(paths.data, paths.media)
    conversation = store.new_conversation(title="Old", model="/nowhere/model")
    exchange(store, conversation, 1)
    point = resume_point(store, conversation)
    store.close()
    text, report = await said(tmp_path, "hello", "/model shapes", "hello", model=None, resumed=point)
    assert "Error: " in text and "1 You: " in text
    assert text.count("a red circle at the left") == 1
    assert report.conversation == conversation


async def test_a_session_makes_the_days_backup_and_purges_as_the_app_does(tmp_path: Path) -> None:
    paths = Paths.below(tmp_path)
    store = Store.open(paths.data, paths.media)
    exchange(store, store.new_conversation(title="A dog"), 1)
    store.delete(deleted := store.new_conversation(title="Deleted"))
    store.close()
    pause = asyncio.Event()
    host = ScriptedHost(load=[Hold(pause)])
    plain = services(tmp_path, host, settings=Settings(keep_deleted="0"))
    session = asyncio.ensure_future(Repl(plain, TypedLines([])).run())
    async with asyncio.timeout(20):
        while deleted in [one.id for one in await plain.store.run(lambda store: store.deleted())]:
            await asyncio.sleep(0.01)
    pause.set()
    await session
    [copy] = (paths.data / "backups").iterdir()
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT title FROM conversations WHERE deleted_ms IS NULL").fetchall() == [("A dog",)]


async def test_a_damaged_database_is_reported_with_the_restoring_command(tmp_path: Path) -> None:
    paths = Paths.below(tmp_path)
    store = Store.open(paths.data, paths.media)
    exchange(store, store.new_conversation(title="A dog"), 1)
    store.close()
    database = paths.data / FILE
    database.write_bytes(b"nothing" * 1000)
    text, report = await said(tmp_path, "hello")
    assert "is damaged" in text and "`vlmtui store restore` continues with" in text
    assert "a red circle at the left" in text
    assert report.conversation is None


async def test_the_sound_of_a_video_and_a_page_of_a_tiff_are_attached_by_name(tmp_path: Path) -> None:
    clip, scan = write_with_pictures(tmp_path / "clip.mp4"), tmp_path / "scan.tiff"
    pages = [Image.new("RGB", (64, 48), colour) for colour in ("red", "blue")]
    pages[0].save(scan, save_all=True, append_images=pages[1:])
    text, _ = await said(tmp_path, f"/attach {clip}#sound", f"/attach {scan}#page=2")
    assert "[Audio #1] clip.mp4, 1.0 s" in text
    assert "[Image #2] scan.tiff" in text
    pages[0].save(scan, tiffinfo={254: 1})
    text, _ = await said(tmp_path, f"/attach {scan}")
    assert "scan.tiff: not as in a viewer: a reduced copy of another image." in text


@pytest.mark.parametrize("line", ["/detach", "/branch"])
async def test_a_text_of_thousands_of_digits_is_not_a_number(line: str, tmp_path: Path) -> None:
    text, _ = await said(tmp_path, f"{line} {'9' * 5000}")
    assert "Error: " in text


@contextmanager
def opened_store(folder: Path) -> Iterator[Store]:
    paths = Paths.below(folder)
    store = Store.open(paths.data, paths.media)
    try:
        yield store
    finally:
        store.close()


class Session:
    """A session in a pseudo-terminal of type dumb."""

    def __init__(self, folder: Path, spawned: pexpect.spawn[bytes]) -> None:
        self.folder = folder
        self.process = spawned
        self.raw = bytearray()
        spawned.logfile_read = SimpleNamespace(write=self.raw.extend, flush=lambda: None)

    @property
    def text(self) -> str:
        return self.raw.decode().replace("\r\n", "\n")

    def wait(self, *texts: str) -> None:
        for text in texts:
            self.process.expect_exact(text.encode())

    def say(self, line: str, *texts: str) -> None:
        """Type a line, and wait for texts after it."""
        self.process.send(line.encode() + b"\r")
        self.wait(*texts)

    def end(self) -> int:
        """Read the rest of the output; return the exit code."""
        self.process.expect(pexpect.EOF)
        self.process.close()
        code: int | None = self.process.exitstatus
        assert code is not None, self.text
        return code

    def turns(self) -> list[StoredTurn]:
        """Return the turns of the newest conversation."""
        with opened_store(self.folder) as store:
            found = store.last()
            return store.path(found) if found is not None else []

    def draft(self) -> str:
        with opened_store(self.folder) as store:
            found = store.last()
            assert found is not None
            return store.draft(found).text


@contextmanager
def opened(
    folder: Path, answers: Sequence[Sequence[str]] = (), *, program: Sequence[str] = (), **env: str
) -> Iterator[Session]:
    """Start plain mode with these answers. `program`: what starts it; None: the terminal itself."""
    (folder / "answers.json").write_text(json.dumps(answers))
    command, *arguments = program or (sys.executable, "-m", "tests.support.plain_app", str(folder))
    variables: dict[str, Any] = {"TERM": "dumb", "LANG": "C.UTF-8", "HOME": str(folder), "PATH": os.environ["PATH"]}
    variables["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    spawned: pexpect.spawn[bytes] = pexpect.spawn(
        command,
        arguments,
        env=variables | env,
        cwd=str(ROOT),
        timeout=120,
        dimensions=(24, 80),
    )
    spawned.delaybeforesend = None
    try:
        yield Session(folder, spawned)
    finally:
        spawned.close(force=True)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "red.png"
    Image.new("RGB", (64, 48), "red").save(path)
    return path


@pytest.mark.process
def test_a_whole_session_has_no_escape_sequence(tmp_path: Path, picture: Path) -> None:
    with opened(tmp_path, [["a red circle"], ["one ", HOLD]]) as session:
        session.wait("shapes is ready", PROMPT)
        session.say("hello", "a red circle", PROMPT)
        session.say("count", "one ")
        session.process.sendcontrol("c")
        session.wait("stopped by you", PROMPT)
        session.say(f"/attach {picture}", "64 × 48", "]> ")
        session.say("what is in [Image #1] here?", "a red circle at the left", PROMPT)
        session.say("/retry", "answer 2/2", PROMPT)
        session.say("/branch 1", "answer 1/2", PROMPT)
        session.say("/set temperature 0.5", "0.5", PROMPT)
        session.say(f"/attach {picture}", "]> ")
        session.say("/detach", "Removed [Image #2].", PROMPT)
        session.say(f"/export {tmp_path}/chat.md", "Written: ", PROMPT)
        session.say("/new", "A new conversation", PROMPT)
        session.say("/help", "/attach PATH", PROMPT)
        session.process.sendcontrol("d")
        assert session.end() == 0
        assert "saved True conversation" in session.text
        assert not CONTROL.search(session.raw)
        assert "a red circle at the left" in (tmp_path / "chat.md").read_text()


@pytest.mark.process
@pytest.mark.parametrize("term", ["dumb", "xterm-256color", "vt100"])
def test_hostile_answers_are_made_visible_in_any_terminal(tmp_path: Path, term: str) -> None:
    with opened(tmp_path, [["red \x1b[31m\x1b]0;title\x07 \x9b2J \u202e end"]], TERM=term) as session:
        session.wait(PROMPT)
        session.say("hello", "end", PROMPT)
        session.process.sendcontrol("d")
        assert session.end() == 0
        assert b"\x1b" not in session.raw
        assert "␛[31m␛]0;title␇ <U+009B>2J <U+202E> end" in session.text


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_line_that_was_being_typed_is_the_draft_when_the_session_is_ended(tmp_path: Path, number: int) -> None:
    with opened(tmp_path, [["a red circle"]]) as session:
        session.wait(PROMPT)
        session.say("hello", "a red circle", PROMPT)
        session.say("one\\", "… ")
        session.process.send(b"half a mess")
        session.wait("half a mess")
        session.process.kill(number)
        assert session.end() == 128 + number
        assert session.draft() == "one\nhalf a mess"
        assert [turn.text for turn in session.turns()] == ["hello", "a red circle"]


@pytest.mark.process
def test_ctrl_c_keeps_the_line_in_the_history_and_twice_quits(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        session.wait(PROMPT)
        session.process.send(b"not now")
        session.wait("not now")
        session.process.sendcontrol("c")
        session.wait("Ctrl+C again or Ctrl+D quits", PROMPT)
        session.process.send(b"\x10")  # Ctrl+P: the line before
        session.wait("not now")
        session.say("", "a red circle at the left", PROMPT)
        session.process.sendcontrol("c")
        session.wait("Ctrl+C again or Ctrl+D quits", PROMPT)
        session.process.sendcontrol("c")
        assert session.end() == 0
        assert session.turns()[0].text == "not now"


@pytest.mark.process
def test_a_second_ctrl_c_quits_after_the_first_has_stopped_an_answer(tmp_path: Path) -> None:
    with opened(tmp_path, [["one ", HOLD]]) as session:
        session.wait(PROMPT)
        session.say("count", "one ")
        session.process.sendcontrol("c")
        session.wait("stopped by you", PROMPT)
        session.process.sendcontrol("c")
        assert session.end() == 0
        assert [turn.text for turn in session.turns()] == ["count", "one "]


@pytest.mark.process
def test_an_unsent_message_is_told_and_stays_as_the_draft(tmp_path: Path, picture: Path) -> None:
    clip = tmp_path / "tone.wav"
    write_tone(clip, 2.5)
    with opened(tmp_path) as session:
        session.wait(PROMPT)
        session.say(f"/attach {picture} {clip}", "[Image #1][Audio #2]> ")
        session.say("what is it?", "does not accept sounds", "sends it): what is it?", "[Audio #2]> ")
        session.say("/detach 2", "[Image #1]> ")
        session.process.sendcontrol("c")
        session.wait("Ctrl+C again or Ctrl+D quits", "[Image #1]> ")
        session.process.sendcontrol("c")
        assert session.end() == 0
        assert session.draft() == "[Image #1]what is it?"


@pytest.mark.process
@pytest.mark.skipif(shutil.which("script") is None, reason="script is not installed")
def test_script_records_no_escape_sequence(tmp_path: Path) -> None:
    record = tmp_path / "typescript"
    command = f"{sys.executable} -m tests.support.plain_app {tmp_path}"
    program = ["script", "-qefc", command, str(record)]
    with opened(tmp_path, program=program, TERM="xterm-256color", COLORTERM="truecolor") as session:
        session.wait(PROMPT)
        session.say("hello", "a red circle", PROMPT)
        session.process.sendcontrol("d")
        assert session.end() == 0
    recorded = record.read_bytes()
    assert b"hello" in recorded and b"a red circle" in recorded
    assert not CONTROL.search(recorded.replace(b"\x04", b""))


@pytest.mark.process
def test_lines_from_a_pipe_are_in_the_log(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.plain_app", str(tmp_path)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    lines = "hello\n/stop\nbye\n"
    ran = subprocess.run(command, input=lines, env=env, capture_output=True, text=True, timeout=120, check=True)
    prompts = [line for line in ran.stdout.splitlines() if line.startswith("> ")]
    assert prompts == ["> hello", "> /stop", "> bye", "> "]
    assert ran.stdout.count("a red circle at the left") == 2


_EMACS = """
(require 'shell)
(setq explicit-shell-file-name "/bin/sh")
(setenv "PS1" "$ ")
(let* ((buffer (shell "*chat*")) (process (get-buffer-process buffer)))
  (defun wait-for (pattern)
    (let ((tries 0))
      (while (and (< tries 600) (not (with-current-buffer buffer
          (goto-char (process-mark process)) (forward-line 0) (looking-at pattern))))
        (accept-process-output process 0.1) (setq tries (1+ tries)))
      (when (= tries 600) (error "%s did not come: %s" pattern (with-current-buffer buffer (buffer-string))))))
  (defun say (line pattern)
    (with-current-buffer buffer (goto-char (point-max)) (insert line) (comint-send-input))
    (accept-process-output process 0.2)
    (wait-for pattern))
  (wait-for ".*[$#] $")
  (say (getenv "CHAT") "> $")
  (say "hello" "> $")
  (say "/quit" ".*[$#] $")
  (princ (with-current-buffer buffer (buffer-substring-no-properties (point-min) (point-max)))))
"""
"""The environment of Emacs' shell, which edits lines itself."""


@pytest.mark.process
@pytest.mark.skipif(shutil.which("emacs") is None, reason="Emacs is not installed")
def test_emacs_shell(tmp_path: Path) -> None:
    (tmp_path / "chat.el").write_text(_EMACS)
    env = os.environ | {
        "CHAT": f"{sys.executable} -m tests.support.plain_app {tmp_path}",
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        "HOME": str(tmp_path),
    }
    command = ["emacs", "--batch", "-Q", "-l", str(tmp_path / "chat.el")]
    ran = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "> hello\na red circle at the left" in ran.stdout
    assert not CONTROL.search(ran.stdout.encode())


async def test_an_empty_line_sends_the_draft(tmp_path: Path) -> None:
    text, report = await said(tmp_path, "hello", "/model shapes", "", model=None)
    assert "Draft (Enter on an empty line sends it): hello" in text
    assert "a red circle at the left" in text
    assert report.conversation is not None
