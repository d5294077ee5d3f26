"""The queued messages, above the composer."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from vlmtui.session.engine_controller import EngineController, EngineState
from vlmtui.session.message_queue import QueuedMessage
from vlmtui.text import one_line
from vlmtui.ui.keys import with_keys

_SHOWN = 3
"""Messages listed; others are counted."""


class QueueBar(Static):
    """One line for each message, then what they wait for. Hidden without messages."""

    DEFAULT_CSS = """
    QueueBar {
        display: none;
        height: auto;
        margin: 1 2 0 2;
        padding: 0 1;
        border-left: outer $warning;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._lines: Content | None = None

    def show(self, queued: Sequence[QueuedMessage], controller: EngineController) -> None:
        """Show the queue and what it waits for; repaints only on changes."""
        lines = self._written(queued, controller) if queued else None
        if lines != self._lines:
            self._lines = lines
            self.display = lines is not None
            self.update(lines or "")

    def _written(self, queued: Sequence[QueuedMessage], controller: EngineController) -> Content:
        lines = [
            Content.assemble(("⧗ queued  ", "$text-warning"), one_line(message.written.text))
            for message in queued[:_SHOWN]
        ]
        more = len(queued) - len(lines)
        lines += [Content.styled(f"  … and {more} more", "$muted")] if more else []
        why = Content.styled(with_keys(self.app, waits_for(controller)), "$muted")
        return Content("\n").join([*lines, why])


def waits_for(controller: EngineController) -> str:
    """Return why queued messages are not sent yet, and the keys that help (for `with_keys`)."""
    model, progress = controller.model, controller.progress
    name = one_line(model.spec.name) if model is not None else "a model"
    take_back = "{take_back} takes it back"
    match controller.state:
        case EngineState.LOADING:
            stage = f" ({progress.stage.label.lower()})" if progress is not None else ""
            return f"Sent once {name} has loaded{stage}. {take_back}."
        case EngineState.READY:
            return f"Sent after the running answer. {take_back}."
        case EngineState.HUNG:
            return f"Not sent: {name} does not answer. {{restart_engine}} restarts it, {take_back}."
        case EngineState.DEAD:
            return f"Not sent: {name} is not running. {{restart_engine}} loads it again, {take_back}."
        case EngineState.NONE:
            return f"Not sent: no model is loaded. {{models}} picks one, {take_back}."
