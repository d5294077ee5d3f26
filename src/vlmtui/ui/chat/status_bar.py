"""The status line: model, engine, memory, settings, context."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from vlmtui.domain.engine import REMOTE_BACKEND, EngineInfo, EngineStatus, LoadProgress, LoadSpec
from vlmtui.domain.engine_labels import labels
from vlmtui.session.engine_controller import EngineState
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


class StatusBar(Static):
    """The status line; truncated at the right on narrow terminals."""

    DEFAULT_CSS = """
    StatusBar { height: 1; padding: 0 2; background: $background; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def show(
        self,
        *,
        models: Sequence[LoadSpec],
        state: EngineState,
        progress: LoadProgress | None,
        answering: bool,
        info: EngineInfo | None,
        status: EngineStatus | None,
        context_used: int | None,
        settings: str,
    ) -> None:
        """Update the line. `models`: the current one, then the others that are loaded. `context_used` None: the context
        is hidden."""
        glyph, colour, word = _LOOKS[state]
        word = with_keys(self.app, word)
        if state is EngineState.READY and answering:
            word = "answering"
        if state is EngineState.LOADING and progress is not None:
            share = "" if progress.fraction is None else f" {progress.fraction:.0%}"
            word = f"loading: {progress.stage.label.lower()}{share}"
        model, *beside = labels(models) or ["no model"]
        parts = [Content.assemble((f"{glyph} ", colour), (one_line(model), "bold")), Content.styled(word, colour)]
        if beside:
            more = f"+ {one_line(beside[0])}" if len(beside) == 1 else f"+ {len(beside)} engines"
            parts.append(Content.styled(more, "$muted"))
        if status is not None and state is EngineState.READY and status.spec.backend != REMOTE_BACKEND:
            memory = status.gpu_bytes if status.gpu_bytes else status.rss_bytes
            parts.append(Content.styled(f"{memory / 1e9:.1f} GB {'GPU' if status.gpu_bytes else 'RAM'}", "$muted"))
        parts.append(Content.styled(settings, "$muted"))
        if info is not None and context_used is not None:
            full = "$text-warning" if context_used >= _NEARLY_FULL * info.max_model_len else "$muted"
            parts.append(Content.styled(f"context {context_used:,} / {info.max_model_len:,}", full))
        if info is not None:
            parts.append(Content.styled(f"{info.device} {info.dtype}", "$muted"))
        self.update(Content.styled("  ·  ", "$faint").join(parts))
