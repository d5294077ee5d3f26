"""What the model sees of an attachment as pixels, held against what was attached and sent."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from PIL import Image

from vlmtui.domain.attachment import Attachment
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.inspection.seen_regions import FoundRegion, SeenDifference, difference_between, find_regions
from vlmtui.media.images import BYTES_MAX, open_image, open_prepared
from vlmtui.media.pixels import open_pixels
from vlmtui.reading import read_whole
from vlmtui.session.model_view import ModelView

ViewKind = Literal["original", "sent", "seen", "difference"]
VIEW_KINDS: tuple[ViewKind, ...] = ("original", "sent", "seen", "difference")


class OpenedView(msgspec.Struct, frozen=True, kw_only=True):
    """The pixels of a view. Each picture that the model sees has its part of what was sent."""

    view: ModelView
    original: Image.Image | VlmtuiError
    """As the file has it, before it was turned upright and converted; or why it cannot be shown."""
    sent: tuple[Image.Image, ...]
    """The picture, or a video's frames."""
    seen: tuple[Image.Image, ...]
    regions: tuple[FoundRegion | None, ...]

    def difference(self, number: int) -> SeenDifference | None:
        """Return how picture `number`, from 0, differs from its part of what was sent; None if that is unknown."""
        found = self.regions[number]
        sent = self.frame(number)
        return None if found is None else difference_between(sent, self.seen[number], found.region)

    def frame(self, number: int) -> Image.Image:
        """Return what was sent: the picture, or the frame of a video."""
        return self.sent[min(number, len(self.sent) - 1)]


def open_model_view(view: ModelView) -> OpenedView:
    """Open all pictures of a view. Blocking. Raises VlmtuiError if what was sent, or what the model sees, is gone."""
    seen = tuple(open_prepared(one.path) for one in view.medium.pictures)
    pixels = open_pixels(view.attachment)
    if view.attachment.modality == "video":
        sent = tuple(pixels.image(at) for at in range(len(pixels.times_s)))
        view = msgspec.structs.replace(view, times_s=pixels.times_s)
        pairs = zip(sent, seen, strict=False) if len(sent) == len(seen) else ()
        regions = [found for frame, one in pairs for found in find_regions(frame, [one])]
        regions += [None] * (len(seen) - len(regions))
    else:
        sent = (pixels.image(0),)
        regions = find_regions(sent[0], seen)
    original = _original(view.attachment)
    return OpenedView(view=view, original=original, sent=sent, seen=seen, regions=tuple(regions))


def _original(attachment: Attachment) -> Image.Image | VlmtuiError:
    path = Path(attachment.source)
    if attachment.modality == "video":
        return bad_input("A video is shown by the frames that were sent.")
    if not attachment.source or not path.is_absolute() or not path.is_file():
        return bad_input("The original file is not there any more; what was sent is a copy.")
    try:
        with open_image(read_whole(path, bytes_max=BYTES_MAX), path) as image:
            image.draft("RGB", (2048, 2048))
            return image.convert("RGB")
    except (VlmtuiError, OSError, ValueError) as error:
        return error if isinstance(error, VlmtuiError) else bad_input("The original file cannot be opened any more.")
