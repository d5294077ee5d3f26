"""Demos of the real app with the real bundled model, as asciinema casts (version 2) in `screenshots/`.

`make casts`, or `python -m tools.casts [chat compare plain]`. `asciinema play screenshots/chat.cast` shows one; the
format is docs.asciinema.org/manual/asciicast/v2. A pause is at most a second and a half long; a load runs fast.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.terminal import Terminal, search_paths
from vlmtui.engine.local.host import WorkerHost
from vlmtui.paths import Paths, bundled

OUT = Path(__file__).parents[1] / "screenshots"
COLUMNS, ROWS = 80, 24
_PAUSE_MAX_S, _LOADING_PAUSE_MAX_S = 1.5, 0.02
_KEY_S = 0.06
_READ_S = 1.5
"""Seconds in which a viewer reads new text."""
_LOAD_S = 600.0


class Recorder(Terminal):
    """A terminal that records the time of each piece of output."""

    def __init__(self, command: Sequence[str], *, env: dict[str, str], cwd: str) -> None:
        self.events: list[tuple[float, str]] = []
        self.loading: tuple[float, float] = (0.0, 0.0)
        """The times at which a load began and ended; its pauses are cut shortest."""
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        super().__init__(command, env=env, columns=COLUMNS, rows=ROWS, cwd=cwd)

    def _read(self, timeout: float) -> bool:
        before = len(self.raw)
        has_come = super()._read(timeout)
        if has_come and (text := self._decode(bytes(self.raw[before:]))):
            self.events.append((time.monotonic(), text))
        return has_come

    def write(self, text: str) -> None:
        """Type with a person's pauses."""
        for character in text:
            self.type(character)
            self.read(_KEY_S)

    def look(self) -> None:
        """Pause for the viewer to read."""
        until = time.monotonic() + _READ_S
        while time.monotonic() < until:
            self.read(0.1)

    def save(self, path: Path, title: str) -> None:
        """Write the cast with shortened pauses."""
        head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": title, "env": {"TERM": "xterm-256color"}}
        lines, at, before = [json.dumps(head)], 0.0, self.events[0][0]
        for came, text in self.events:
            is_loading = self.loading[0] < before and came < self.loading[1]
            most = _LOADING_PAUSE_MAX_S if is_loading else _PAUSE_MAX_S
            at, before = at + min(came - before, most), came
            lines.append(json.dumps([round(at, 3), "o", _elsewhere(text)], ensure_ascii=False))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{path.name}: {len(lines) - 1} events, {at:.0f} s, {path.stat().st_size:,} bytes", flush=True)


def _elsewhere(text: str) -> str:
    """Replace the checkout's folder by another of the same length, for privacy."""
    for folder in (str(OUT.parent), str(Path(sys.prefix).parent), tempfile.gettempdir()):
        text = text.replace(folder, "/home/user/vlmtui".ljust(len(folder), "-")[: len(folder)])
    return text


def _is_ready(text: str) -> bool:
    return "Message, or / for commands" in text and "● " in text


def chat(terminal: Recorder) -> None:
    """Pick the model, attach an image, ask."""
    terminal.wait_for("No model is chosen")
    terminal.press("enter")
    terminal.wait_for("Pick a model")
    terminal.look()
    terminal.press("enter")
    began = time.monotonic()
    terminal.wait_for(_is_ready, timeout=_LOAD_S)
    terminal.loading = (began, time.monotonic())
    terminal.look()
    terminal.paste("three-shapes.png")
    terminal.wait_for("three-shapes.png")
    terminal.write("What is in this image?")
    terminal.look()
    terminal.press("enter")
    terminal.wait_for("stop <|im_end|>", timeout=_LOAD_S)
    terminal.look()
    terminal.press("ctrl+q")


def compare(terminal: Recorder) -> None:
    """Compare the chat template with a raw prompt."""
    terminal.wait_for(_is_ready, timeout=_LOAD_S)
    terminal.paste("circle.png")
    terminal.wait_for("circle.png")
    terminal.write("What is in this image?")
    terminal.type("\x18c")  # Ctrl+X c
    terminal.wait_for("Chat template", timeout=_LOAD_S)
    terminal.wait_for("<|im_start|>", timeout=_LOAD_S)
    terminal.look()
    terminal.press("ctrl+r")
    terminal.wait_for("stop <|im_end|>", timeout=_LOAD_S)
    terminal.look()
    for _ in range(2):
        terminal.press("f6")
        terminal.look()
    terminal.press("escape")
    terminal.wait_for("Message, or / for commands")
    terminal.press("ctrl+q")


def plain(terminal: Recorder) -> None:
    """Plain mode: attach, ask, ask again."""
    terminal.wait_for(lambda text: text.rstrip().endswith(">"), timeout=_LOAD_S)
    for line, wanted in (
        ("/attach two-shapes.png", "]>"),
        ("What is in this image?", "tok/s"),
        ("/retry", "answer 2/2"),
    ):
        terminal.write(line)
        terminal.type("\r")

        def has_come(_: str, wanted: bytes = wanted.encode()) -> bool:
            return wanted in terminal.raw  # a word may be wrapped on the screen

        terminal.wait_for(has_come, timeout=_LOAD_S)
        terminal.look()
    terminal.type("\x04")


SCENES: dict[str, tuple[list[str], Callable[[Recorder], None], str]] = {
    "chat": ([], chat, "vlmtui: pick a model, attach a picture, ask"),
    "compare": (["--model", "shapes"], compare, "vlmtui: the chat template against a raw prompt"),
    "plain": (["--plain", "--model", "shapes"], plain, "vlmtui --plain: the chat in lines"),
}


@contextmanager
def place() -> Iterator[tuple[Path, dict[str, str]]]:
    """A home folder with the sample images, and its environment. Its workers end with it."""
    with tempfile.TemporaryDirectory(prefix="v") as folder:
        home = Path(folder) / "home"
        shutil.copytree(bundled("samples"), home)
        environment = {"HOME": str(home), **search_paths(), "VLMTUI_DATA_DIR": str(Path(folder) / "data")}
        try:
            yield home, environment
        finally:
            asyncio.run(_stop(Paths.below(Path(folder) / "data")))


async def _stop(paths: Paths) -> None:
    host = WorkerHost(paths)
    for worker in await host.find_all():
        await host.stop(worker.endpoint)


def main(*names: str) -> None:
    with place() as (home, environment):
        environment |= {"VLMTUI_GRAPHICS": "halfcell"}
        for name in names or SCENES:
            words, scene, title = SCENES[name]
            command = [sys.executable, "-m", "vlmtui", *words]
            with Recorder(command, env=environment, cwd=str(home)) as terminal:
                scene(terminal)
                terminal.wait_for_end()
                terminal.save(OUT / f"{name}.cast", title)


if __name__ == "__main__":
    main(*sys.argv[1:])
