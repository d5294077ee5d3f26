"""What the engine does and writes, live: its metrics and its log."""

from __future__ import annotations

from contextlib import aclosing, suppress

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.events import Resize
from textual.widgets import Static

from vlmtui.domain.capabilities import lack
from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError
from vlmtui.session.engines import EngineController, EngineMeter
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.messages import EngineChanged, EngineLogGrew
from vlmtui.ui.models.engine_panel import EnginePanel
from vlmtui.ui.models.log_view import LogView, log_line
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.search_bar import SearchBar, SearchScreen

_BESIDE_COLUMNS = 120
"""Terminals this wide show the metrics beside the log, others above it."""


class LogScreen(SearchScreen):
    """The engine's metrics of the last minutes, and the newest lines of its log."""

    CSS_PATH = "log.tcss"
    SCOPE = "log"
    BINDINGS = bindings(SCOPE)

    def __init__(self, engine_controller: EngineController) -> None:
        super().__init__()
        self.engine_controller = engine_controller
        self._meter = EngineMeter()
        self._measured: Engine | None = None

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static("Engine", id="title")
            yield Static(id="model", markup=False)
            yield Static(id="count")
        with Container(id="both"):
            with VerticalScroll(id="metrics", can_focus=False):
                yield EnginePanel()
            with Vertical(id="log"):
                yield Static("The log is empty so far.", id="empty")
                yield LogView(id="lines")
        yield SearchBar()
        yield FooterBar()

    def on_mount(self) -> None:
        self.query_one(LogView).focus()
        self._refresh()

    @property
    def searched(self) -> LogView:
        return self.query_one(LogView)

    @on(EngineLogGrew)
    @on(EngineChanged)
    def _refresh(self) -> None:
        controller = self.engine_controller
        self.query_one(LogView).show_log(controller.log)
        name = one_line(controller.model.spec.name) if controller.model else "no engine"
        self.query_one("#model", Static).update(f"{name} · {controller.state}")
        total = controller.log.total
        self.query_one("#count", Static).update(f"{total:,} line{'' if total == 1 else 's'}")
        self.query_one("#empty").display = controller.log.total == 0
        engine = controller.engine if controller.is_loaded else None
        if engine is not self._measured:
            self._measured = engine
            self._meter.clear()
            self._measure()
        self._show_metrics()

    @work(group="metrics", exclusive=True, exit_on_error=False)
    async def _measure(self) -> None:
        """Follow the engine's metrics until it changes."""
        engine = self._measured
        if engine is None or lack(engine.info, "metrics"):
            return
        with suppress(VlmtuiError):  # that it is gone, the screen's heading says
            async with aclosing(engine.metrics()) as found:
                async for told in found:
                    self._meter.add(told)
                    self._show_metrics()

    def _show_metrics(self) -> None:
        info = self.engine_controller.info
        lacking = "No engine is loaded." if self._measured is None else lack(info, "metrics")
        self.query_one(EnginePanel).show(self._meter, lacking)

    def on_resize(self, event: Resize) -> None:
        self.set_class(event.size.width >= _BESIDE_COLUMNS, "-beside")

    def action_metrics(self) -> None:
        """Show or hide the metrics."""
        panel = self.query_one("#metrics")
        panel.display = not panel.display

    def action_close(self) -> None:
        self.dismiss()

    def action_follow(self) -> None:
        """Go to the newest line, and follow new ones."""
        self.query_one(LogView).show_end()

    def action_oldest(self) -> None:
        self.query_one(LogView).scroll_home(animate=False)

    def action_copy(self) -> None:
        """Copy all lines in memory."""
        lines = [log_line(line) for line in self.engine_controller.log.since(0)]
        self.app.copy_to_clipboard("\n".join(lines))
        self.notify(f"Copied {len(lines):,} lines.", markup=False)
