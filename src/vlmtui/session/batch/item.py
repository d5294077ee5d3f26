"""The items of a batch, as they are read from a file; their media are not opened yet."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.conversation import Role
from vlmtui.domain.failure import Failure
from vlmtui.errors import VlmtuiError, bad_input


class MediaSource(msgspec.Struct, frozen=True, kw_only=True):
    """An image, a video or a sound that an item names: a file, a web address, or its bytes."""

    modality: Modality
    place: str = ""
    """An absolute path, with `#page=N` where the file has pages and `#sound` for a video's audio track, or an http
    address. Hostile text."""
    encoded: str = ""
    """Base64 of its bytes, instead of a place."""
    pixel: tuple[int, int, int] | None = None
    """Replace the first pixel of the image by this colour, 0 to 255 each."""


class ItemMessage(msgspec.Struct, frozen=True):
    """One message: text and media in order."""

    role: Role
    parts: tuple[str | MediaSource, ...]


class Expectation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the answer should be; everything that is set must hold."""

    exact: str | None = None
    """The answer without surrounding white space."""
    contains: str | None = None
    regex: str | None = None
    """Found anywhere in the answer."""
    json_schema: dict[str, object] | None = None
    """A JSON Schema that the answer, read as JSON, satisfies."""


class BatchItem(msgspec.Struct, frozen=True, kw_only=True):
    """One question of a batch."""

    line: int
    """Where it begins in the file, from 1; of other inputs, its number."""
    id: str
    messages: tuple[ItemMessage, ...] = ()
    raw: str | None = None
    """A raw prompt, sent as it is, instead of messages."""
    media: tuple[MediaSource, ...] = ()
    """Those of a raw prompt, in the order of their placeholders."""
    sampling: Mapping[str, object] = msgspec.field(default_factory=dict)
    """Fields of `Sampling` that this item sets."""
    logprobs: int | None = None
    expect: Expectation | None = None

    @property
    def sources(self) -> tuple[MediaSource, ...]:
        """All its media, in order."""
        found = [part for message in self.messages for part in message.parts if isinstance(part, MediaSource)]
        return (*found, *self.media)

    @property
    def question(self) -> str:
        """The text of the last message, or the raw prompt."""
        if self.raw is not None:
            return self.raw
        return "".join(part for part in self.messages[-1].parts if isinstance(part, str)) if self.messages else ""


class BadItem(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is not an item, and why."""

    line: int
    failure: Failure
    digest: str
    """Tells whether the line is still the same."""
    id: str | None = None
    """Its id, if it has one that no other item has."""


def at_line(error: VlmtuiError, line: int) -> VlmtuiError:
    """Return the error with its line number at the front."""
    message = f"Line {line}: {error.message}"
    return VlmtuiError(error.kind, message, detail=error.detail, hint=error.hint)


def failed_at_line(failure: Failure, line: int) -> Failure:
    """Return the failure with its line number at the front."""
    return Failure.of(at_line(failure.error(), line))


def unknown_field(name: str, known: Mapping[str, object] | tuple[str, ...]) -> VlmtuiError:
    """Return the error for a field that nothing is done with, offering the nearest name."""
    import difflib

    from vlmtui.text import quoted

    close = difflib.get_close_matches(name, list(known), n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known)}."
    return bad_input(f"Unknown field {quoted(name)}.", hint=hint)
