"""Which attachment of a request a server's refusal is about. Servers mostly don't say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from vlmtui.domain.conversation import Attachment
from vlmtui.text import human_bytes, one_line
from vlmtui.worker.backends.remote.bodies import MediaPart
from vlmtui.worker.backends.remote.http_api import About, ServerError

_SIZE = re.compile(r"dimensions (\d+)x(\d+)")
_TOKENS = re.compile(r"a\(n\) (\w+) item with (\d+) embedding tokens")
_KINDS = {"video": ("video",), "audio": ("audio",), "image": ("image", "video")}
"""The modalities that a word of a refusal means, the first word that it has; a video is sent as images."""


def named_attachment(
    error: ServerError, attachments: Sequence[Attachment], media: Sequence[MediaPart], tokens: Mapping[str, int]
) -> str:
    """Return a sentence that names the attachment which the server refused, or the largest one if the refusal fits
    several; "" if they are alike, or it is about none. `tokens`: the tokens that the server counted for an image, by
    SHA-256."""
    said = error.detail.lower()
    size, counted = _SIZE.search(said), _TOKENS.search(said)
    kinds = (counted[1],) if counted else next((_KINDS[word] for word in _KINDS if word in said), ())
    sent = {one.sha256: (one, part) for one, part in zip(attachments, media, strict=True)}
    found = [pair for pair in sent.values() if not kinds or pair[0].modality in kinds]
    if error.about is About.NOTHING or not found:
        return ""
    told = []
    if size:
        told = [pair for pair in found if (pair[0].width, pair[0].height) == (int(size[1]), int(size[2]))]
    elif counted and all(one.sha256 in tokens for one, _ in found):
        told = [pair for pair in found if tokens[pair[0].sha256] == int(counted[2])]
    found = told or found
    if len(found) == 1:
        return f"{'It' if error.about is About.ONE else 'Its only attachment'} is {_shown(found[0][0])}."
    if all(one.modality == "image" for one, _ in found) and re.search("pixel|tokens|decode", said):
        sizes = [(one.width * one.height, _shown(one)) for one, _ in found]
    else:
        lengths = [(len(part.url or ""), one) for one, part in found]
        sizes = [(length, f"{one_line(one.name)} ({human_bytes(length)} as sent)") for length, one in lengths]
    (second, _), (most, largest) = sorted(sizes)[-2:]
    return f"The largest is {largest}." if most > second else ""


def _shown(one: Attachment) -> str:
    return one_line(one.name) + (f" ({one.width:,}×{one.height:,})" if one.width else "")
