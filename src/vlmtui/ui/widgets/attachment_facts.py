"""The facts of an attachment, as lines of a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.content import Content

from vlmtui.domain.attachment import Attachment
from vlmtui.text import one_line

_LABEL = 10
_TEXT_MAX = 400
_SHA_SHOWN = 16


def attachment_details(attachment: Attachment, exif: Sequence[tuple[str, str]], width: int) -> Content:
    """Return all facts as lines of `width` cells."""
    lines: list[Content] = []
    for label, value in (*_known(attachment), *exif):
        text = one_line(value if len(value) <= _TEXT_MAX else value[: _TEXT_MAX - 1] + "…")
        first, *rest = Content(text).wrap(max(_LABEL, width - _LABEL)) or [Content("")]
        lines.append(Content.assemble((label.ljust(_LABEL), "$muted"), first))
        lines.extend(Content.assemble(" " * _LABEL, line) for line in rest)
    return Content("\n").join(lines)


def _known(attachment: Attachment) -> Iterator[tuple[str, str]]:
    from vlmtui.media.describe import human_duration

    yield "Name", attachment.name
    if attachment.source:
        yield "From", attachment.source
    yield "Size", f"{attachment.width} × {attachment.height} pixels"
    yield "Format", attachment.format
    yield "File", f"{attachment.size_bytes:,} bytes"
    yield "SHA-256", f"{attachment.sha256[:_SHA_SHOWN]}…"
    if attachment.pages > 1:
        yield "Page", f"{attachment.page} of {attachment.pages}"
    if attachment.duration_s is not None:
        rate = "" if attachment.fps is None else f" · {attachment.fps:g} fps"
        yield "Length", human_duration(attachment.duration_s) + rate
    for number, note in enumerate(attachment.notes):
        yield "" if number else "Notes", note
