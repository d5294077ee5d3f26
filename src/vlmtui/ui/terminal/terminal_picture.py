"""Widgets that have the terminal draw a picture. Import this only through `Graphics`: see there."""

from __future__ import annotations

from textual_image.renderable.tgp import Image as KittyRenderable
from textual_image.widget import TGPImage
from textual_image.widget.sixel import Image as SixelImage
from textual_image.widget.sixel import _NoopRenderable


class KittyPicture(TGPImage, Renderable=KittyRenderable):
    """A picture by kitty's graphics protocol. The terminal stores it, and is told to delete it when it is unmounted."""

    def on_unmount(self) -> None:
        self.image = None


class SixelPicture(SixelImage, Renderable=_NoopRenderable):
    """A picture by Sixel graphics."""
