"""Changes of a prompt's pictures in a fan-out, to test whether an answer depends on them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from pathlib import Path

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Turn, all_attachments, with_changed_media
from vlmtui.domain.parameters import Number
from vlmtui.errors import bad_input


class PictureChange(enum.StrEnum):
    """A change of every picture of the prompt."""

    SENT = "sent"
    NONE = "none"
    GREY = "grey"
    BLUR = "blur"
    SWAP = "swap"
    """Each takes the place of the next one."""


PictureMap = Mapping[tuple[str, str | int], Attachment]
"""The picture to send instead, by the SHA-256 of a picture and its change."""
_LABELS = {
    PictureChange.SENT: "as sent",
    PictureChange.NONE: "no picture",
    PictureChange.GREY: "grey",
    PictureChange.BLUR: "blurred",
    PictureChange.SWAP: "exchanged",
}
_ALIASES = {"gray": PictureChange.GREY, "removed": PictureChange.NONE, "blurred": PictureChange.BLUR}


def label_of(change: PictureChange) -> str:
    """Return the change's label."""
    return _LABELS[change]


def read_change(text: str) -> PictureChange | None:
    """Return the change with this name, or None."""
    name = text.strip().lower()
    return _ALIASES.get(name) or next((change for change in PictureChange if change == name), None)


def possible_changes(turns: Sequence[Turn]) -> list[PictureChange]:
    """Return every change that makes sense for these turns, `SENT` first. Raises VlmtuiError if they have no
    picture."""
    items = all_attachments(turns)
    if not items:
        raise bad_input("There is no picture to leave out.", hint="Attach one, or ask about one that was sent.")
    changes = [PictureChange.SENT, PictureChange.NONE]
    if all(item.modality == "image" for item in items):
        changes += [PictureChange.GREY, PictureChange.BLUR]
        if len({item.sha256 for item in items}) > 1:
            changes.append(PictureChange.SWAP)
    return changes


def changed_pictures(changes: Sequence[Number | str], turns: Sequence[Turn], store: Path) -> PictureMap:
    """Make the pictures for these changes (names, or the most pixels). Blocking. Raises VlmtuiError."""
    from vlmtui.media.changed_images import blurred_image, bounded_image, grey_image

    possible = possible_changes(turns)
    items = {item.sha256: item for item in all_attachments(turns)}
    made: dict[tuple[str, str | int], Attachment] = {}
    for change in changes:
        if isinstance(change, str) and change not in possible:
            raise bad_input(_why_not(PictureChange(change)))
        for (sha256, item), other in zip(items.items(), [*list(items.values())[1:], *items.values()], strict=False):
            match change:
                case int():
                    made[sha256, change] = bounded_image(item, change, store) if item.modality == "image" else item
                case PictureChange.GREY:
                    made[sha256, change] = grey_image(item, store)
                case PictureChange.BLUR:
                    made[sha256, change] = blurred_image(item, store)
                case PictureChange.SWAP:
                    made[sha256, change] = other
    return made


def with_pictures(turns: Sequence[Turn], change: PictureChange | int, made: PictureMap) -> tuple[Turn, ...]:
    """Return the turns with every picture changed."""
    if change is PictureChange.SENT:
        return tuple(turns)

    def changed(item: Attachment) -> Attachment | None:
        return None if change is PictureChange.NONE else made[item.sha256, change]

    return tuple(Turn(turn.role, with_changed_media(turn.parts, changed)) for turn in turns)


def _why_not(change: PictureChange) -> str:
    if change is PictureChange.SWAP:
        return "There is no other picture to swap it with."
    return "A video can be left out, but not made grey or blurred."
