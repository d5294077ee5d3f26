"""The screen while a model loads: the stages, the newest lines of the engine's log, and a failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from vlmtui.domain.engine import LoadProgress, LoadStage
from vlmtui.errors import VlmtuiError
from vlmtui.registry.match import Model
from vlmtui.session.engines import AppEngines, EngineState
from vlmtui.text import one_line, visible
from vlmtui.ui.actions import bindings
from vlmtui.ui.document.blocks import TextBlock
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.keys import with_keys
from vlmtui.ui.messages import EngineChanged, EngineLogGrew, TextTyped
from vlmtui.ui.models.log import LogView
from vlmtui.ui.models.screen import size_text
from vlmtui.ui.widgets.footer_bar import FooterBar


class FailureView(Vertical):
    """Shows a `VlmtuiError`."""

    DEFAULT_CSS = """
    FailureView {
        height: auto;
        max-height: 100%;
        border-left: outer $error;
        padding: 0 2;
        .message { text-style: bold; color: $text-error; height: auto; }
        .hint, .way-back { margin-top: 1; height: auto; }
        .way-back { text-style: bold; }
        .detail { color: $muted; height: auto; max-height: 8; margin-top: 1; }
    }
    """

    def compose(self) -> ComposeResult:
        yield Static(classes="message", markup=False)
        yield Static(classes="hint", markup=False)
        yield Static(classes="way-back", markup=False)
        yield DocumentView(has_edge=False, can_focus=True, classes="detail")

    def show(self, error: VlmtuiError, way_back: str = "") -> None:
        """Show this error. `way_back`: a sentence about how to return to the previous model; empty: show none."""
        for part, text in (("message", error.message), ("hint", error.hint), ("way-back", way_back)):
            line = self.query_one(f".{part}", Static)
            line.update(visible(text))
            line.display = bool(text)
        detail = self.query_one(".detail", DocumentView)
        detail.show(TextBlock(visible(error.detail.strip())))
        detail.display = bool(error.detail.strip())


_SPINNER = "◐◓◑◒"
_FRAME_S = 0.25
_TITLE = 22
_BAR = 24


def clock_text(seconds: float) -> str:
    """Format seconds: `0:07`, `12:40`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class StageList(Static):
    """The stages of a load, with a spinner at the current stage. All stages before it count as done, as engines may
    skip some."""

    DEFAULT_CSS = "StageList { height: auto; text-wrap: nowrap; text-overflow: ellipsis; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._progress: LoadProgress | None = None
        self._began: Mapping[LoadStage, float] = {}
        """When each stage began, in seconds since the start of the load."""
        self._failed = False
        self._frame = 0

    def on_mount(self) -> None:
        if self.app.animation_level == "full":
            self.set_interval(_FRAME_S, self._turn)
        self._draw()

    def show(self, progress: LoadProgress | None, began: Mapping[LoadStage, float], *, failed: bool = False) -> None:
        """Show the progress; None: before the first stage."""
        self._progress, self._began, self._failed = progress, began, failed
        self._draw()

    def _turn(self) -> None:
        if self.screen.is_current and not self._failed:
            self._frame += 1
            self._draw()

    def _draw(self) -> None:
        self.update(Content("\n").join(map(self._line, LoadStage)))

    def _line(self, stage: LoadStage) -> Content:
        title, progress = stage.label.ljust(_TITLE), self._progress
        order = list(LoadStage)
        now = order.index(progress.stage) if progress else -1
        at = order.index(stage)
        if at < now:
            return Content.assemble(("✓ ", "$text-success"), title, (self._took(stage), "$muted"))
        if at > now or progress is None:
            return Content.styled(f"○ {title}", "$faint")
        spinner = (f"{_SPINNER[self._frame % len(_SPINNER)]} ", "$text-accent")
        mark = ("✗ ", "bold $text-error") if self._failed else spinner
        return Content.assemble(mark, (title, "bold"), _measure(progress))

    def _took(self, stage: LoadStage) -> str:
        if stage not in self._began:
            return ""
        began = self._began[stage]
        later = [at for other, at in self._began.items() if at >= began and other is not stage]
        return f"{min(later) - began:.1f} s" if later else ""


def _measure(progress: LoadProgress) -> Content:
    detail = Content.styled(one_line(progress.detail), "$muted")
    if progress.fraction is None:
        return detail
    fraction = min(max(progress.fraction, 0.0), 1.0)
    filled = round(fraction * _BAR)
    return Content.assemble(
        ("━" * filled, "$text-accent"), ("─" * (_BAR - filled), "$faint"), f" {fraction:4.0%}  ", detail
    )


_TICK_S = 1.0
_TYPED_MAX = 400
"""Maximum characters shown of text that the user types during the load; all of it is kept."""
_TYPED_LINES_MAX = 3
"""Maximum lines shown of this text."""


class LoadingScreen(Screen[None]):
    """Shows the progress of a load. To start or stop a load, the screen posts a message, which the app handles."""

    CSS_PATH = "loading.tcss"
    SCOPE = "loading"
    BINDINGS = bindings(SCOPE)

    class Loaded(Message):
        """The engine is ready, and this screen is the one that the user sees."""

    class AbortWanted(Message):
        """Stop the load, or leave after its failure, and go back to the models."""

    class FormerWanted(Message):
        """Go back to the previous model."""

    class RetryWanted(Message):
        """Load the same model again after a failure."""

    def __init__(self, engines: AppEngines, model: Model, typed: Callable[[], str]) -> None:
        """`typed`: returns the text that waits for the composer."""
        super().__init__()
        self._typed = typed
        self._clock = time.monotonic
        self.engines = engines
        self.model = model
        self._aborting = False
        self._stages = StageList(id="stages")
        self._failure = FailureView(id="failure")
        self._log_view = LogView(id="log")

    def compose(self) -> ComposeResult:
        with Vertical(id="page"):
            with Horizontal(id="top"):
                yield Static(id="what", markup=False)
                yield Static("0:00", id="elapsed")
            yield Static(self._about(), id="about", markup=False)
            yield self._stages
            yield self._failure
            yield Static("Engine log", id="log-title")
            yield self._log_view
            yield Static(id="typed", markup=False)
        yield FooterBar()

    def on_mount(self) -> None:
        self.set_interval(_TICK_S, self._tick)
        self._refresh()
        self._show_typed()

    @on(EngineChanged)
    def _engine_changed(self) -> None:
        self._refresh()

    @on(events.ScreenResume)
    def _resumed(self) -> None:
        self._refresh()

    @on(EngineLogGrew)
    def _log_grew(self) -> None:
        self._log_view.show_log(self.engines.log)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "retry" | "back":
                return self._failed
            case "former":
                return self._failed and self.engines.former is not None
            case "abort":
                return not self._failed and not self._aborting
            case _:
                return True

    def action_abort(self) -> None:
        self._aborting = True
        self._refresh()
        self.post_message(self.AbortWanted())

    def action_back(self) -> None:
        """Go back to the models after a failure."""
        self.post_message(self.AbortWanted())

    def action_former(self) -> None:
        self.post_message(self.FormerWanted())

    def action_retry(self) -> None:
        self.post_message(self.RetryWanted())

    @on(TextTyped)
    def _show_typed(self) -> None:
        line, typed = self.query_one("#typed", Static), self._typed()
        line.display = bool(typed)
        end = "\n".join(visible(typed[-_TYPED_MAX:]).split("\n")[-_TYPED_LINES_MAX:])
        line.update(f"{end}▏\nGoes into the composer when the model is ready; Enter sends it.")

    @property
    def _failed(self) -> bool:
        return self.engines.state is EngineState.DEAD and not self._aborting

    def _refresh(self) -> None:
        engines = self.engines
        self.query_one("#what", Static).update(self._heading())
        if not self._aborting:
            self._stages.show(engines.progress, engines.began, failed=self._failed)
        self.set_class(self._failed, "-failed")
        self._failure.display = self._failed
        if engines.error is not None:
            self._failure.show(engines.error, self._way_back())
        self._log_view.show_log(engines.log)
        self._tick()
        self.refresh_bindings()
        if engines.state is EngineState.READY and self.is_current:
            self.post_message(self.Loaded())

    def _tick(self) -> None:
        if self.engines.state is EngineState.LOADING:
            seconds = max(0.0, self._clock() - self.engines.started_at)
            self.query_one("#elapsed", Static).update(clock_text(seconds))

    def _heading(self) -> str:
        title = one_line(self.model.family.title)
        if self._aborting:
            return f"Stopping {title}…"
        return f"Can't load {title}" if self._failed else f"Loading {title}"

    def _way_back(self) -> str:
        """Return the state of the previous model, and the key that returns to it; empty if there is no previous
        model."""
        former = self.engines.former
        if former is None:
            return ""
        name = one_line(former.spec.name)
        if self.engines.keeps_former:
            return with_keys(self.app, f"{name} is still loaded: {{loading.former}} goes back to it.")
        return with_keys(self.app, f"{name} was unloaded: {{loading.former}} loads it again.")

    def _about(self) -> str:
        size = self.model.family.parameters_b
        parts = [one_line(self.model.spec.name), *([f"{size_text(size)} parameters"] if size else [])]
        return "  ·  ".join(parts)
