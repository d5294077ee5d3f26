"""The status line: model, engine, memory, settings, context."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static
from textual.worker import WorkType

from vlmtui.domain.engine import REMOTE_BACKEND, EngineStatus
from vlmtui.domain.engine_labels import labels
from vlmtui.session.conversation import Conversation
from vlmtui.session.engine_controller import EngineController, EngineState
from vlmtui.text import one_line
from vlmtui.ui.keys import with_keys

_LOOKS = {
    EngineState.NONE: ("○", "$text-muted", "no engine"),
    EngineState.LOADING: ("◐", "$text-warning", "loading"),
    EngineState.READY: ("●", "$text-success", "ready"),
    EngineState.HUNG: ("◌", "$text-error", "engine does not answer · {restart_engine} restarts"),
    EngineState.DEAD: ("✕", "$text-error", "engine ended · {restart_engine} restarts"),
}
_NEARLY_FULL = 0.9
"""Share of the context above which its colour changes."""
_STATUS_EVERY_S = 10.0
"""How often the engine is asked what memory it uses."""


class StatusBar(Static):
    """The status line; truncated at the right on narrow terminals. Asks the engine for its status now and then."""

    DEFAULT_CSS = """
    StatusBar { height: 1; padding: 0 2; background: $background; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, engine_controller: EngineController, chat: Conversation) -> None:
        super().__init__(markup=False)
        self._engine_controller = engine_controller
        self._chat = chat
        self._status: EngineStatus | None = None
        self._shows_context = True

    def on_mount(self) -> None:
        self.ask()
        self.set_interval(_STATUS_EVERY_S, self.ask)

    def ask(self) -> None:
        """Ask the engine for its status, and show it."""
        work: WorkType[None] = self._ask
        self.run_worker(work, group="status", exclusive=True)

    async def _ask(self) -> None:
        if self._engine_controller.state is EngineState.READY:
            self._status = await self._engine_controller.read_status()
            self.call_later(self._write)

    def show(self, *, context: bool) -> None:
        """Update the line. `context`: show how much of the context is used."""
        self._shows_context = context
        self._write()

    def _write(self) -> None:
        controller, info, status = self._engine_controller, self._engine_controller.info, self._status
        glyph, colour, _ = _LOOKS[controller.state]
        model, *beside = labels([one.spec for one in controller.models]) or ["no model"]
        parts = [
            Content.assemble((f"{glyph} ", colour), (one_line(model), "bold")),
            Content.styled(self._word(), colour),
        ]
        if beside:
            more = f"+ {one_line(beside[0])}" if len(beside) == 1 else f"+ {len(beside)} engines"
            parts.append(Content.styled(more, "$muted"))
        if status is not None and controller.state is EngineState.READY and status.spec.backend != REMOTE_BACKEND:
            memory = status.gpu_bytes if status.gpu_bytes else status.rss_bytes
            parts.append(Content.styled(f"{memory / 1e9:.1f} GB {'GPU' if status.gpu_bytes else 'RAM'}", "$muted"))
        parts.append(Content.styled(self._chat.settings.summary, "$muted"))
        if info is not None and self._shows_context:
            context_used = self._chat.context_used or 0
            full = "$text-warning" if context_used >= _NEARLY_FULL * info.max_model_len else "$muted"
            parts.append(Content.styled(f"context {context_used:,} / {info.max_model_len:,}", full))
        if info is not None:
            parts.append(Content.styled(f"{info.device} {info.dtype}", "$muted"))
        self.update(Content.styled("  ·  ", "$faint").join(parts))

    def _word(self) -> str:
        """What the engine does."""
        state, progress = self._engine_controller.state, self._engine_controller.progress
        if state is EngineState.READY and self._chat.running is not None:
            return "answering"
        if state is EngineState.LOADING and progress is not None:
            share = "" if progress.fraction is None else f" {progress.fraction:.0%}"
            return f"loading: {progress.stage.label.lower()}{share}"
        return with_keys(self.app, _LOOKS[state][2])
