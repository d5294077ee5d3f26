"""A grid of attachments."""

from __future__ import annotations

from textual.containers import ItemGrid

PICTURE = 32
"""Most cells of a picture's width."""
GUTTER = 2
COLUMN = PICTURE + GUTTER
"""Width in cells of a column with its gap."""


class AttachmentGrid(ItemGrid):
    """As many columns as fit."""

    DEFAULT_CSS = "AttachmentGrid { height: auto; grid-gutter: 0 2; }"

    def __init__(self, *, picture: int = PICTURE, id: str | None = None, classes: str | None = None) -> None:
        """`picture`: most cells of a picture's width."""
        super().__init__(
            id=id, classes=classes, min_column_width=picture, max_column_width=picture + GUTTER, stretch_height=False
        )
