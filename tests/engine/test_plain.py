"""Plain mode on the real engine, in a pseudo-terminal that can do nothing but append (TERM=dumb)."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pexpect
import pytest

from tests.support.adapters import write_adapter
from tests.support.hosts import patient_host
from tests.support.terminal import search_paths
from vlmtui.paths import Paths, sample_image
from vlmtui.plain.commands import REFUSED
from vlmtui.ui.actions import ACTIONS

pytestmark = [pytest.mark.engine, pytest.mark.e2e]
QUESTION = "What is in this image?"
ANSWER = "A red circle"
CONTROL = re.compile(rb"[\x00-\x06\x0b-\x0c\x0e-\x1f\x7f]")
"""What a terminal that only appends has no use for; readline rings no bell, and edits with backspaces."""
PROMPT = re.compile(rb"\r\n(?:edit \d+ )?(?:\[[^\]\r\n]+\])*> (?:What is in this image\?|Locate each object\.)?$")
ASKED = re.compile(rb"(?:\(Enter: none\): |Conversation: |Enter: no change\): |Answer: |\[y/N\] |seed=1,2,3: )$")
"""What a command asks, to which Enter alone is an answer."""


class Person:
    """Types lines, and reads all that comes until the next prompt."""

    def __init__(self, process: pexpect.spawn[bytes]) -> None:
        self.process = process
        self.raw = bytearray()
        process.logfile_read = SimpleNamespace(write=self.raw.extend, flush=lambda: None)

    def says(self, line: str) -> str:
        """Type a line, answer every question with Enter, and return what was written until the next prompt."""
        begin = len(self.raw)
        self.process.send(b"\x15" + line.encode() + b"\r")  # Ctrl+U: a message that is being edited stands there
        while self.process.expect([PROMPT, ASKED, pexpect.EOF]) == 1:
            self.process.send(b"\r")
        return self.raw[begin:].decode().replace("\r\n", "\n")


@pytest.fixture
def person(loaded_worker: Paths, tmp_path: Path) -> Iterator[Person]:
    yield from at_a_terminal(loaded_worker, tmp_path)


@pytest.fixture
def alone(short_path: Path, tmp_path: Path) -> Iterator[Person]:
    """A person whose engines are nobody else's; they find what vLLM has compiled before."""
    paths = Paths.below(short_path)
    yield from at_a_terminal(paths, tmp_path, home=os.environ["HOME"])
    asyncio.run(end_workers(paths))


async def end_workers(paths: Paths) -> None:
    host = patient_host(paths)
    for worker in await host.workers.find_all():
        await host.workers.stop(worker.endpoint)


def at_a_terminal(paths: Paths, tmp_path: Path, *, home: str = "") -> Iterator[Person]:
    root = str(paths.config.parent)
    env = {"HOME": home or root, **search_paths(), "TERM": "dumb", "LANG": "C.UTF-8", "VLMTUI_DATA_DIR": root}
    process: pexpect.spawn[bytes] = pexpect.spawn(
        sys.executable,
        ["-m", "vlmtui", "--model", "shapes"],
        env=env,
        cwd=str(tmp_path),
        timeout=300,
        dimensions=(24, 80),
    )
    process.delaybeforesend = None
    user = Person(process)
    try:
        process.expect(PROMPT)
        yield user
    finally:
        process.close(force=True)


def test_a_whole_session_writes_not_one_escape_byte(person: Person) -> None:
    assert b"Plain mode, as this terminal is dumb (TERM)" in person.raw
    assert "256 × 256" in person.says(f"/attach {sample_image()}") or "tokens" in person.raw.decode()
    assert ANSWER in person.says(QUESTION)
    compared = person.says("/compare")
    assert compared.index("== Chat template ==") < compared.index("== Raw prompt ==") < compared.index("== Difference")
    assert compared.count(ANSWER) >= 2
    assert "<|image_pad|>" in person.says("/inspect prompt")
    assert "circle.png" in person.says("/inspect media")
    fanned = person.says("/fan temperature=0,0.5")
    assert "== 1 temperature 0 ==" in fanned and "== 2 temperature 0.5 ==" in fanned
    person.says("/new")
    listed = person.says("/conversations image")
    assert "circle.png" in listed or "What is in this image" in listed
    person.process.send(b"/quit\r")
    person.process.expect(pexpect.EOF)
    person.process.close()
    assert person.process.exitstatus == 0
    assert b"stays loaded" in person.raw
    assert not CONTROL.search(person.raw)


def test_every_slash_command_is_reached_or_refused_with_its_reason(person: Person) -> None:
    person.says(f"/attach {sample_image()}")
    assert ANSWER in person.says(QUESTION)
    for action in ACTIONS.values():
        if not action.slash or action.id == "quit":
            continue
        told = person.says(action.slash)
        assert told.replace(action.slash, "", 1).strip(" \n>"), action.slash
        assert "There is no command" not in told, action.slash
        assert "internal error" not in told, action.slash
        if action.id in REFUSED:
            assert REFUSED[action.id] in told.replace("\n", " "), action.slash
    assert not CONTROL.search(person.raw)


@pytest.mark.timeout(900)
def test_an_adapter_answers_from_then_on(alone: Person, tmp_path: Path) -> None:
    strong = write_adapter(tmp_path / "loras" / "strong", strength=1.0)
    alone.says("/set max_tokens 12")
    alone.says(f"/attach {sample_image()}")
    assert ANSWER in alone.says(QUESTION)
    assert f"{strong}: rank 8, for shapes" in alone.says("/adapter").replace("\n", "")
    told = alone.says(f"/adapter {strong}")
    assert "shapes is loaded again" in told and "shapes is ready" in told and "Adapter none → strong" in told
    told = alone.says("/retry")
    assert "Error" not in told and len(told) > 20
    assert ANSWER not in told, "random matrices of this strength leave nothing of the answer"
    assert "strong" in alone.says("/settings")
    assert "strong → none" in alone.says("/adapter none")
    assert ANSWER in alone.says("/retry")
    assert not CONTROL.search(alone.raw)
