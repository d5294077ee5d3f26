"""The text of a document on the screen."""

from __future__ import annotations

from vlmtui.ui.document.lines import as_written
from vlmtui.ui.document.view import DocumentView


def written(view: DocumentView) -> str:
    """Return the text that a view shows, or would show if it were scrolled, as it was written."""
    return as_written((line, 0, None) for block in view.document.blocks for line in block.lines)
