"""The engine's log, live."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Static

from vlmtui.session.engine_controller import EngineController
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.messages import EngineChanged, EngineLogGrew
from vlmtui.ui.models.log_tail import LogTail, log_line
from vlmtui.ui.widgets.footer_bar import FooterBar


class LogScreen(Screen[None]):
    """The newest lines of the engine's log."""

    CSS_PATH = "log.tcss"
    SCOPE = "log"
    BINDINGS = bindings(SCOPE)

    def __init__(self, engine_controller: EngineController) -> None:
        super().__init__()
        self.engine_controller = engine_controller

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static("Engine log", id="title")
            yield Static(id="model", markup=False)
            yield Static(id="count")
        yield Static("The log is empty so far.", id="empty")
        yield LogTail(wrap=True, id="lines")
        yield FooterBar()

    def on_mount(self) -> None:
        self.query_one(LogTail).focus()
        self._refresh()

    @on(EngineLogGrew)
    @on(EngineChanged)
    def _refresh(self) -> None:
        controller = self.engine_controller
        self.query_one(LogTail).show(controller.log)
        name = one_line(controller.model.spec.name) if controller.model else "no engine"
        self.query_one("#model", Static).update(f"{name} · {controller.state}")
        self.query_one("#count", Static).update(f"{controller.log.total:,} lines")
        self.query_one("#empty").display = controller.log.total == 0

    def action_close(self) -> None:
        self.dismiss()

    def action_follow(self) -> None:
        """Go to the newest line, and follow new ones."""
        self.query_one(LogTail).anchor()

    def action_oldest(self) -> None:
        self.query_one(LogTail).scroll_home(animate=False)

    def action_copy(self) -> None:
        """Copy all lines in memory."""
        lines = [log_line(line) for line in self.engine_controller.log.since(0)]
        self.app.copy_to_clipboard("\n".join(lines))
        self.notify(f"Copied {len(lines):,} lines.", markup=False)
