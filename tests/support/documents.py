"""The text that a document view shows."""

from __future__ import annotations

from vlmtui.ui.document.lines import as_written
from vlmtui.ui.document.view import DocumentView


def written(view: DocumentView) -> str:
    """Return the whole text of a view as it was written, including parts that are scrolled away."""
    return as_written((line, 0, None) for block in view.document.blocks for line in block.lines)
