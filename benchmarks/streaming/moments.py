"""A session of the app in a pseudo-terminal, decoded by two emulators and compared with Textual's own full render.

`python -m benchmarks.streaming.moments [--moments N] [--seed N]`. Answers stream, text is typed, the transcript
scrolls, screens open and close. At random moments (200) the app writes down how many bytes it has written, and
Textual's rendering of the whole screen. Fed with the bytes until then, pyte and tmux must show the same cells as for
that rendering. Prints how many moments were equal; exit code 1 unless all were.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import msgspec

from benchmarks.streaming import sessions
from benchmarks.streaming.moments_app import Moment
from benchmarks.streaming.recording import Recording
from tests.support.emulators import Pyte, Tmux, differences

SIZE = (120, 40)
_KEYS = (
    "\x1b[5~",
    "\x1b[5~",
    "\x1b[6~",
    "\x1b[6~",
    "v",
    "w",
    "k",
    "\x7f",
    "\x1b[A",
    "\x1b[B",
    "\x1b",
    "\x1bOP",
    "\x1b",
)
"""Paging, letters, the message cursor, the help, and Esc."""


def record(folder: Path, *, moments: int, seed: int, limit_s: float = 900.0) -> tuple[bytes, list[Moment]]:
    """Play a session until this many moments are recorded. Return the app's output, and the moments."""
    notes, random = folder / "moments", Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.streaming.moments_app", str(notes), str(seed)]
    env = sessions.session_env(folder, is_app=True)
    options = ["--model", "shapes", "--graphics", "halfcell"]
    deadline = time.monotonic() + limit_s
    with Recording([*command, *options], env, size=SIZE) as app:
        app.wait_for("● shapes")
        number = 0
        while len(found := read_moments(notes)) < moments:
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {len(found)} moments in {limit_s:.0f} s")
            number += 1
            app.type(f"say 400 120 m{number}z")
            time.sleep(0.3)
            app.type("\r")
            time.sleep(0.6)  # a key would lay the transcript out, but the answer should grow ahead of its layout
            for _ in range(30):
                time.sleep(random.uniform(0.02, 0.3))
                app.type(random.choice(_KEYS))
            app.type("\x1b")
            time.sleep(0.3)
            app.type("\x1b\x15")
            time.sleep(0.3)
        app.type("\x11")
        app.wait_for_end()
        written = b"".join(chunk.data for chunk in app.chunks)
    return written, found[:moments]


def read_moments(notes: Path) -> list[Moment]:
    """Return the moments recorded so far."""
    lines = notes.read_bytes().split(b"\n")[:-1] if notes.exists() else []
    return [msgspec.json.decode(line, type=Moment) for line in lines]


def equal_moments(written: bytes, moments: list[Moment], terminal: Pyte | Tmux, anew: Pyte | Tmux) -> list[str]:
    """Return the differences by the number of the moment; empty: all are equal."""
    found, at = [], 0
    for number, moment in enumerate(moments):
        terminal.feed(written[at : moment.written].decode(errors="replace"))
        at = moment.written
        anew.feed(f"\x1b[m\x1b[H\x1b[2J{moment.screen}")
        if differs := differences(terminal.cells(), anew.cells()):
            found.append(f"moment {number}: {len(differs)} cells, {differs[:3]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written, moments = record(folder / "session", moments=options.moments, seed=options.seed)
        shown = {"pyte": equal_moments(written, moments, Pyte(SIZE), Pyte(SIZE))}
        for side in ("stream", "anew"):
            (folder / side).mkdir()
        with Tmux(SIZE, folder / "stream") as terminal, Tmux(SIZE, folder / "anew") as anew:
            shown["tmux"] = equal_moments(written, moments, terminal, anew)
    for emulator, differing in shown.items():
        print(
            f"{emulator}: {len(moments) - len(differing)} of {len(moments)} moments equal", *differing[:5], sep="\n  "
        )
    print(f"{len(written):,} bytes")
    return 1 if any(shown.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
