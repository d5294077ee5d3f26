"""The app of `benchmarks.streaming.app`, which at random moments writes down Textual's rendering of the screen.

`python -m benchmarks.streaming.moments_app FILE SEED [options of vlmtui]`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from textual._compositor import Compositor, LayoutUpdate
from textual.app import App
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from vlmtui.ui.terminal.driver import NonBlockingDriver

_ROUNDS = 3
"""Rounds of the event loop in which nothing may be drawn: a message that is being handled is in no queue."""


class Moment(msgspec.Struct, frozen=True):
    """The number of bytes written so far, and a full render."""

    written: int
    """Bytes."""
    screen: str


def full_render(screen: Screen[Any]) -> str:
    """Return the whole screen as Textual's own compositor writes it."""
    compositor = screen._compositor
    chops = Compositor._render_chops(compositor, compositor.size.region, lambda y: True)
    strips: list[Iterable[Strip]] = [line.values() for line in chops]
    return LayoutUpdate(strips, compositor.size.region).render_segments(screen.app.console)


def is_settled(screen: Screen[Any]) -> bool:
    """Return True if all changes are drawn."""
    app: App[Any] = screen.app
    if app._batch_count or screen._dirty_widgets or screen._compositor._dirty_regions:
        return False
    driver = app._driver
    if isinstance(driver, NonBlockingDriver) and driver._layer._changed:  # the terminal is behind
        return False
    widgets: list[Widget] = [screen, *(node for node in screen.walk_children() if isinstance(node, Widget))]
    pumps: list[MessagePump] = [app, *widgets]
    return not any(_waits(widget) for widget in widgets if widget.display) and all(
        pump._message_queue.empty() for pump in pumps
    )


def _waits(widget: Widget) -> bool:
    return any((widget._repaint_required, widget._layout_required, widget._scroll_required, widget._next_callbacks))


def main() -> None:
    file, random = Path(sys.argv[1]), Random(int(sys.argv[2]))
    del sys.argv[1:3]
    written, notes = 0, file.open("ab", buffering=0)
    write, start = NonBlockingDriver.write, NonBlockingDriver.start_application_mode

    def counted(driver: NonBlockingDriver, data: str) -> None:
        nonlocal written
        written += len(data.encode())
        write(driver, data)

    async def watch(driver: NonBlockingDriver) -> None:
        app, noted = driver._app, -1
        while True:
            await asyncio.sleep(random.uniform(0.01, 0.12))
            if not app.is_running or not app.screen_stack or written == noted:
                continue
            before = written
            for _ in range(_ROUNDS):
                await asyncio.sleep(0)
                if written != before or not is_settled(app.screen):
                    break
            else:
                moment, noted = Moment(before, full_render(app.screen)), written
                notes.write(msgspec.json.encode(moment) + b"\n")

    def started(driver: NonBlockingDriver) -> None:
        start(driver)
        tasks.add(asyncio.get_running_loop().create_task(watch(driver)))

    tasks: set[asyncio.Task[None]] = set()
    setattr(NonBlockingDriver, "write", counted)  # noqa: B010 - mypy takes no other method there
    setattr(NonBlockingDriver, "start_application_mode", started)  # noqa: B010
    from benchmarks.streaming.app import main as app_main

    app_main()


if __name__ == "__main__":
    main()
