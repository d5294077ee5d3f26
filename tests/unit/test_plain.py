"""Plain mode: every slash command, a whole session in a dumb terminal, and what becomes of what was typed."""

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

import pexpect
import pytest
from PIL import Image

from tests.support.plain_app import HOLD
from tests.support.scripted_engine import ScriptedHost
from tests.support.sounds import write_tone, write_with_pictures
from tests.unit.store.made import exchange
from vlmtui.config.settings import Settings
from vlmtui.errors import Remedy
from vlmtui.paths import Paths
from vlmtui.plain.commands import REFUSED, Commands, slash_commands
from vlmtui.plain.output import Event, Line, PlainOutput
from vlmtui.plain.parts import PlainServices
from vlmtui.plain.session import PlainSession
from vlmtui.plain.wording import remedy_command
from vlmtui.registry.loader import Registry
from vlmtui.session.async_store import AsyncStore
from vlmtui.store.records import StoredTurn
from vlmtui.store.store import Store
from vlmtui.ui.actions import ACTIONS

ROOT = Path(__file__).parents[2]
SLASHES = {action.id for action in ACTIONS.values() if action.slash}
PROMPT = "\r\n> "
KILL_LINE = b"\x15"
"""Ctrl+U."""
CONTROL = re.compile(rb"[\x00-\x06\x0b-\x0c\x0e-\x1f\x7f]")
"""What a terminal that only appends has no use for; readline rings no bell, and edits with backspaces."""


def commands() -> Commands:
    return Commands(SimpleNamespace(controller=SimpleNamespace(), output=None, services=_Services()))  # type: ignore[arg-type]


class _Services:
    paths = Paths.below(Path("/nonexistent"))


def test_every_slash_command_runs_or_is_refused_with_a_reason() -> None:
    run = commands().by_id.keys()
    assert run | REFUSED.keys() == SLASHES
    assert not run & REFUSED.keys()
    assert all(reason.endswith(".") for reason in REFUSED.values())


def test_tab_completes_what_runs() -> None:
    assert set(slash_commands()) == {ACTIONS[id].slash for id in SLASHES - REFUSED.keys()}


def test_every_remedy_names_a_command_or_key() -> None:
    for remedy in set(Remedy) - {Remedy.SHOW_DIFFERENCE}:
        assert re.search(r"/[a-z]+|Ctrl|file", remedy_command(remedy)), remedy


async def begun(folder: Path) -> tuple[PlainSession, list[Event]]:
    """Return a session without a model that keeps its files in a folder, and what it tells."""
    told: list[Event] = []
    paths = Paths.below(folder)
    services = PlainServices(
        paths=paths,
        settings=Settings(),
        registry=Registry.bundled(),
        host=ScriptedHost(),
        store=AsyncStore(paths),
    )
    session = PlainSession(services, PlainOutput(told.append))
    await session.begin()
    return session, told


async def test_all_that_is_told_of_a_command_that_does_not_exist(tmp_path: Path) -> None:
    session, told = await begun(tmp_path)
    for line in ("/nonsense", "/copy", "a message"):
        assert await session.take(line) is not None
    await session.leave()
    text = "\n".join(event.text for event in told if isinstance(event, Line))
    assert "There is no command /nonsense." in text
    assert REFUSED["copy_answer"] in text
    assert "No model is loaded.\n/model picks a model." in text


def test_the_page_names_what_is_refused() -> None:
    page = (ROOT / "docs" / "plain.md").read_text()
    [line] = [line for line in page.splitlines() if "are refused" in line]
    assert set(re.findall(r"`(/\w+)`", line.partition("Tab completes")[2])) == {ACTIONS[id].slash for id in REFUSED}


async def test_a_session_makes_the_days_backup_and_purges_as_the_app_does(tmp_path: Path) -> None:
    paths = Paths.below(tmp_path)
    store = Store.open(paths.data, paths.media)
    exchange(store, store.new_conversation(title="A dog"), 1)
    store.delete(deleted := store.new_conversation(title="Deleted"))
    store.close()
    services = PlainServices(
        paths=paths,
        settings=Settings(keep_deleted="0"),
        registry=Registry.bundled(),
        host=ScriptedHost(),
        store=AsyncStore(paths),
    )
    session = PlainSession(services, PlainOutput(lambda event: None))
    await session.begin()
    async with asyncio.timeout(20):
        while deleted in [one.id for one in await services.store.run(lambda store: store.deleted())]:
            await asyncio.sleep(0.01)
    await session.leave()
    [copy] = (paths.data / "backups").iterdir()
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT title FROM conversations WHERE deleted_ms IS NULL").fetchall() == [("A dog",)]


@pytest.mark.parametrize(
    "line", ["/view", "/detach", "/edit", "/branch", "/page", "/inspect", "/frames", "/fan pixels="]
)
async def test_a_number_of_thousands_of_digits_is_no_number(line: str, tmp_path: Path) -> None:
    session, told = await begun(tmp_path)
    space = "" if line.endswith("=") else " "
    assert await session.take(f"{line}{space}{'9' * 5000}") is not None
    await session.leave()
    assert any(event.text.startswith("Error: ") for event in told if isinstance(event, Line))


class Session:
    """A session in a dumb pseudo-terminal."""

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
        """Read the rest; the exit code."""
        self.process.expect(pexpect.EOF)
        self.process.close()
        code: int | None = self.process.exitstatus
        assert code is not None, self.text
        return code

    def turns(self) -> list[StoredTurn]:
        """The turns of the newest conversation."""
        with self.store() as store:
            found = store.last()
            return store.path(found) if found is not None else []

    def draft(self) -> str:
        with self.store() as store:
            found = store.last()
            assert found is not None
            return store.draft(found).text

    @contextmanager
    def store(self) -> Iterator[Store]:
        paths = Paths.below(self.folder)
        store = Store.open(paths.data, paths.media)
        try:
            yield store
        finally:
            store.close()


@contextmanager
def opened(
    folder: Path, answers: Sequence[Sequence[str]] = (), *, program: Sequence[str] = (), **env: str
) -> Iterator[Session]:
    """Plain mode with these answers. `program`: what starts it; otherwise it is started in the terminal itself."""
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
        session.say(f"/attach {picture}", "64 × 48", "tokens", "]> ")
        session.say("what is in [Image #1] here?", "a red circle at the left", PROMPT)
        session.say("/fan seed=1,2", "== 1 seed 1 ==", "== 2 seed 2 ==", "== Difference ==", "Answer: ")
        session.say("2", "continues with answer 2", PROMPT)
        session.say("/compare", "== Chat template ==", "== Raw prompt ==", "== Difference ==", "[y/N] ")
        session.say("y", "is now answer 4/4", PROMPT)
        session.say("/comparisons", "Comparison of", "== Raw · vLLM 0.32.0", PROMPT)
        session.say("/inspect", "<|im_start|>user", "Other parts", PROMPT)
        session.say("/inspect media", "red.png", PROMPT)
        session.say("/set temperature 0.5", "0.5", PROMPT)
        session.say("/conversations", "hello", "Conversation: ")
        session.say("1", "1 You: hello", PROMPT)
        session.say("/edit 1", "edit 1 > hello")
        session.say(" again", "message 2/2", PROMPT)
        session.say("/new", "A new conversation", PROMPT)
        session.say("/help", "/attach PATH", "/view NUMBER", PROMPT)
        session.process.sendcontrol("d")
        assert session.end() == 0
        assert "saved True conversation" in session.text
        assert not CONTROL.search(session.raw)


@pytest.mark.process
def test_sounds_and_adapters_are_told_in_lines(tmp_path: Path) -> None:
    tone, clip = write_tone(tmp_path / "tone.wav", 2.5), write_with_pictures(tmp_path / "clip.mp4")
    adapter = tmp_path / "my-ocr"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"r": 8, "peft_type": "LORA"}')
    with opened(tmp_path, [["a red circle"]]) as session:
        session.wait("shapes is ready", PROMPT)
        session.say(f"/attach {tone}", "tone.wav, 2.5 s", "[Audio #1]> ")
        session.say(f"/attach {clip}", "clip.mp4", "[Audio #1][Video #2]> ")
        session.say("/sound", "clip.mp4, 1.0 s · 48 kHz", "[Audio #1][Video #2][Audio #3]> ")
        session.say("what is it?", "does not accept sounds", "[Audio #3]> what is it?")
        session.process.send(KILL_LINE)  # the message that was not sent stands there again
        session.say("/adapter", "Adapter: none", "/adapter none without one", "[Audio #3]> what is it?")
        session.process.send(KILL_LINE)
        session.say(f"/adapter {tmp_path}", "Adapters in it: my-ocr", "[Audio #3]> what is it?")
        session.process.send(KILL_LINE)
        session.say(f"/adapter {adapter}", "is loaded again", "shapes is ready", "Adapter none → my-ocr")
        session.wait("[Audio #3]> what is it?")
        session.process.send(KILL_LINE)
        session.say("/settings", f"Adapter: {adapter}", "[Audio #3]> what is it?")
        session.process.send(KILL_LINE)
        session.say("/adapter none", "Adapter my-ocr → none", "[Audio #3]> what is it?")
        session.process.send(KILL_LINE)
        session.process.sendcontrol("d")
        assert session.end() == 0
        assert session.draft() == "[Audio #1][Video #2][Audio #3]what is it?"
        assert not CONTROL.search(session.raw)


@pytest.mark.process
def test_a_side_of_a_comparison_has_another_engine(tmp_path: Path) -> None:
    with opened(tmp_path, [["a red circle"], ["a blue square"]]) as session:
        session.wait("shapes is ready", PROMPT)
        session.say("hello", "a red circle", PROMPT)
        session.say('/compare raw="here dtype=bfloat16', "not closed", PROMPT)
        session.say("/compare raw=smolvlm", "needs another raw prompt", PROMPT)
        session.say('/compare raw="here dtype=bfloat16"', "Load here dtype=bfloat16?", "beside", "Number, 1 to 2")
        session.say("", PROMPT)
        session.say('/compare raw="here dtype=bfloat16"', "Number, 1 to 2")
        session.say("2", "== Chat template · here ==", "== Raw prompt · here dtype=bfloat16 ==")
        session.wait("[vLLM 0.32.0 · bfloat16 · cpu]", "== Difference ==", "[y/N] ")
        session.say("", PROMPT)
        session.say("/comparisons", "== Chat · vLLM 0.32.0", "== Raw · vLLM 0.32.0", PROMPT)
        session.process.sendcontrol("d")
        assert session.end() == 0


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
def test_a_line_that_was_being_typed_is_the_draft_when_the_terminal_goes_away(tmp_path: Path) -> None:
    with opened(tmp_path, [["a red circle"]]) as session:
        session.wait(PROMPT)
        session.say("hello", "a red circle", PROMPT)
        session.process.send(b"half a mess")
        session.wait("half a mess")
        session.process.kill(signal.SIGHUP)
        assert session.end() == 128 + signal.SIGHUP
        assert session.draft() == "half a mess"
        assert [turn.text for turn in session.turns()] == ["hello", "a red circle"]


@pytest.mark.process
def test_a_message_without_an_engine_stays_as_the_draft(tmp_path: Path, picture: Path) -> None:
    with opened(tmp_path) as session:
        session.wait(PROMPT)
        session.say(f"/attach {picture}", "]> ")
        session.process.sendcontrol("d")
        assert session.end() == 0
        assert session.draft() == "[Image #1]"


@pytest.mark.process
def test_ctrl_c_at_the_prompt_keeps_the_line_in_the_history(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        session.wait(PROMPT)
        session.process.send(b"not now")
        session.wait("not now")
        session.process.sendcontrol("c")
        session.wait("Ctrl+D quits", PROMPT)
        session.process.send(b"\x10")  # Ctrl+P: the line before
        session.wait("not now")
        session.say("", "a red circle at the left", PROMPT)
        session.process.sendcontrol("d")
        assert session.end() == 0
        assert session.turns()[0].text == "not now"


@pytest.mark.process
def test_a_file_named_in_a_message_is_offered(tmp_path: Path, picture: Path) -> None:
    with opened(tmp_path) as session:
        session.wait(PROMPT)
        session.say(f"what is in {picture} here?", "Attach", "[y/N] ")
        session.say("y", "a red circle at the left", PROMPT)
        session.process.sendcontrol("d")
        assert session.end() == 0
        [user, _] = session.turns()
        assert [item.name for item in user.turn.attachments] == ["red.png"]


@pytest.mark.process
def test_a_backslash_continues_a_message(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        session.wait(PROMPT)
        session.say("one\\", "… ")
        session.say("two", "a red circle at the left", PROMPT)
        session.process.sendcontrol("d")
        assert session.end() == 0
        assert session.turns()[0].text == "one\ntwo"


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
    lines = "hello\n/settings\nbye\n"
    ran = subprocess.run(command, input=lines, env=env, capture_output=True, text=True, timeout=120, check=True)
    prompts = [line for line in ran.stdout.splitlines() if line.startswith("> ")]
    assert prompts == ["> hello", "> /settings", "> bye", "> "]
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
  (say "/fan seed=1,2" "Answer: $")
  (say "2" "> $")
  (say "/quit" ".*[$#] $")
  (princ (with-current-buffer buffer (buffer-substring-no-properties (point-min) (point-max)))))
"""
"""Emacs' shell: it edits lines itself, and shows a question only when it is the last line."""


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
    assert "== 2 seed 2 ==" in ran.stdout and "continues with answer 2" in ran.stdout
    assert not CONTROL.search(ran.stdout.encode())
