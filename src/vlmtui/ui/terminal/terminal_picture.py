"""The widgets that have the terminal draw a picture. Import this through `Graphics` only: see there."""

from __future__ import annotations

from textual_image.renderable.tgp import Image as KittyRenderable
from textual_image.widget import TGPImage
from textual_image.widget.sixel import Image as SixelImage
from textual_image.widget.sixel import _NoopRenderable


class KittyPicture(TGPImage, Renderable=KittyRenderable):
    """Kitty's graphics protocol. The terminal keeps the picture, so it is told when it is no longer shown."""

    def on_unmount(self) -> None:
        self.image = None


class SixelPicture(SixelImage, Renderable=_NoopRenderable):
    """Sixel graphics."""
