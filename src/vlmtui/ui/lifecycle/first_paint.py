"""What makes the first paint quick: modules that the last start kept are used until then, and completed afterwards."""

from __future__ import annotations

from typing import Any

from textual.app import App

from vlmtui.start_code import this_start


def first_paint_ended(app: App[Any]) -> None:
    """Keep what this start had to find by itself, for the next one."""
    if (start := this_start()) is not None:
        start.end()
        if not start.is_complete:
            app.run_worker(start.complete, thread=True, group="start-code", exit_on_error=False)
