"""What to do next, at the top of a screen."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.widgets import Static

from vlmtui.session.tour import END, STEPS, Tour
from vlmtui.ui.keys import with_keys

_WAITING = "The bundled model is loading, which takes about half a minute. The first step comes with the chat."


class TourPanel(Static):
    """The step to do now: its number, its title, and how to do it."""

    DEFAULT_CSS = """
    TourPanel {
        dock: top;
        width: 100%;
        height: auto;
        padding: 0 1;
        background: $panel;
        color: $foreground;
        border-left: outer $accent;
    }
    """

    def __init__(self, tour: Tour, *, waits: bool) -> None:
        """`waits`: whether the model has to be loaded before the next step."""
        super().__init__(markup=False)
        self._tour = tour
        self._waits = waits
        self._unsubscribe: Callable[[], None] = lambda: None

    def on_mount(self) -> None:
        self._unsubscribe = self._tour.subscribe(self._show)
        self._show()

    def on_unmount(self) -> None:
        self._unsubscribe()

    def _show(self) -> None:
        step, done = self._tour.step, self._tour.done
        over = f"✓ {STEPS[done - 1].title}. " if done else ""
        if step is None:
            head, text = f"Tour: all {len(STEPS)} steps are done", END
        else:
            head, text = f"Tour, step {done + 1} of {len(STEPS)}: {step.title}", step.text
        told = _WAITING if self._waits else with_keys(self.app, text)
        self.update(Content.assemble((head, "bold $accent"), "\n", (over, "$success"), told))
