"""Attachments side by side."""

from __future__ import annotations

from textual.containers import ItemGrid

COLUMN = 34
"""Cells of a column with the space beside it."""

PICTURE = 32
"""Cells of the widest picture."""


class AttachmentGrid(ItemGrid):
    """As many columns as fit, as many rows as it takes."""

    DEFAULT_CSS = "AttachmentGrid { height: auto; grid-gutter: 0 2; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(
            id=id, classes=classes, min_column_width=PICTURE, max_column_width=COLUMN, stretch_height=False
        )
