"""A whole conversation as one value: what the exports are made of and the import makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Media, Part, Role
from vlmtui.domain.engine import Failure
from vlmtui.store.records import (
    ConversationId,
    EndState,
    Recipe,
    Statistics,
    StoredDraft,
    StoredTurn,
    TurnId,
)
from vlmtui.store.store import Store

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class DocumentComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a comparison run."""

    created_ms: Count
    document: object


class DocumentTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the tree. Ids count inside the document only."""

    id: Count
    parent: Count | None = None
    role: Role
    parts: tuple[Part, ...]
    state: EndState = "complete"
    created_ms: Count
    ended_ms: Count | None = None
    tokens: Count = 0
    statistics: Statistics | None = None
    failure: Failure | None = None
    recipe: Recipe | None = None
    active_child: Count | None = None
    comparisons: tuple[DocumentComparison, ...] = ()

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        return tuple(part.attachment for part in self.parts if isinstance(part, Media))


class DocumentMedia(msgspec.Struct, frozen=True, kw_only=True):
    """One stored image or video: in a file beside the document, or in it; with neither, it was missing already."""

    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
    suffix: Annotated[str, msgspec.Meta(pattern=r"^(\.[a-z0-9]{1,8})?$")]
    file: str | None = None
    """Relative to the document."""
    base64: str | None = None


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation with every turn of every branch. In JSON, the attachments' paths are those of `media`."""

    format: Literal["vlmtui conversation"] = "vlmtui conversation"
    version: Literal[1] = 1
    title: str
    model: str
    created_ms: Count
    updated_ms: Count
    pinned: bool = False
    active_root: Count | None = None
    draft: StoredDraft = msgspec.field(default_factory=StoredDraft)
    turns: tuple[DocumentTurn, ...] = ()
    """Parents before their children."""
    media: tuple[DocumentMedia, ...] = ()

    @property
    def attachments(self) -> Iterator[Attachment]:
        """Every attachment, once for each place where it is used."""
        for turn in self.turns:
            yield from turn.attachments
        yield from self.draft.attachments.values()

    @property
    def shown(self) -> list[DocumentTurn]:
        """The branch that is shown, the first turn first."""
        by_id = {turn.id: turn for turn in self.turns}
        found: list[DocumentTurn] = []
        turn = None if self.active_root is None else by_id.get(self.active_root)
        while turn is not None and len(found) < len(self.turns):
            found.append(turn)
            turn = None if turn.active_child is None else by_id.get(turn.active_child)
        return found


def document_of(store: Store, conversation: ConversationId) -> Document:
    """The conversation as it stands. An answer that still runs is taken as interrupted."""
    row = store.conversation(conversation)
    turns = store.tree(conversation)
    shown = store.turns(conversation, limit=1)
    return Document(
        title=row.title,
        model=row.model,
        created_ms=row.created_ms,
        updated_ms=row.updated_ms,
        pinned=row.pinned,
        active_root=_root_of({turn.id: turn for turn in turns}, shown[0].id) if shown else None,
        draft=store.draft(conversation),
        turns=tuple(_exported(store, turn) for turn in turns),
    )


def _root_of(turns: dict[TurnId, StoredTurn], turn: TurnId) -> TurnId:
    while (parent := turns[turn].parent) is not None:
        turn = parent
    return turn


def _exported(store: Store, turn: StoredTurn) -> DocumentTurn:
    return DocumentTurn(
        id=turn.id,
        parent=turn.parent,
        role=turn.role,
        parts=turn.parts,
        state="interrupted" if turn.state == "running" else turn.state,
        created_ms=turn.created_ms,
        ended_ms=turn.ended_ms,
        tokens=turn.tokens,
        statistics=turn.statistics,
        failure=turn.failure,
        recipe=turn.recipe,
        active_child=turn.active_child,
        comparisons=tuple(
            DocumentComparison(created_ms=item.created_ms, document=item.document)
            for item in store.comparisons(turn.id)
        ),
    )
