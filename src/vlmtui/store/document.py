"""A whole conversation as one value, for export and import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Media
from vlmtui.store.records import (
    ConversationData,
    ConversationId,
    EndState,
    Milliseconds,
    Natural,
    StoredDraft,
    StoredTurn,
    TurnData,
    TurnId,
)
from vlmtui.store.store import Store


class DocumentComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A stored comparison."""

    created_ms: Milliseconds
    document: object


class DocumentTurn(TurnData, frozen=True, kw_only=True):
    """One turn of the tree. Ids are local to the document."""

    id: Natural
    parent: Natural | None = None
    state: EndState = "complete"
    active_child: Natural | None = None
    comparisons: tuple[DocumentComparison, ...] = ()

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        return tuple(part.attachment for part in self.parts if isinstance(part, Media))


class DocumentMedia(msgspec.Struct, frozen=True, kw_only=True):
    """One stored image or video, in a file next to the document or inside it; with neither, it was already missing."""

    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
    suffix: Annotated[str, msgspec.Meta(pattern=r"^(\.[a-z0-9]{1,8})?$")]
    """Of the exported file. An import goes by the content."""
    file: str | None = None
    """Relative to the document."""
    base64: str | None = None


class Document(ConversationData, frozen=True, kw_only=True):
    """A conversation with all turns of all branches. In JSON, the attachments' paths are those in `media`."""

    format: Literal["vlmtui conversation"] = "vlmtui conversation"
    version: Literal[1] = 1
    active_root: Natural | None = None
    draft: StoredDraft = msgspec.field(default_factory=StoredDraft)
    turns: tuple[DocumentTurn, ...] = ()
    """Parents before their children."""
    media: tuple[DocumentMedia, ...] = ()

    @property
    def attachments(self) -> Iterator[Attachment]:
        """Yield every attachment, once per use."""
        for turn in self.turns:
            yield from turn.attachments
        yield from self.draft.attachments.values()

    @property
    def shown(self) -> list[DocumentTurn]:
        """Return the active branch, oldest turn first."""
        by_id = {turn.id: turn for turn in self.turns}
        found: list[DocumentTurn] = []
        turn = None if self.active_root is None else by_id.get(self.active_root)
        while turn is not None and len(found) < len(self.turns):
            found.append(turn)
            turn = None if turn.active_child is None else by_id.get(turn.active_child)
        return found


def document_of(store: Store, conversation: ConversationId) -> Document:
    """Return the conversation's current state. A running answer counts as interrupted."""
    row = store.conversation(conversation)
    turns = store.tree(conversation)
    shown = store.turns(conversation, limit=1)
    return Document(
        **fields_of(ConversationData, row),
        active_root=_root_of({turn.id: turn for turn in turns}, shown[0].id) if shown else None,
        draft=store.draft(conversation),
        turns=tuple(_exported(store, turn) for turn in turns),
    )


def _root_of(turns: dict[TurnId, StoredTurn], turn: TurnId) -> TurnId:
    """Return the topmost ancestor of a turn. For a cycle, which only a damaged database contains, any of its turns."""
    seen: set[TurnId] = set()
    while turn in turns and turn not in seen and (parent := turns[turn].parent) in turns:
        seen.add(turn)
        turn = parent
    return turn


def _exported(store: Store, turn: StoredTurn) -> DocumentTurn:
    fields = fields_of(TurnData, turn)
    return DocumentTurn(
        **{**fields, "state": "interrupted" if turn.state == "running" else turn.state},
        id=turn.id,
        parent=turn.parent,
        active_child=turn.active_child,
        comparisons=tuple(
            DocumentComparison(created_ms=item.created_ms, document=item.document)
            for item in store.comparisons(turn.id)
        ),
    )


def fields_of(kind: type[msgspec.Struct], record: msgspec.Struct) -> dict[str, Any]:
    """Return those fields of a struct that its base class `kind` defines."""
    return {field.name: getattr(record, field.name) for field in msgspec.structs.fields(kind)}
