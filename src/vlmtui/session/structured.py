"""Checks a structured answer against the requested structure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Literal

import msgspec

from vlmtui.domain.sampling import Sampling
from vlmtui.processes import python_command, safe_environment
from vlmtui.session.answer_checks import CPU_S
from vlmtui.session.dials import structured_of
from vlmtui.text import cut, one_line

Kind = Literal["regex", "schema"]
_MESSAGE_MAX = 200
"""Most characters of a message that quotes the answer."""


class StructureCheck(msgspec.Struct, frozen=True):
    """The result of checking an answer's structure."""

    fits: bool | None
    """None: not checked."""
    message: str
    """One sentence, which may quote the answer. Hostile text."""


def check_structure(sampling: Sampling, answer: str) -> StructureCheck | None:
    """Check an answer's structure; None if none was requested. Blocks for seconds at most. Regular expressions and
    grammars are not checked, since engines read them in their own way."""
    wanted = structured_of(sampling)
    if not wanted:
        return None
    if isinstance(choices := wanted.get("choice"), list):
        fits = answer in choices
        return StructureCheck(fits, "The answer is one of the choices." if fits else "The answer is no choice.")
    if "json" not in wanted and not wanted.get("json_object"):
        return StructureCheck(None, f"The answer was not checked against the {next(iter(wanted))}.")
    return check_answer("schema", wanted.get("json", {"type": "object"}), answer)


def check_answer(kind: Kind, wanted: object, answer: str | None) -> StructureCheck:
    """Check that a regular expression is found in an answer, or that the answer is JSON that fits a schema. Without an
    answer, check that the expression or the schema can be used (`fits` is True or None).

    Blocks for up to 2 seconds of processor time. `fits` is None for an expression or schema that needs more.
    """
    try:
        question = json.dumps([kind, wanted, answer]).encode()
    except RecursionError:
        return StructureCheck(None, f"The {kind} is nested too deeply.")
    fits, message = _CHECKS.ask(question)
    return StructureCheck(fits, cut(one_line(message), _MESSAGE_MAX))


class _Checks:
    """The process of `vlmtui.session.answer_checks`, which is started again if a check has ended it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: bytes) -> tuple[bool | None, str]:
        """Return whether the answer fits (None: unknown), and a sentence. Blocking, one question at a time."""
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                process = self._process = _start()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(question + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = b""
            if line.endswith(b"\n"):
                return msgspec.json.decode(line, type=tuple[bool | None, str])
            with suppress(BrokenPipeError):  # the rest of the question
                process.stdin.close()
            process.stdout.close()
            took_too_long = process.wait() == -signal.SIGXCPU
            reason = f"took more than {CPU_S} s of processor time" if took_too_long else "failed"
            return None, f"The check {reason}."


def _start() -> subprocess.Popen[bytes]:
    """Start the process. It ends with this one, whose end closes its stdin; Ctrl+C in the terminal is not for it."""
    return subprocess.Popen(
        python_command(sys.executable, "-m", "vlmtui.session.answer_checks"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=safe_environment(os.environ),
        start_new_session=True,
    )


_CHECKS = _Checks()
