"""An item of a batch as a message of a conversation, with its media among the conversations'."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import msgspec

from vlmtui.domain.conversation import Media, Part, Text, Turn
from vlmtui.errors import bad_input
from vlmtui.paths import Paths, private_dir
from vlmtui.session.batch.item import BatchItem
from vlmtui.session.batch.media_desk import MediaDesk
from vlmtui.session.batch.records import BatchRecord
from vlmtui.session.batch.results import StoredResult


class FoundItem(msgspec.Struct, frozen=True):
    """An item, read again from the input of its batch, and what the batch's command line says of all."""

    item: BatchItem
    system: str | None = None
    """The system prompt of items without one; None: that of the settings."""
    template: str = ""
    """A raw prompt in which `{prompt}` stands for the item's question; empty: none."""
    num_frames: int | None = None
    """Of a video; None: the model's."""

    @property
    def raw(self) -> str | None:
        """The item's raw prompt, if it has one of its own."""
        return self.template.replace("{prompt}", self.item.question) if self.template else self.item.raw


FindItem = Callable[[BatchRecord, StoredResult], FoundItem]
"""Reads the item of a result again, from the input of its batch. Blocks; raises VlmtuiError."""


class MessageOfItem(msgspec.Struct, frozen=True):
    """A message to write in a conversation."""

    turn: Turn
    system: str | None
    raw: str | None
    """What to compare it with, instead of the family's raw prompt."""


async def message_of(found: FoundItem, paths: Paths, num_frames: int) -> MessageOfItem:
    """Return an item as a message. num_frames: of a video, where the batch says nothing.

    Raises VlmtuiError if a medium can't be opened, or if the item has several messages."""
    item = found.item
    if [message.role for message in item.messages] not in ([], ["user"], ["system", "user"]):
        raise bad_input("The item has several messages; only one can be put into a conversation.")
    system = next((message.parts for message in item.messages if message.role == "system"), None)
    desk = MediaDesk(paths.cache, num_frames=found.num_frames or num_frames, keep_in=private_dir(paths.media))
    with closing(desk):
        attachments = iter([await desk.prepare(source) for source in item.sources])
    given = item.messages[-1].parts if item.messages else item.media or (item.raw or "",)
    parts: list[Part] = [Text(part) if isinstance(part, str) else Media(next(attachments)) for part in given]
    text = found.system if system is None else "".join(part for part in system if isinstance(part, str))
    return MessageOfItem(Turn("user", tuple(parts)), text, found.raw)
