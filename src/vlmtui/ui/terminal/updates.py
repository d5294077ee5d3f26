"""The updates of an app's screens, on their way to the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual._compositor import CompositorUpdate

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen


class ScreenUpdates:
    """Shows updates through the frame layer where the driver has one, and sees to it that none is lost."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._is_one_left_out = False
        """Whether an update was rendered while a batch held it back."""

    def show(self, screen: Screen[Any], update: object) -> bool:
        """Show an update. False if Textual is to write it, or to leave it out."""
        app = self._app
        if app._batch_count and update is not None:
            self._is_one_left_out = True
            return False
        shows = getattr(app._driver, "show", None)
        is_shown = app._running and not app._closed and not app.is_headless
        return shows is not None and is_shown and isinstance(update, CompositorUpdate) and shows(screen, update)

    def batch_ended(self) -> None:
        """Draw what a batch held back. Textual waits for the screen's next message, and forgets an update that was
        rendered meanwhile."""
        app = self._app
        if app._batch_count or not app._running:
            return
        if self._is_one_left_out:
            self._is_one_left_out = False
            app.screen.refresh()
        for screen in app.screen_stack:
            screen.check_idle()
