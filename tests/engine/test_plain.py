"""Plain mode on the real engine, in a pseudo-terminal that can do nothing but append (TERM=dumb)."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pexpect
import pytest

from tests.support.terminal import search_paths
from vlmtui.paths import Paths, sample_image

pytestmark = [pytest.mark.engine, pytest.mark.e2e]
ANSWER = "A red circle"
CONTROL = re.compile(rb"[\x00-\x06\x0b-\x0c\x0e-\x1f\x7f]")
"""Bytes that a terminal that only appends can't use. readline rings no bell and edits with backspaces."""
PROMPT = re.compile(rb"\r\n(?:\[[^\]\r\n]+\])*> $")


class Person:
    """Types lines, and reads all that comes until the next prompt."""

    def __init__(self, paths: Paths, *arguments: str) -> None:
        root = str(paths.config.parent)
        env = {"HOME": root, **search_paths(), "TERM": "dumb", "LANG": "C.UTF-8", "VLMTUI_DATA_DIR": root}
        self.raw = bytearray()
        self.process: pexpect.spawn[bytes] = pexpect.spawn(
            sys.executable, ["-m", "vlmtui", *arguments], env=env, cwd=root, timeout=300, dimensions=(24, 80)
        )
        self.process.delaybeforesend = None
        self.process.logfile_read = SimpleNamespace(write=self.raw.extend, flush=lambda: None)
        self.process.expect(PROMPT)

    def says(self, line: str) -> str:
        """Type a line, and return what was written until the next prompt."""
        begin = len(self.raw)
        self.process.send(line.encode() + b"\r")
        self.process.expect(PROMPT)
        return self.raw[begin:].decode().replace("\r\n", "\n")

    def quits(self) -> int | None:
        self.process.send(b"/quit\r")
        self.process.expect(pexpect.EOF)
        self.process.close()
        return self.process.exitstatus


def test_a_session_writes_no_escape_byte(loaded_worker: Paths) -> None:
    person = Person(loaded_worker, "--model", "shapes")
    assert b"Plain mode, as this terminal is dumb (TERM)" in person.raw
    assert "320 × 320" in person.says(f"/attach {sample_image()}")
    assert ANSWER in person.says("What is in this image?")
    assert "answer 2/2" in person.says("/retry")
    assert "answer 1/2" in person.says("/branch 1")
    assert person.quits() == 0
    assert b"stays loaded" in person.raw
    again = Person(loaded_worker, "--continue")
    assert b"1 You: What is in this image?" in again.raw and ANSWER.encode() in again.raw
    assert ANSWER in again.says("Name the shape.") or b"circle" in again.raw
    assert again.quits() == 0
    assert not CONTROL.search(person.raw + again.raw)
