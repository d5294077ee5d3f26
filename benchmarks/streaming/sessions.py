"""The sessions that both programs play, and the measured figures."""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.conversations import fill
from benchmarks.streaming.engine import NOTES, Note, read_notes
from benchmarks.streaming.recording import Link, Recording

Figures = dict[str, float]
"""Measured values by name; times in milliseconds."""

_KEYS = "vqxkzjvwqkxzjqvxzkwjqxvkzjwqvxkz"
"""Letters to type one by one; no other text on the screen contains them."""
_KEY_EVERY_S = 0.15
_STARTED_S = 3.0
"""Seconds after which the app has finished its start-up tasks."""
_IDLE_S = 5.0
_names = (f"q{number}z" for number in itertools.count(1))


class Stream(NamedTuple):
    """The cost of an answer."""

    note: Note
    asked: float
    """When Enter was pressed."""
    first: float
    """When the first token was on the screen; if it scrolls away at once, the last token."""
    last: float
    cpu_s: float
    bytes: int
    echoes: list[float]
    """Milliseconds from each key to its letter on the screen."""
    gap: float
    """Longest time in ms without output while the answer streamed."""


class Session:
    """A program that is ready for a question."""

    def __init__(self, recording: Recording, notes: Path, *, is_app: bool, enter: str = "\r") -> None:
        """`enter`: the key that sends."""
        self.recording = recording
        self.is_app = is_app
        self._notes = notes
        self._enter = enter

    def ask(self, count: int, rate: int, *, keys: int = 0) -> Stream:
        """Request an answer and wait until all of it is on the screen; type `keys` letters meanwhile."""
        recording, name = self.recording, next(_names)
        question = f"say {count} {rate} {name}"
        recording.type(question)
        recording.wait_for(question)
        time.sleep(0.25)  # what typing started (the count of its tokens) has ended
        cpu_s, written, chunks = recording.cpu_s, recording.written, len(recording.chunks)
        asked = recording.type(self._enter)
        typed = self._type_slowly(keys, after=asked + 0.3)
        note = self._noted(name)
        seen: dict[str, float] = {}
        first, last = f"⟨{name}", f"{name}⟩"
        prefixes = [_KEYS[: number + 1] for number in range(keys)]
        recording.until(
            lambda: recording.watch([first, last, *prefixes], seen).keys() >= {last, *prefixes},
            f"the end {last}",
        )
        time.sleep(0.3)  # the end's own frames: facts, footer, title
        used, wrote = recording.cpu_s - cpu_s, recording.written - written
        if keys:
            recording.type("\x7f" * keys)
            time.sleep(0.3)
        echoes = [(seen[prefix] - at) * 1000 for prefix, at in zip(prefixes, typed, strict=True)]
        times = [chunk.at for chunk in recording.chunks[chunks:] if note.first <= chunk.at <= note.last]
        gap = max((later - one for one, later in itertools.pairwise([note.first, *times, note.last])), default=0.0)
        return Stream(note, asked, seen.get(first, seen[last]), seen[last], used, wrote, echoes, gap * 1000)

    def type_idle(self, keys: int) -> list[float]:
        """Type letters while nothing else happens; return the milliseconds to each echo."""
        typed = self._type_slowly(keys, after=time.monotonic())
        seen: dict[str, float] = {}
        prefixes = [_KEYS[: number + 1] for number in range(keys)]
        self.recording.until(lambda: len(self.recording.watch(prefixes, seen)) == keys, "the keys")
        self.recording.type("\x7f" * keys)
        time.sleep(0.5)
        return [(seen[prefix] - at) * 1000 for prefix, at in zip(prefixes, typed, strict=True)]

    def answers(self, count: int) -> list[Note]:
        """Wait until the engine has given this many answers in total; return the newest."""
        self.recording.until(lambda: len(read_notes(self._notes)) >= count, f"{count} answers", timeout_s=90)
        return read_notes(self._notes)

    @property
    def answered(self) -> int:
        return len(read_notes(self._notes))

    def quit(self) -> float:
        """End the program; return the milliseconds."""
        at = self.recording.type("\x11")
        return (self.recording.wait_for_end() - at) * 1000

    def _type_slowly(self, keys: int, *, after: float) -> list[float]:
        typed = []
        for number in range(keys):
            time.sleep(max(0.0, after + number * _KEY_EVERY_S - time.monotonic()))
            typed.append(self.recording.type(_KEYS[number]))
        return typed

    def _noted(self, name: str) -> Note:
        found: list[Note] = []

        def is_noted() -> bool:
            found[:] = [note for note in read_notes(self._notes) if note.name == name]
            return bool(found)

        self.recording.until(is_noted, f"the answer {name}", timeout_s=90)
        return found[0]


def command(folder: Path, *, is_app: bool) -> list[str]:
    """Return the command of the app, or of the bare chat, with its data in `folder`."""
    words = ["benchmarks.streaming.app"] if is_app else ["benchmarks.bare_chat", str(folder / "bare")]
    return [sys.executable, "-m", *words]


def session_env(folder: Path, *, is_app: bool) -> dict[str, str]:
    """Return the environment of a program with its data in `folder`."""
    return {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "VLMTUI_DATA_DIR": str(folder / "app"),
        "VLMTUI_KEEP_ALIVE": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")])),
        NOTES: str(folder / ("app.notes" if is_app else "bare.notes")),
    }


@contextmanager
def session(
    folder: Path, *, is_app: bool, size: tuple[int, int] = (120, 40), link: Link | None = None, resume: bool = False
) -> Iterator[Session]:
    """Start the app or the bare chat with data in `folder`, and wait until it is ready for a question."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--model", "shapes", "--graphics", "halfcell", *(["--continue"] * resume)] if is_app else []
    env = session_env(folder, is_app=is_app)
    with Recording([*command(folder, is_app=is_app), *options], env, size=size, link=link) as recording:
        recording.wait_for("● shapes" if is_app else "ready")
        time.sleep(1.5)
        yield Session(recording, Path(env[NOTES]), is_app=is_app)


def chat(folder: Path, *, is_app: bool) -> Figures:
    """Play a session at 120×40, and return all figures in which the two programs are compared."""
    with session(folder, is_app=is_app) as one:
        idle_echo = one.type_idle(12)
        short = [one.ask(20, 100) for _ in range(5)]
        hundred = one.ask(1000, 100)
        typing = one.ask(450, 100, keys=28)
        slow, fast, unpaced = one.ask(80, 20), one.ask(1000, 1000), one.ask(3000, 0)
        ended = one.quit()
    return {
        "CPU s per 1,000 at 20 tok/s": slow.cpu_s * 1000 / 80,
        "CPU s per 1,000 at 100 tok/s": hundred.cpu_s,
        "CPU s per 1,000 at 1,000 tok/s": fast.cpu_s,
        "bytes a token at 100 tok/s": hundred.bytes / 1000,
        "longest gap at 100 tok/s, ms": hundred.gap,
        "key echo idle p95, ms": p95(idle_echo),
        "key echo streaming p50, ms": statistics.median(typing.echoes),
        "key echo streaming p95, ms": p95(typing.echoes),
        **_beginnings(short),
        "last token of 3,000, ms": (unpaced.last - unpaced.note.last) * 1000,
        "quit, ms": ended,
    }


def begin(folder: Path, *, is_app: bool) -> Figures:
    """Five short answers, as in `chat`: from Enter to the engine, and from its first token to the screen."""
    with session(folder, is_app=is_app) as one:
        return _beginnings([one.ask(20, 100) for _ in range(5)])


def _beginnings(streams: Sequence[Stream]) -> Figures:
    return {
        "Enter to the engine, ms": statistics.median((each.note.came - each.asked) * 1000 for each in streams),
        "first token to the screen, ms": statistics.median((each.first - each.note.first) * 1000 for each in streams),
    }


def large(folder: Path, *, is_app: bool) -> Figures:
    """An answer on a screen of 200×60."""
    with session(folder, is_app=is_app, size=(200, 60)) as one:
        stream = one.ask(500, 100)
    return {"CPU s per 1,000, 200×60": stream.cpu_s * 2, "bytes a token, 200×60": stream.bytes / 500}


def slow_link(folder: Path, *, is_app: bool) -> Figures:
    """An answer over a connection of 10 kB/s and 200 ms round trip."""
    with session(folder, is_app=is_app, link=Link(10_000, 0.1)) as one:
        stream = one.ask(400, 100, keys=20)
    return {
        "key echo p95 over 10 kB/s, ms": p95(stream.echoes),
        "last token over 10 kB/s, ms": (stream.last - stream.note.last) * 1000,
    }


def p95(values: list[float]) -> float:
    """Return the 95th percentile."""
    return sorted(values)[max(0, round(0.95 * len(values)) - 1)]


def lanes(folder: Path) -> Figures:
    """Two and eight simultaneous answers of 1,000 tokens at 100 tokens per second, against one; then an idle second.
    Idle is measured 12 s after the start, when the search for old deleted conversations is over."""
    with session(folder, is_app=True) as one:
        recording = one.recording
        alone = one.ask(1000, 100).cpu_s
        recording.type("\x1b[21~")  # F10
        recording.wait_for("Send both")
        time.sleep(1.0)
        both = _cpu_of(one, "\x12", 2)
        recording.type("\x1b")
        recording.wait_for("Message, or /")
        time.sleep(1.0)
        recording.type("/fan seed=1,2,3,4,5,6,7,8")
        eight = _cpu_of(one, "\r", 8)
        recording.type("\x1b")
        recording.wait_for("Message, or /")
        time.sleep(2.0)
        written, wakeups = recording.written, recording.wakeups
        time.sleep(_IDLE_S)
        idle = (recording.written - written) / _IDLE_S, (recording.wakeups - wakeups) / _IDLE_S
        one.quit()
    return {
        "compare: CPU against one answer": both / alone,
        "fan-out of eight: CPU against one answer": eight / alone,
        "idle bytes a second": idle[0],
        "idle wake-ups a second": idle[1],
    }


def _cpu_of(one: Session, keys: str, answers: int) -> float:
    """Return the seconds of processor time of the answers that these keys start."""
    before, cpu_s = one.answered, one.recording.cpu_s
    one.recording.type(keys)
    one.answers(before + answers)
    time.sleep(1.0)
    return one.recording.cpu_s - cpu_s


def memory(folder: Path) -> Figures:
    """Memory with a conversation of 200 turns and 50 images against an empty chat; the median of three."""
    return {"memory with 200 turns, 50 images": statistics.median(_memory(folder / str(number)) for number in range(3))}


def _memory(folder: Path) -> float:
    with session(folder / "empty", is_app=True) as one:
        time.sleep(_STARTED_S)
        empty = one.recording.memory
        one.quit()
    fill(folder / "full" / "app", 200, 50)
    with session(folder / "full", is_app=True, resume=True) as one:
        one.recording.wait_for("Answer 99.")
        time.sleep(_STARTED_S)
        full = one.recording.memory
        one.quit()
    return full / empty
