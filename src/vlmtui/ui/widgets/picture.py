"""The widgets that draw a picture, one a way of drawing. Import this through `Graphics` only: see there."""

from __future__ import annotations

from textual_image.renderable.halfcell import Image as HalfcellRenderable
from textual_image.renderable.tgp import Image as KittyRenderable
from textual_image.widget import HalfcellImage, TGPImage
from textual_image.widget.sixel import Image as SixelImage
from textual_image.widget.sixel import _NoopRenderable


class HalfcellPicture(HalfcellImage, Renderable=HalfcellRenderable):
    """Two pixels a cell, in colour: works in every terminal."""


class KittyPicture(TGPImage, Renderable=KittyRenderable):
    """Kitty's graphics protocol. The terminal keeps the picture, so it is told when it is no longer shown."""

    def on_unmount(self) -> None:
        self.image = None


class SixelPicture(SixelImage, Renderable=_NoopRenderable):
    """Sixel graphics."""


PICTURES: dict[str, type[HalfcellPicture | KittyPicture | SixelPicture]] = {
    "halfcell": HalfcellPicture,
    "kitty": KittyPicture,
    "sixel": SixelPicture,
}
