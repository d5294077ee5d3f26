"""A failure as a full screen: message, detail, hint."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from vlmtui.errors import VlmtuiError
from vlmtui.text import visible
from vlmtui.ui.document.blocks import TextBlock
from vlmtui.ui.document.view import DocumentView


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
        """Show this error, and how to return to the previous model; empty parts are left out."""
        self.query_one(".way-back", Static).update(way_back)
        self.query_one(".way-back").display = bool(way_back)
        self.query_one(".message", Static).update(visible(error.message))
        self.query_one(".hint", Static).update(visible(error.hint))
        self.query_one(".hint").display = bool(error.hint)
        detail = self.query_one(".detail", DocumentView)
        detail.show(TextBlock(visible(error.detail.strip())))
        detail.display = bool(error.detail.strip())
