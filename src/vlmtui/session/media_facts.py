"""Facts about an attachment of a prompt: sizes, and the patches and tokens that the processor made of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vlmtui.domain.conversation import Attachment
from vlmtui.media.describe import clock
from vlmtui.session.generation import PromptMedia

if TYPE_CHECKING:
    pass

_SHA_SHOWN = 16


def media_facts(item: PromptMedia) -> list[tuple[str, str]]:
    """Return facts about an attachment of a prompt, as names and values. Hostile text."""
    attachment = item.attachment
    rows = [("file", attachment.name)]
    if attachment.modality == "audio":
        rows += _audio(attachment)
    else:
        rows.append(("size", f"{attachment.width} × {attachment.height} pixels"))
    if attachment.modality == "video":
        rows += _frames(attachment)
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
        rows.append(("tokens", "unknown" if item.tokens is None else f"{item.tokens:,}"))
    rows += [("format", attachment.format), ("SHA-256", f"{attachment.sha256[:_SHA_SHOWN]}…")]
    return [*rows, *(("note", note) for note in attachment.notes)]


def _audio(attachment: Attachment) -> list[tuple[str, str]]:
    rows = [("length", clock(attachment.duration_s or 0.0))]
    if attachment.sample_rate is not None:
        rows.append(("rate", f"{attachment.sample_rate:,} samples a second"))
    if attachment.channels is not None:
        rows.append(("channels", f"{attachment.channels}"))
    return rows


def _frames(attachment: Attachment) -> list[tuple[str, str]]:
    rows = [] if attachment.duration_s is None else [("length", clock(attachment.duration_s))]
    if (sampling := attachment.sampling) is not None:
        rows.append(("frames", f"{sampling.num_frames}" if sampling.fps is None else f"{sampling.fps:g} a second"))
    return rows
