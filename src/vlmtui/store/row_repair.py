"""Repairs rows read from a damaged database, so that none refers to a lost row."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Media, Part
from vlmtui.store.database import Row
from vlmtui.store.json_text import from_json_text
from vlmtui.store.tables import COMPARISONS, CONVERSATIONS, DRAFTS, MEDIA_REFERENCES, TABLES, TURNS, Table

_LOG = logging.getLogger(__name__)
_Columns = dict[str, Any]
"""A row by column name."""


def mend(rows: Mapping[str, list[Row]]) -> dict[str, list[Row]]:
    """Return the repaired rows by table. A turn whose parent is lost is attached to the turn before it; turns whose
    conversation is lost get a new one. Damaged rows are left out."""
    valid = {table.name: _valid(rows.get(table.name, []), table) for table in TABLES}
    conversations = {item["id"]: item for item in valid[CONVERSATIONS.name]}
    turns = {item["id"]: item for item in valid[TURNS.name]}
    _adopt(conversations, turns)
    _hang(conversations, turns)
    drafts = [item for item in valid[DRAFTS.name] if item["conversation"] in conversations]
    comparisons = [item for item in valid[COMPARISONS.name] if item["turn"] in turns]
    references = _references(turns, drafts)
    with_draft = {item["conversation"] for item in drafts}
    for item in valid[MEDIA_REFERENCES.name]:
        if item["turn"] in turns or (item["turn"] is None and item["draft"] in with_draft):
            references.setdefault(tuple(item.values()), item)
    return {
        CONVERSATIONS.name: _rows(conversations.values()),
        TURNS.name: _rows(turns.values()),
        DRAFTS.name: _rows(drafts),
        COMPARISONS.name: _rows(comparisons),
        MEDIA_REFERENCES.name: sorted(_rows(references.values()), key=str),
    }


def _rows(items: Iterable[_Columns]) -> list[Row]:
    return [tuple(item.values()) for item in items]


def _valid(rows: list[Row], table: Table) -> list[_Columns]:
    """Return the rows whose values have the types of the table's columns."""
    found: list[_Columns] = []
    for row in rows:
        try:
            found.append(table.checked(row))
        except msgspec.ValidationError as error:
            _LOG.warning("salvage: a damaged row is left out: %s", error)
    return found


def _adopt(conversations: dict[str, _Columns], turns: dict[int, _Columns]) -> None:
    number = max((item["number"] for item in conversations.values()), default=0)
    for turn in turns.values():
        if turn["conversation"] not in conversations:
            number += 1
            known = {
                "number": number,
                "id": turn["conversation"],
                "title": "Recovered conversation",
                "model": "",
                "created_ms": turn["created_ms"],
                "updated_ms": turn["created_ms"],
            }
            conversations[turn["conversation"]] = CONVERSATIONS.filled(known)


def _references(turns: dict[int, _Columns], drafts: list[_Columns]) -> dict[Row, _Columns]:
    """Derive the media references from turns and drafts, as the table of references may have lost rows."""
    needs: list[_Columns] = []
    for turn in turns.values():
        parts = from_json_text(turn["parts"], tuple[Part, ...], otherwise=())
        needs += [{"sha256": part.attachment.sha256, "turn": turn["id"]} for part in parts if isinstance(part, Media)]
    for draft in drafts:
        known = from_json_text(draft["attachments"], dict[int, Attachment], otherwise={})
        needs += [{"sha256": item.sha256, "draft": draft["conversation"]} for item in known.values()]
    filled = (MEDIA_REFERENCES.filled(one) for one in needs)
    return {tuple(one.values()): one for one in filled}


def _is_above(parent: _Columns | None, turn: _Columns) -> bool:
    return parent is not None and parent["id"] < turn["id"] and parent["conversation"] == turn["conversation"]


def _hang(conversations: dict[str, _Columns], turns: dict[int, _Columns]) -> None:
    """Repair parents and depths. Parents have smaller ids than their children, so one pass is enough."""
    last: dict[str, int] = {}
    children: dict[int | None, set[int]] = {}
    roots: dict[str, list[int]] = {}
    for turn in sorted(turns.values(), key=lambda item: int(item["id"])):
        conversation = turn["conversation"]
        if turn["parent"] is not None and not _is_above(turns.get(turn["parent"]), turn):
            turn["parent"] = last.get(conversation)
        turn["depth"] = 0 if turn["parent"] is None else turns[turn["parent"]]["depth"] + 1
        if turn["parent"] is None:
            roots.setdefault(conversation, []).append(turn["id"])
        children.setdefault(turn["parent"], set()).add(turn["id"])
        last[conversation] = turn["id"]
    for turn in turns.values():
        below = children.get(turn["id"], set())
        if turn["active_child"] not in below:
            turn["active_child"] = max(below, default=None)
    for found in conversations.values():
        tops = roots.get(found["id"], [])
        if found["active_root"] not in tops:
            found["active_root"] = max(tops, default=None)
        leaf = found["active_root"]
        while leaf is not None and (below_leaf := turns[leaf]["active_child"]) is not None:
            leaf = below_leaf
        found["leaf"] = leaf
