"""The foldable reasoning of an answer."""

from __future__ import annotations

from textual.widgets import Collapsible, Static

from vlmtui.inspection.thinking import ThinkingParts

_TAIL = 1500
"""Most characters shown while reasoning streams: laying out long text ten times a second is slow."""


class ThinkingBlock(Collapsible):
    """Open while the model reasons, folded once it answers; then the user decides."""

    DEFAULT_CSS = """
    ThinkingBlock {
        background: transparent;
        border: none;
        padding: 0;
        margin: 0 0 1 0;
        CollapsibleTitle { padding: 0; color: $muted; background: transparent; }
        Contents { padding: 0 0 0 2; }
        .thoughts { height: auto; color: $muted; }
    }
    """

    def __init__(self, parts: ThinkingParts) -> None:
        self._thoughts = Static(classes="thoughts", markup=False)
        super().__init__(self._thoughts, collapsed=bool(parts.answer))
        self._is_answered = bool(parts.answer)
        self._shown = ""
        self.show(parts)

    def show(self, parts: ThinkingParts) -> None:
        """Show the reasoning so far, control characters visible."""
        text = parts.thinking
        tail = f"…{text[-_TAIL:]}" if parts.is_thinking and len(text) > _TAIL else text
        if tail != self._shown:
            self._shown = tail
            self._thoughts.update(tail)
        self.title = thinking_title(parts)
        if parts.answer and not self._is_answered:
            self._is_answered = True
            self.collapsed = True


def thinking_title(parts: ThinkingParts) -> str:
    """Return `Thinking…` while it runs, then `Thought · 210 words`."""
    return "Thinking…" if parts.is_thinking else f"Thought · {len(parts.thinking.split()):,} words"
