"""`python -m vlmtui.worker.template_process`: runs chat templates and counts the tokens of long texts for the worker.

Reads calls from stdin and writes replies to stdout: eight bytes of length, then MessagePack. A single operation of a
template can keep Python's lock for ever (a power of 10**9; comparing two lists that each hold one list twice, fifty
levels deep), so the kernel ends the process when a call exceeds its processor time.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from datetime import datetime
from enum import StrEnum
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO

import jinja2
import jinja2.ext
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment

from vlmtui.domain.template import Scalar
from vlmtui.processes import limit_process
from vlmtui.worker.hf.template_variables import Generation, read_variables, reads_parts

RENDER_S = 10.0
"""Seconds of processor time for a rendering; normally milliseconds."""
COUNT_S = 60.0
"""Seconds of processor time for counting tokens; a megabyte takes about one."""
CALL_BYTES = 2**30
"""The bytes by which the process may grow during a call."""
PIECE = 2**16
"""Tokens are counted in pieces of so many characters."""
_CUT_TOKENS = 256
"""The most tokens by which a cut between two pieces can change the count."""
_TEXT_BYTES_MAX = 2**26
_NETWORK = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.bind"})
LENGTH_BYTES = 8


class Trouble(StrEnum):
    """Why a call has no result."""

    REFUSED = "refused"
    """The template raised an exception; the reply has its message."""
    TOO_BIG = "too big"
    """The process reached its memory limit, or the text has more than 64 MiB."""


class Read(msgspec.Struct, frozen=True, tag=True):
    """Find out what a template reads. The reply has its variables, and as text vLLM's word for the content: `openai` or
    `string`."""

    source: str


class Render(msgspec.Struct, frozen=True, tag=True):
    source: str
    messages: list[dict[str, Any]]
    variables: dict[str, Any]


class Count(msgspec.Struct, frozen=True, tag=True):
    """Count a text's tokens, without special tokens. The reply has the count, or a number above `most` if the text has
    more tokens than that."""

    text: str
    most: int
    tokenizer: str | None
    """The tokenizer as JSON; None: that of the last call."""


class Call(msgspec.Struct, frozen=True):
    """Work and its limits. `seconds`: of processor time. `more`: bytes of memory."""

    work: Read | Render | Count
    seconds: float
    more: int


class Reply(msgspec.Struct, frozen=True):
    """The result of a call, or its trouble."""

    text: str = ""
    count: int = 0
    variables: dict[str, tuple[Scalar, ...]] | None = None
    trouble: Trouble | None = None
    message: str = ""


class Refusal(jinja2.TemplateError):
    """Raised by a template that calls `raise_exception`."""


def template_environment() -> ImmutableSandboxedEnvironment:
    """Return an environment like that of `transformers.utils.chat_template_utils` (5.19)."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    made.globals["raise_exception"] = _refuse
    made.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return made


def _refuse(message: str) -> None:
    raise Refusal(message)


def forbid_network() -> None:
    """From now on, network calls of Python code raise PermissionError."""
    sys.addaudithook(_without_network)


def _without_network(event: str, arguments: tuple[object, ...]) -> None:
    if event in _NETWORK:
        raise PermissionError("This process has no network.")


def _limit_growth(more: int) -> None:
    """Let the process grow by at most `more` bytes; further allocations raise MemoryError. Linux only."""
    if sys.platform.startswith("linux"):  # the sixth number counts against RLIMIT_DATA: proc_pid_statm(5)
        used = int(Path("/proc/self/statm").read_bytes().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (used + more, resource.getrlimit(resource.RLIMIT_DATA)[1]))


class _Calls:
    """Answers calls. Keeps the tokenizer of the last Count."""

    def __init__(self) -> None:
        self._compiled = lru_cache(maxsize=8)(template_environment().from_string)
        self._tokenizer: Any = None

    def answer(self, work: Read | Render | Count) -> bytes:
        try:
            found = msgspec.msgpack.encode(self._result(work))
            if len(found) > _TEXT_BYTES_MAX:
                raise MemoryError
        except MemoryError:
            found = msgspec.msgpack.encode(Reply(trouble=Trouble.TOO_BIG))
        except (jinja2.TemplateError, ArithmeticError, TypeError, ValueError, LookupError, AttributeError,
                RuntimeError) as error:  # fmt: skip
            said = str(error).encode(errors="replace").decode()
            found = msgspec.msgpack.encode(Reply(trouble=Trouble.REFUSED, message=said))
        return found

    def _result(self, work: Read | Render | Count) -> Reply:
        match work:
            case Read():
                text = "openai" if reads_parts(work.source) else "string"
                return Reply(text=text, variables=read_variables(work.source))
            case Render():
                fixed = {"messages": work.messages, "add_generation_prompt": True}
                given = {"tools": None, "documents": None, **work.variables, **fixed}
                return Reply(text=self._compiled(work.source).render(given))
            case Count():
                return Reply(count=self._count(work))

    def _count(self, work: Count) -> int:
        from tokenizers import Tokenizer

        if work.tokenizer is not None:
            self._tokenizer = Tokenizer.from_str(work.tokenizer)
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
        found = 0
        for start in range(0, len(work.text), PIECE):
            found += len(self._tokenizer.encode(work.text[start : start + PIECE], add_special_tokens=False))
            if found - _CUT_TOKENS * (start // PIECE + 1) > work.most:
                return found
        return min(found, work.most)  # between the two, only the whole text's tokens tell


def read_frame(stream: BinaryIO) -> bytes | None:
    """Read a call or a reply; None at the end of the stream."""
    length = stream.read(LENGTH_BYTES)
    return stream.read(int.from_bytes(length, "big")) if len(length) == LENGTH_BYTES else None


def write_frame(stream: BinaryIO, data: bytes) -> None:
    stream.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    stream.flush()


def main() -> int:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    limit_process(memory_bytes=2 * CALL_BYTES)
    forbid_network()
    calls = _Calls()
    while (data := read_frame(sys.stdin.buffer)) is not None:
        call = msgspec.msgpack.decode(data, type=Call)
        del data
        _limit_growth(call.more)
        signal.setitimer(signal.ITIMER_PROF, call.seconds)
        reply = calls.answer(call.work)
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_frame(replies, reply)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
