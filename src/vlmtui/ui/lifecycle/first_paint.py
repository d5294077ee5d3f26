"""What makes the first paint quick: what the last start kept is used until then, and completed afterwards."""

from __future__ import annotations

from typing import Any

from textual.app import App

from vlmtui.start_code import this_start
from vlmtui.ui.terminal.start_styles import StartStyles


class FirstPaint:
    """The app's start until its first screen is painted."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._styles = StartStyles()

    def begin(self) -> None:
        """Use the styles that an earlier start parsed. The app runs in a terminal next."""
        self._styles.fill(self._app.stylesheet)

    def end(self) -> None:
        """Keep what this start had to make anew, for the next one."""
        if (start := this_start()) is not None:
            start.end()
            if not start.is_complete:
                self._app.run_worker(start.complete, thread=True, group="start-code", exit_on_error=False)
        if not self._app.is_headless:
            self._styles.keep(self._app.stylesheet)
