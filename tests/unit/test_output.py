"""Output to a terminal that reads slowly or not at all."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from vlmtui.ui.terminal.driver import WAITING_MAX, Output, sends_frames

_FRAME = "x" * 10_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 65_536)
    yield reading, writing
    for end in (reading, writing):
        with suppress(OSError):
            os.close(end)


def test_all_is_written_in_its_order(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1], on_caught_up=lambda: None)
    for number in range(1000):
        output.write(f"{number}é\n")
    assert output.close(10)
    os.close(pipe[1])
    said = b""
    while more := os.read(pipe[0], 65536):
        said += more
    assert said.decode() == "".join(f"{number}é\n" for number in range(1000))


def test_a_stalled_terminal_delays_nothing_and_is_redrawn_later(pipe: tuple[int, int]) -> None:
    again = threading.Event()
    output = Output(pipe[1], on_caught_up=again.set)
    frames = 3 * WAITING_MAX // len(_FRAME)
    for _ in range(frames):
        output.write("\x1b[?2026h")
        output.write(_FRAME)
        output.write("\x1b[?2026l")
    output.write("\x1b[?1049l")
    assert not again.is_set()
    assert not output.close(0.05)
    said = b""
    while b"\x1b[?1049l" not in said:
        said += os.read(pipe[0], 65536)
    assert again.wait(10)
    assert WAITING_MAX <= said.count(b"x") < frames * len(_FRAME)
    assert output.close(10)


def test_unencodable_characters_and_surrogates_are_harmless(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1], encoding="ascii", on_caught_up=lambda: None)
    output.write("a\udc80é")
    output.write("b")
    assert output.close(10)
    assert os.read(pipe[0], 100) == b"a??b"


def test_a_lost_terminal_is_not_an_error(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1], on_caught_up=lambda: None)
    os.close(pipe[0])
    output.write("a")
    output.write("b")
    assert output.close(10)


def test_textual_writes_on_request_or_with_an_unknown_version() -> None:
    assert sends_frames({})
    assert sends_frames({}, "8.2.9")
    assert not sends_frames({"VLMTUI_OUTPUT": "plain"})
    for version in ("8.3.0", "8.20.0", "9.0.0", ""):
        assert not sends_frames({}, version)
