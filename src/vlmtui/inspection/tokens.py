"""The tokens of a prompt as displayable pieces: a piece for each token, and a single piece for an image or video."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

import msgspec

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import MediaSpan
from vlmtui.domain.model_reading import bytes_of_entry, is_text

Kind = Literal["text", "special", "media"]

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_INVALID = re.compile("[\udc80-\udcff]+")
_NO_BYTES: Mapping[int, bytes] = {}


class Piece(msgspec.Struct, frozen=True):
    """A token, or all tokens of an image or video."""

    text: str
    """The decoded token (hostile), with incomplete characters as bytes: `⟨e2 82⟩`. For an image or video, the text of
    its token once."""
    ids: tuple[int, ...]
    kind: Kind
    offset: int
    """The index of the first token in the prompt's token ids."""
    media: MediaSpan | None = None
    label: str = ""
    """A label for people: `<|image_pad|> × 1,280 from cat.jpg`, or `part of “é”` for a part of a character; or
    empty."""

    @property
    def end(self) -> int:
        return self.offset + len(self.ids)


def pieces_of(
    token_ids: Sequence[int],
    token_texts: Sequence[str],
    special_ids: AbstractSet[int],
    media: Sequence[MediaSpan] = (),
    attachments: Sequence[Attachment] = (),
    raw_bytes: Mapping[int, bytes] = _NO_BYTES,
) -> list[Piece]:
    """Return the prompt's pieces in order; joined, their ids are `token_ids`.

    `token_texts`: the text of each token. `raw_bytes`: the bytes of tokens that are not whole characters, by token id.
    Ignores spans that overlap or exceed the prompt. Raises ValueError if the numbers of ids and texts differ.
    """
    if len(token_ids) != len(token_texts):
        raise ValueError(f"{len(token_ids)} token ids, but {len(token_texts)} texts")
    spans = {span.offset: span for span in valid_spans(media, len(token_ids))}
    found: list[Piece] = []
    position = 0
    while position < len(token_ids):
        span = spans.get(position)
        if span is not None:
            found.append(_of_media(span, token_ids, token_texts, attachments))
            position += span.length
            continue
        token = token_ids[position]
        text = _shown(token, token_texts[position], raw_bytes)
        found.append(Piece(text, (token,), "special" if token in special_ids else "text", position))
        position += 1
    return _with_characters(found, token_texts, raw_bytes)


def valid_spans(media: Sequence[MediaSpan], tokens: int) -> list[MediaSpan]:
    """Return the spans in order, without spans that are empty, overlap an earlier span or exceed the prompt."""
    valid: list[MediaSpan] = []
    end = 0
    for span in sorted(media, key=lambda one: one.offset):
        if span.length > 0 and span.offset >= end and span.offset + span.length <= tokens:
            valid.append(span)
            end = span.offset + span.length
    return valid


def attachment_of(span: MediaSpan, attachments: Sequence[Attachment]) -> Attachment | None:
    """Return the attachment of a span, or None if unknown."""
    same = [item for item in attachments if item.modality == span.modality]
    return same[span.index] if 0 <= span.index < len(same) else None


def shown_bytes(data: bytes) -> str:
    """Decode UTF-8, and show invalid bytes as `⟨e2 82⟩`."""
    text = data.decode("utf-8", "surrogateescape")
    return _INVALID.sub(lambda match: f"⟨{match[0].encode('utf-8', 'surrogateescape').hex(' ')}⟩", text)


def _shown(token: int, text: str, raw_bytes: Mapping[int, bytes]) -> str:
    data = _broken(token, text, raw_bytes)
    if data is not None:
        return shown_bytes(data)
    return text.replace("\ufffd", "⟨?⟩") if "\ufffd" in text and token not in raw_bytes else text


def _broken(token: int, text: str, raw_bytes: Mapping[int, bytes]) -> bytes | None:
    """Return a token's bytes if they are not whole characters, else None."""
    data = raw_bytes.get(token)
    if data is None and _BYTE.fullmatch(text):
        data = bytes_of_entry(text)
    if data is None and _INVALID.search(text):
        data = text.encode("utf-8", "surrogateescape")
    return None if data is None or is_text(data) else data


def _of_media(span: MediaSpan, ids: Sequence[int], texts: Sequence[str], attachments: Sequence[Attachment]) -> Piece:
    inside = slice(span.offset, span.offset + span.length)
    text = Counter(texts[inside]).most_common(1)[0][0]
    item = attachment_of(span, attachments)
    name = item.name if item is not None else f"{span.modality} {span.index + 1}"
    beside = f" ({span.length:,} tokens in total)" if span.length != span.tokens else ""
    return Piece(text, tuple(ids[inside]), "media", span.offset, span, f"{text} × {span.tokens:,}{beside} from {name}")


def _with_characters(pieces: list[Piece], texts: Sequence[str], raw_bytes: Mapping[int, bytes]) -> list[Piece]:
    """If a character is split over several tokens, label each of them with the whole character."""
    runs: list[list[int]] = []
    parts: dict[int, bytes] = {}
    is_open = False
    for number, piece in enumerate(pieces):
        data = None if piece.kind == "media" else _broken(piece.ids[0], texts[piece.offset], raw_bytes)
        if data is None:
            is_open = False
            continue
        parts[number] = data
        if is_open:
            runs[-1].append(number)
        else:
            runs.append([number])
        is_open = not is_text(b"".join(parts[one] for one in runs[-1]))
    labelled = list(pieces)
    for run in runs:
        data = b"".join(parts[number] for number in run)
        for number in run if is_text(data) else ():
            label = f"part of “{shown_bytes(data).strip()}”"
            labelled[number] = msgspec.structs.replace(pieces[number], label=label)
    return labelled
