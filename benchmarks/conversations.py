"""The cost of a conversation of 2,000 turns and 500 images in the app, against one of 20 turns and 5 images.

`python -m benchmarks.conversations [--rounds N]`. The app runs headless on an engine that does nothing. Both stores are
created first, with small images, and measured in turn, each in its own process. Prints medians and ratios of: opening
the conversation until its newest turns are on the screen (as `--resume` does), scrolling up a page, a search, the
memory after 150 pages, and the maximum number of widgets. Budgets: 2.5 for opening (which also reads the context of the
next message), 1.5 for a page, 2.0 for the memory, 100 widgets.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from textual.pilot import Pilot
from textual.widgets import Input

from tests.support.scripted_engine import ScriptedHost
from vlmtui.config.settings import Settings
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.generation import Timings, Usage
from vlmtui.media.stage import stage
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.session.async_store import AsyncStore
from vlmtui.store.records import AnswerData, GenerationRecord, Statistics
from vlmtui.store.store import Store
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.chat.transcript import Transcript
from vlmtui.ui.conversations import ConversationListView, ConversationsScreen
from vlmtui.ui.services import ExitReport, Services
from vlmtui.ui.terminal.graphics import Graphics

SHORT, LONG = (20, 5), (2_000, 500)
"""Turns and images."""
OPEN_BUDGET, PAGE_BUDGET, MEMORY_BUDGET, WIDGETS_BUDGET = 2.5, 1.5, 2.0, 100
_SIZE = (120, 40)
_PAGES = 150
"""Maximum number of pages to scroll up."""
_ANSWER = "# What is there\n\nA **red** circle at the left.\n\n- one\n- two\n\n```python\nprint('shape')\n```\n"
_COMPLETE = AnswerData(
    state="complete",
    statistics=Statistics(
        usage=Usage(prompt_tokens=40, completion_tokens=30),
        timings=Timings(ttft_s=0.1, total_s=0.5),
        finish_reason="stop",
    ),
)


def fill(folder: Path, turns: int, images: int) -> None:
    """Create a store with one conversation, in which all images differ."""
    paths = Paths.below(folder)
    store = Store.open(paths.data, paths.media)
    conversation = store.new_conversation(title=f"{turns} turns", model="shapes")
    every = turns // 2 // images
    folder.mkdir(parents=True, exist_ok=True)
    with store.together():
        leaf = None
        for number in range(turns // 2):
            items = []
            if number % every == 0:
                path = folder / f"picture {number}.png"
                Image.new("RGB", (64, 48), (number % 256, number // 256 * 50, 90)).save(path)
                items = [stage(path, paths.media)]
            asked = store.add_turn(conversation, leaf, user_turn(f"question {number} of many words", items))
            leaf = store.begin_answer(asked, GenerationRecord(model="shapes", prompt=f"question {number} " * 20))
            store.write_answer(leaf, f"{_ANSWER}\nAnswer {number}.", _COMPLETE)
    store.close()


async def until(pilot: Pilot[ExitReport | None], condition: Callable[[], bool], timeout_s: float = 60) -> None:
    """Let the app run until the condition holds. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it never came to hold; the screen is {pilot.app.screen}")
        await asyncio.sleep(0.001)


async def measure(folder: Path, turns: int) -> dict[str, float]:
    """Return milliseconds, bytes and widgets of one run of the app."""
    paths = Paths.below(folder)
    app = VlmtuiApp(
        Services(
            paths=paths,
            registry=Registry.bundled(),
            host=ScriptedHost(),
            settings=Settings(graphics="halfcell"),
            store=AsyncStore(paths),
            keep_alive_s=1,
            initial_model="shapes",
        )
    )
    app.graphics = Graphics("halfcell")
    found: dict[str, float] = {}
    async with app.run_test(size=_SIZE) as pilot:
        await until(pilot, lambda: isinstance(app.screen, ChatScreen))
        await pilot.pause()
        conversation = (await app.services.store.run(lambda store: store.conversations()))[0].conversation.id
        transcript = app.screen.query_one(Transcript)
        started = time.perf_counter()
        app.stored.open(conversation)
        await until(pilot, lambda: f"Answer {turns // 2 - 1}." in _text(app))
        found["open, ms"] = _milliseconds(started)
        await pilot.pause()
        pages, widgets = await _page_through(app, pilot, transcript)
        found["a page up, ms"] = statistics.median(pages)
        found["widgets"] = widgets
        found["memory, MiB"] = _memory() / 2**20
        found["search, ms"] = await _search(app, pilot, f"{turns // 2 - 1}")
    return found


async def _page_through(
    app: VlmtuiApp, pilot: Pilot[ExitReport | None], transcript: Transcript
) -> tuple[list[float], int]:
    """Return the milliseconds of each page up, and the maximum number of widgets."""
    pages: list[float] = []
    widgets = 0
    while len(pages) < _PAGES and "question 0 of" not in _text(app):
        shown, started = _body(app), time.perf_counter()
        transcript.scroll_page_up()
        await until(pilot, lambda shown=shown: _body(app) != shown)  # type: ignore[misc]
        pages.append(_milliseconds(started))
        await pilot.pause(0.06)
        widgets = max(widgets, len(app.screen.query("*")))
    return pages, widgets


async def _search(app: VlmtuiApp, pilot: Pilot[ExitReport | None], words: str) -> float:
    """Return the milliseconds from typing a word to its conversation in the list."""
    app.run_action_id("conversations")
    await until(pilot, lambda: isinstance(app.screen, ConversationsScreen) and app.screen.is_mounted)
    listed = app.screen.query_one(ConversationListView)
    await until(pilot, lambda: bool(listed.rows))
    started = time.perf_counter()
    app.screen.query_one("#search", Input).value = words
    await until(pilot, lambda: bool(listed.rows) and listed.rows[0].snippet is not None)
    return _milliseconds(started)


def _milliseconds(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def _memory() -> int:
    """Return the process's own memory in bytes (PSS where the system reports it)."""
    import psutil

    info = psutil.Process().memory_full_info()
    return int(getattr(info, "pss", 0) or info.rss)


def _text(app: VlmtuiApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def _body(app: VlmtuiApp) -> str:
    """Return the screen without the scrollbar."""
    return "\n".join(line[: _SIZE[0] - 4] for line in _text(app).splitlines())


def measured(folder: Path, turns: int) -> dict[str, float]:
    """Run `measure` in its own process."""
    command = [sys.executable, "-m", "benchmarks.conversations", "--one", str(folder), str(turns)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("FOLDER", "TURNS"), help="measure one store, and print it as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asyncio.run(measure(Path(options.one[0]), int(options.one[1])))))
        return 0
    with tempfile.TemporaryDirectory() as name:
        short, long = Path(name) / "short", Path(name) / "long"
        fill(short, *SHORT)
        fill(long, *LONG)
        rounds = [(measured(short, SHORT[0]), measured(long, LONG[0])) for _ in range(options.rounds)]
    ratios: dict[str, float] = {}
    for what in rounds[0][0]:
        few, many = (statistics.median(one[side][what] for one in rounds) for side in (0, 1))
        ratios[what] = many / few
        print(f"{what:14} {SHORT[0]} turns {few:8.1f}, {LONG[0]} turns {many:8.1f}, ratio {ratios[what]:.2f}")
    widgets = max(long["widgets"] for _, long in rounds)
    budgets = {"open, ms": OPEN_BUDGET, "a page up, ms": PAGE_BUDGET, "memory, MiB": MEMORY_BUDGET}
    print(f"budgets: {budgets}, {WIDGETS_BUDGET} widgets")
    within = all(ratios[what] <= budget for what, budget in budgets.items())
    return 0 if within and widgets <= WIDGETS_BUDGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
