"""Turns of a conversation. A turn is a sequence of text and attachments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from vlmtui.domain.attachment import Attachment

Role = Literal["system", "user", "assistant"]


class Text(msgspec.Struct, frozen=True, tag="text"):
    """A piece of text."""

    text: str


class Media(msgspec.Struct, frozen=True, tag="media"):
    """An attachment at its position between the texts."""

    attachment: Attachment


Part = Text | Media


class Turn(msgspec.Struct, frozen=True):
    """One message: its role and its parts in order."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All text of the turn, without the attachments."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The turn's attachments, in order."""
        return tuple(part.attachment for part in self.parts if isinstance(part, Media))


def user_turn(text: str, attachments: Iterable[Attachment] = ()) -> Turn:
    """Return a user turn with the attachments before the text, the order most families were trained on."""
    return Turn("user", (*(Media(item) for item in attachments), Text(text)))


def assistant_turn(text: str) -> Turn:
    return Turn("assistant", (Text(text),))


def system_turn(text: str) -> Turn:
    return Turn("system", (Text(text),))


def with_changed_media(parts: Iterable[Part], change: Callable[[Attachment], Attachment | None]) -> tuple[Part, ...]:
    """Return the parts with `change` applied to every attachment; without those for which it returns None."""
    found: list[Part] = []
    for part in parts:
        if not isinstance(part, Media):
            found.append(part)
        elif (new := change(part.attachment)) is not None:
            found.append(Media(new))
    return tuple(found)


def all_attachments(turns: Iterable[Turn]) -> tuple[Attachment, ...]:
    """Return all attachments of the turns, in prompt order."""
    return tuple(item for turn in turns for item in turn.attachments)
