"""Turns of a conversation. A turn's content is an ordered run of text and attachments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from vlmtui.domain.attachment import Attachment

Role = Literal["system", "user", "assistant"]


class Text(msgspec.Struct, frozen=True, tag="text"):
    """A run of text."""

    text: str


class Media(msgspec.Struct, frozen=True, tag="media"):
    """An attachment at its place between the texts."""

    attachment: Attachment


Part = Text | Media


class Turn(msgspec.Struct, frozen=True):
    """What one side said: its parts in order."""

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
    """A user's turn with its attachments before the text, the order that most families were trained on."""
    return Turn("user", (*(Media(item) for item in attachments), Text(text)))


def assistant_turn(text: str) -> Turn:
    return Turn("assistant", (Text(text),))


def system_turn(text: str) -> Turn:
    return Turn("system", (Text(text),))


def all_attachments(turns: Iterable[Turn]) -> tuple[Attachment, ...]:
    """Every attachment of the conversation, in the order that the model is given them."""
    return tuple(item for turn in turns for item in turn.attachments)
