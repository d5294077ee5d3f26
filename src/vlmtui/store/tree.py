"""The tree of a conversation's turns: reading a branch, adding a turn, switching the active branch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Part, Text
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.store.database import Database, Row, Value
from vlmtui.store.records import ConversationId, StoredTurn, TurnId
from vlmtui.store.tables import TURNS

_PLACE = """
    (SELECT count(*) FROM turns AS s WHERE s.conversation = t.conversation AND s.parent IS t.parent AND s.id <= t.id),
    (SELECT count(*) FROM turns AS s WHERE s.conversation = t.conversation AND s.parent IS t.parent)
"""
_EVERY = 2**62
# A parent's id is smaller than its child's. Requiring this makes the walks end even in a damaged database.
_UP = """
    WITH RECURSIVE up (id, parent, steps) AS (
        SELECT id, parent, 1 FROM turns WHERE id = ?
        UNION ALL
        SELECT above.id, above.parent, up.steps + 1
        FROM turns AS above JOIN up ON above.id = up.parent AND above.id < up.id
        WHERE up.steps < ?
    )
"""
_DOWN = """
    WITH RECURSIVE down (id, active_child, depth) AS (
        SELECT id, active_child, depth FROM turns WHERE id = ?
        UNION ALL
        SELECT below.id, below.active_child, below.depth
        FROM turns AS below JOIN down ON below.id = down.active_child AND below.id > down.id
    )
"""


def read_branch(database: Database, end: TurnId | None, limit: int, *, generations: bool = True) -> list[StoredTurn]:
    """Return the last `limit` turns of the branch that ends with `end`, oldest first. Reads no other turn. Without
    `generations`, generation records, which contain whole prompts, are not read."""
    if end is None or limit < 1:
        return []
    columns = _columns(generations=generations)
    sql = f"{_UP} SELECT {columns} FROM up JOIN turns AS t ON t.id = up.id ORDER BY up.steps DESC"
    return [_turn(row) for row in database.rows(sql, (end, limit))]


def read_turn(database: Database, turn: TurnId) -> StoredTurn:
    row = database.row(f"SELECT {_columns()} FROM turns AS t WHERE t.id = ?", (turn,))
    if row is None:
        raise unknown_turn(turn)
    return _turn(row)


def read_all(database: Database, conversation: ConversationId, end: TurnId | None) -> list[StoredTurn]:
    """Return all turns of all branches, parents before children. `end` is the last turn of the shown branch. Reads the
    table without indexes, and the shown turns by their ids, as a damaged index or row, which SQLite's quick check does
    not detect, must not drop turns from an export."""
    sql = f"SELECT {_columns()} FROM turns AS t NOT INDEXED WHERE t.conversation = ? ORDER BY t.id"
    found = {turn.id: turn for turn in (_turn(row) for row in database.rows(sql, (conversation,)))}
    shown = database.rows(f"{_UP} SELECT id FROM up", (end, _EVERY)) if end is not None else []
    lost = [read_turn(database, TurnId(row[0])) for row in shown if row[0] not in found]
    return sorted([*found.values(), *lost], key=lambda turn: turn.id) if lost else list(found.values())


def insert_turn(
    database: Database,
    conversation: ConversationId,
    parent: TurnId | None,
    values: dict[str, Value],
    attachments: Iterable[Attachment] = (),
) -> TurnId:
    """Insert a turn, with `values` for its other columns, and its media references. Inside a transaction."""
    depth = _depth_below(database, conversation, parent)
    columns = {"conversation": conversation, "parent": parent, "depth": depth, **values}
    marks = ", ".join("?" * len(columns))
    row = database.row(
        f"INSERT INTO turns ({', '.join(columns)}) VALUES ({marks}) RETURNING id", tuple(columns.values())
    )
    assert row is not None
    add_references(database, TurnId(row[0]), (item.sha256 for item in attachments))
    return TurnId(row[0])


def show_branch(database: Database, turn: TurnId) -> None:
    """Make the branch through `turn` active, down to its end. Inside a transaction."""
    row = database.row("SELECT conversation, parent, depth FROM turns WHERE id = ?", (turn,))
    if row is None:
        raise unknown_turn(turn)
    conversation, parent, depth = row
    leaf = database.row("SELECT leaf FROM conversations WHERE id = ?", (conversation,))
    if parent is not None and leaf is not None and leaf[0] == parent:
        # The active branch grows; nothing above changes.
        database.rows("UPDATE turns SET active_child = ? WHERE id = ?", (turn, parent))
    else:
        above = database.rows(f"{_UP} SELECT id, parent FROM up", (turn, int(depth) + 1))
        database.connection.executemany(
            "UPDATE turns SET active_child = ? WHERE id = ?", [(child, top) for child, top in above if top is not None]
        )
        database.rows("UPDATE conversations SET active_root = ? WHERE id = ?", (above[-1][0], conversation))
    end = database.row(f"{_DOWN} SELECT id FROM down ORDER BY depth DESC LIMIT 1", (turn,))
    assert end is not None
    database.rows("UPDATE conversations SET leaf = ? WHERE id = ?", (end[0], conversation))


def add_references(database: Database, turn: TurnId, hashes: Iterable[str]) -> None:
    """Record that a turn uses these stored files."""
    for sha256 in dict.fromkeys(hashes):
        database.rows("INSERT INTO media_references (sha256, turn) VALUES (?, ?)", (sha256, turn))


def sibling_ids(database: Database, turn: TurnId) -> list[TurnId]:
    row = database.row("SELECT conversation, parent FROM turns WHERE id = ?", (turn,))
    if row is None:
        raise unknown_turn(turn)
    sql = "SELECT id FROM turns WHERE conversation = ? AND parent IS ? ORDER BY id"
    return [TurnId(found[0]) for found in database.rows(sql, row)]


def unknown_turn(turn: TurnId) -> VlmtuiError:
    return bad_input(f"There is no turn {turn} in the conversations.")


def parts_fields(parts: Sequence[Part]) -> dict[str, object]:
    """Return the fields that store the parts; a single text is stored only once."""
    text = "".join(part.text for part in parts if isinstance(part, Text))
    only_text = len(parts) == 1 and isinstance(parts[0], Text)
    return {"text": text, "parts": None if only_text else tuple(parts)}


def _depth_below(database: Database, conversation: ConversationId, parent: TurnId | None) -> int:
    if parent is None:
        if database.row("SELECT 1 FROM conversations WHERE id = ?", (conversation,)) is None:
            raise bad_input(f"There is no conversation {conversation}.")
        return 0
    row = database.row("SELECT depth FROM turns WHERE id = ? AND conversation = ?", (parent, conversation))
    if row is None:
        raise bad_input(f"There is no turn {parent} in the conversation {conversation}.")
    return int(row[0]) + 1


def _columns(*, generations: bool = True) -> str:
    return f"{TURNS.select('t', without='' if generations else 'recipe')}, {_PLACE}"


def _turn(row: Row) -> StoredTurn:
    fields = TURNS.decode(row)
    text, parts = fields.pop("text"), fields.pop("parts")
    del fields["writer"]
    position, siblings = row[-2:]
    return StoredTurn(parts=parts or (Text(text),), position=position, siblings=siblings, **fields)
