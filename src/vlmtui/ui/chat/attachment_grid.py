"""Attachments side by side."""

from __future__ import annotations

from textual.containers import ItemGrid

PICTURE = 32
"""Cells of the widest picture."""
GUTTER = 2
COLUMN = PICTURE + GUTTER
"""Cells of a column with the space beside it."""


class AttachmentGrid(ItemGrid):
    """As many columns as fit, as many rows as it takes."""

    DEFAULT_CSS = "AttachmentGrid { height: auto; grid-gutter: 0 2; }"

    def __init__(self, *, picture: int = PICTURE, id: str | None = None, classes: str | None = None) -> None:
        """`picture`: cells of the widest picture."""
        super().__init__(
            id=id, classes=classes, min_column_width=picture, max_column_width=picture + GUTTER, stretch_height=False
        )
