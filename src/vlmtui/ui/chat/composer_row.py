"""The row with the composer, whose bar tells whether an answer is running."""

from __future__ import annotations

from textual.containers import Vertical


class ComposerRow(Vertical):
    """Its bar is faint while an answer is running."""

    DEFAULT_CSS = """
    ComposerRow {
        height: auto;
        margin: 1 2 0 2;
        border-left: outer $accent;
        background: $surface;
        &.-busy { border-left: outer $faint; }
    }
    """

    def show_busy(self, busy: bool) -> None:
        """Show whether an answer is running. Only the row's own style depends on it: those of the widgets in it, which
        take longest just before the first token is shown, stay as they are."""
        if busy != self.has_class("-busy"):
            self.set_class(busy, "-busy", update=False)
            self.app.stylesheet.apply(self)
