"""Making a whole of the rows that a damaged database gave back: no row may point at one that is lost."""

from __future__ import annotations

import logging
from typing import TypeVar, get_args

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Media, Part, Role
from vlmtui.store.columns import from_json
from vlmtui.store.database import Row
from vlmtui.store.records import TurnState

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_ROLES, _STATES = get_args(Role), get_args(TurnState)


class ConversationRow(msgspec.Struct):
    number: int
    id: str
    title: str
    model: str
    created_ms: int
    updated_ms: int
    pinned: int
    deleted_ms: int | None
    active_root: int | None
    leaf: int | None


class TurnRow(msgspec.Struct):
    id: int
    conversation: str
    parent: int | None
    active_child: int | None
    depth: int
    role: str
    state: str
    created_ms: int
    ended_ms: int | None
    tokens: int
    writer: str | None
    statistics: str | None
    failure: str | None
    text: str
    parts: str | None
    recipe: str | None


def mend(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The rows by table, in the order to insert them. A turn whose parent is lost hangs below the turn that was said
    before it; turns whose conversation is lost get a new one. Rows that are damaged in themselves are left out."""
    conversations = {item.id: item for item in _valid(rows.get("conversations", []), ConversationRow)}
    valid = _valid(rows.get("turns", []), TurnRow)
    turns = {item.id: item for item in valid if item.state in _STATES and item.role in _ROLES}
    _adopt(conversations, turns)
    _hang(conversations, turns)
    drafts = [row for row in rows.get("drafts", []) if row[0] in conversations]
    with_draft = {row[0] for row in drafts}
    references = rows.get("media_references", [])
    kept = {row for row in references if row[1] in turns or (row[1] is None and row[2] in with_draft)}
    return {
        "conversations": [msgspec.structs.astuple(item) for item in conversations.values()],
        "turns": [msgspec.structs.astuple(item) for item in turns.values()],
        "drafts": drafts,
        "comparisons": [row for row in rows.get("comparisons", []) if row[1] in turns],
        "media_references": sorted(kept | _references(turns, drafts), key=str),
    }


def _valid(rows: list[Row], wanted: type[_T]) -> list[_T]:
    """The rows whose values have the types that the table asks for."""
    found: list[_T] = []
    names = msgspec.structs.fields(wanted)  # type: ignore[arg-type]
    for row in rows:
        try:
            found.append(msgspec.convert({field.name: value for field, value in zip(names, row, strict=True)}, wanted))
        except msgspec.ValidationError as error:
            _LOG.warning("salvage: a damaged row is left out: %s", error)
    return found


def _adopt(conversations: dict[str, ConversationRow], turns: dict[int, TurnRow]) -> None:
    number = max((item.number for item in conversations.values()), default=0)
    for turn in turns.values():
        if turn.conversation not in conversations:
            number += 1
            conversations[turn.conversation] = ConversationRow(
                number=number,
                id=turn.conversation,
                title="Recovered conversation",
                model="",
                created_ms=turn.created_ms,
                updated_ms=turn.created_ms,
                pinned=0,
                deleted_ms=None,
                active_root=None,
                leaf=None,
            )


def _references(turns: dict[int, TurnRow], drafts: list[Row]) -> set[Row]:
    """What turns and drafts themselves say that they need: the table of references may have lost rows of its own."""
    found: set[Row] = set()
    for turn in turns.values():
        parts = from_json(turn.parts, tuple[Part, ...], otherwise=())
        found |= {(part.attachment.sha256, turn.id, None) for part in parts if isinstance(part, Media)}
    for conversation, _, attachments, _ in drafts:
        known = from_json(attachments, dict[int, Attachment], otherwise={})
        found |= {(attachment.sha256, None, conversation) for attachment in known.values()}
    return found


def _is_above(parent: TurnRow | None, turn: TurnRow) -> bool:
    return parent is not None and parent.id < turn.id and parent.conversation == turn.conversation


def _hang(conversations: dict[str, ConversationRow], turns: dict[int, TurnRow]) -> None:
    """Parents come before their children (ids only grow), so one pass in the order of ids is enough."""
    last: dict[str, int] = {}
    children: dict[int | None, set[int]] = {}
    roots: dict[str, list[int]] = {}
    for turn in sorted(turns.values(), key=lambda item: item.id):
        if turn.parent is not None and not _is_above(turns.get(turn.parent), turn):
            turn.parent = last.get(turn.conversation)
        turn.depth = 0 if turn.parent is None else turns[turn.parent].depth + 1
        if turn.parent is None:
            roots.setdefault(turn.conversation, []).append(turn.id)
        children.setdefault(turn.parent, set()).add(turn.id)
        last[turn.conversation] = turn.id
    for turn in turns.values():
        below = children.get(turn.id, set())
        if turn.active_child not in below:
            turn.active_child = max(below, default=None)
    for conversation in conversations.values():
        tops = roots.get(conversation.id, [])
        if conversation.active_root not in tops:
            conversation.active_root = max(tops, default=None)
        leaf = conversation.active_root
        while leaf is not None and (below_leaf := turns[leaf].active_child) is not None:
            leaf = below_leaf
        conversation.leaf = leaf
