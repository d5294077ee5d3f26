"""Facts about the attachments of a prompt: sizes, and the patches and tokens that the processor made of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import MediaSpan
from vlmtui.media.describe import clock
from vlmtui.media.thumbnails import open_pixels
from vlmtui.session.prompt_report import PromptReport

if TYPE_CHECKING:
    from PIL.Image import Image

_SHA_SHOWN = 16


class PromptMedia(msgspec.Struct, frozen=True):
    """An attachment and its spans of the prompt."""

    attachment: Attachment
    number: int
    """Number in the prompt, from 1."""
    spans: tuple[MediaSpan, ...] = ()
    """Several if the processor splits an image into tiles; empty if unknown."""

    @property
    def resized(self) -> tuple[int, int] | None:
        """Width and height in pixels after the processor's resize, if the engine reports it."""
        return next((span.resized for span in self.spans if span.resized), None)

    @property
    def tokens(self) -> int:
        return sum(span.tokens for span in self.spans)


def media_items(inspected: PromptReport) -> list[PromptMedia]:
    """Return one item for each attachment, in the order of the prompt."""
    spans = inspected.prompt.media if inspected.prompt else ()
    counts: dict[str, int] = {}
    items: list[PromptMedia] = []
    for number, attachment in enumerate(inspected.attachments, 1):
        index = counts.get(attachment.modality, 0)
        counts[attachment.modality] = index + 1
        own = tuple(span for span in spans if (span.modality, span.index) == (attachment.modality, index))
        items.append(PromptMedia(attachment, number, own))
    return items


def media_facts(item: PromptMedia, times_s: Sequence[float] = ()) -> list[tuple[str, str]]:
    """Return facts as names and values. Hostile text. `times_s`: times of a video's frames, in seconds."""
    attachment = item.attachment
    rows = [("file", attachment.name)]
    if attachment.modality == "audio":
        rows += _sound(attachment)
    else:
        rows.append(("size", f"{attachment.width} × {attachment.height} pixels"))
    if attachment.modality == "video":
        rows += _frames(attachment, times_s)
    if item.resized:
        width, height = item.resized
        same = (width, height) == (attachment.width, attachment.height)
        rows.append(("resized to", f"{width} × {height} pixels" + (" (as it was)" if same else "")))
    for span in item.spans:
        if span.grid:
            rows.append(("grid", " × ".join(map(str, span.grid)) + f" = {math.prod(span.grid):,} patches or tiles"))
        separators = f" ({span.length:,} with separators)" if span.length != span.tokens else ""
        last = span.offset + span.length - 1
        rows.append(("tokens", f"{span.tokens:,}{separators}, at {span.offset:,} to {last:,} of the prompt"))
        rows += [(name, f"shape ({', '.join(map(str, shape))})") for name, shape in span.tensors.items()]
    if not item.spans:
        rows.append(("tokens", "unknown"))
    rows += [("format", attachment.format), ("SHA-256", f"{attachment.sha256[:_SHA_SHOWN]}…")]
    return [*rows, *(("note", note) for note in attachment.notes)]


def resized_image(item: PromptMedia) -> Image:
    """Return the image after the processor's resize. Blocking. Raises VlmtuiError if its file is missing."""
    from PIL.Image import Resampling

    picture = open_pixels(item.attachment).image(0)
    return picture if item.resized in (None, picture.size) else picture.resize(item.resized, Resampling.BICUBIC)


def resized_attachment(item: PromptMedia, cache: Path) -> Attachment:
    """Return the resized image as an attachment, stored in the folder `cache`. Blocking. Raises VlmtuiError."""
    from vlmtui.files import write_private
    from vlmtui.media.images import as_png

    image = resized_image(item)
    data = as_png(image)
    digest = hashlib.sha256(data).hexdigest()
    path = cache / f"{digest}.png"
    write_private(path, data)
    return msgspec.structs.replace(
        item.attachment,
        name=f"{item.attachment.name} as given to the model",
        path=str(path),
        sha256=digest,
        width=image.width,
        height=image.height,
        format="PNG",
        source="",
    )


def _sound(attachment: Attachment) -> list[tuple[str, str]]:
    rows = [("length", clock(attachment.duration_s or 0.0))]
    if attachment.sample_rate is not None:
        rows.append(("rate", f"{attachment.sample_rate:,} samples a second"))
    if attachment.channels is not None:
        rows.append(("channels", f"{attachment.channels}"))
    return rows


def _frames(attachment: Attachment, times_s: Sequence[float]) -> list[tuple[str, str]]:
    rows = [] if attachment.duration_s is None else [("length", clock(attachment.duration_s))]
    if times_s:
        rows.append(("frames", f"{len(times_s)}: " + ", ".join(clock(time) for time in times_s)))
    elif attachment.sampling is not None:
        fps = attachment.sampling.fps
        rows.append(("frames", f"{attachment.sampling.num_frames}" if fps is None else f"{fps:g} a second"))
    return rows
