"""The conversation store, the interface of this package. A conversation is a tree of turns."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from vlmtui.domain.conversation import Attachment, Part, Text, Turn
from vlmtui.errors import bad_input
from vlmtui.media.content_store import remove_copies
from vlmtui.store.database import Database, ProcessLock, Row
from vlmtui.store.holder import is_on_network, release
from vlmtui.store.opening import FILE, explaining, prepare_database, require_readable
from vlmtui.store.records import (
    AnswerData,
    ConversationId,
    ConversationRecord,
    GenerationRecord,
    ListEntry,
    Snippet,
    StoredComparison,
    StoredDraft,
    StoredTurn,
    TurnId,
)
from vlmtui.store.tables import COMPARISONS, CONVERSATIONS, DRAFTS, TURNS, Table

_OPEN = "\ue000"
"""Private-use character before a match."""
_CLOSE = "\ue001"
"""Private-use character after a match."""
_SNIPPET_TOKENS = 16
_QUERY_MAX, _WORDS_MAX = 1_000, 32
SNIPPET = f"snippet(turns_search, 0, '{_OPEN}', '{_CLOSE}', '…', {_SNIPPET_TOKENS})"
"""SQL expression for the text around the matches in one turn."""
_WHOLE = 2**31
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32: sorts numerically, and no two characters look alike."""
_LENGTH = "coalesce((SELECT depth + 1 FROM turns WHERE turns.id = c.leaf), 0)"
_DRAFT = "(SELECT substr(text, 1, 1000) FROM drafts WHERE drafts.conversation = c.id)"
_ATTACHMENTS = """(
    SELECT count(DISTINCT m.sha256) FROM turns AS t JOIN media_references AS m ON m.turn = t.id
    WHERE t.conversation = c.id
)"""
_ORDER = "ORDER BY c.pinned DESC, c.updated_ms DESC, c.number DESC LIMIT ?1 OFFSET ?2"
_PLACE = """
    (SELECT count(*) FROM turns AS s WHERE s.conversation = t.conversation AND s.parent IS t.parent AND s.id <= t.id),
    (SELECT count(*) FROM turns AS s WHERE s.conversation = t.conversation AND s.parent IS t.parent)
"""
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


def match_expression(query: str) -> str | None:
    """Return an FTS5 expression that matches all words of `query`, the last one as a prefix; None if it has no words.
    Words are quoted, so that they cannot act as operators."""
    words = [word for word in query[:_QUERY_MAX].split() if any(character.isalnum() for character in word)]
    quoted = [f'"{_plain(word)}"' for word in words[:_WORDS_MAX]]
    return " ".join(quoted) + "*" if quoted else None


def read_snippet(marked: str) -> Snippet:
    """Split text in which FTS5 has marked the matches into plain text and the positions of the matches. If the stored
    text itself contains these marks, only the positions are wrong."""
    text, marks, start = "", [], -1
    for character in marked:
        if character == _OPEN:
            start = len(text)
        elif character == _CLOSE:
            if 0 <= start < len(text):
                marks.append((start, len(text)))
            start = -1
        else:
            text += character
    return Snippet(text, tuple(marks))


def _plain(word: str) -> str:
    """Remove characters that SQLite cannot handle, and double the quotes."""
    kept = "".join(character for character in word if character != "\0" and not "\ud800" <= character <= "\udfff")
    return kept.replace('"', '""')


class Store:
    """The conversations in one folder. Create it with `Store.open`.

    Calls block and must not overlap; other processes may use the same folder. A call that changes something has
    committed it to disk when it returns. One that raises VlmtuiError (disk full, database locked …) has changed
    nothing, and the store remains usable.
    """

    def __init__(self, database: Database, lock: ProcessLock, media: Path, notice: str = "") -> None:
        self.database = database
        self._lock = lock
        self.media = media
        self.notice = notice
        """A message for the user about the opening; usually empty."""

    @classmethod
    def open(
        cls,
        folder: Path,
        media: Path | None = None,
        *,
        busy_s: float = 5.0,
        now: Callable[[], float] = time.time,
        thorough: bool = False,
    ) -> Store:
        """Open the store in `folder` (0700, created if missing); only for reading if it can't be written. Raises
        VlmtuiError.

        Args:
            folder: `Paths.data`.
            media: where images and videos are stored; default `folder/media`.
            busy_s: seconds to wait for another process's lock before giving up.
            now: the clock, seconds since 1970. A clock that runs backwards does not change the order of records.
            thorough: look at the whole database, however long it takes.
        """
        media = media or folder / "media"
        notice = prepare_database(folder, media, busy_s=busy_s, thorough=thorough)
        with ExitStack() as undone, explaining(folder / FILE):
            database = Database(folder / FILE, busy_s=busy_s, now=now)
            undone.callback(database.close)
            lock = ProcessLock(folder / "sessions", to_read=database.is_read_only)
            lock.forget_dead()
            undone.pop_all()
        return cls(database, lock, media, notice)

    @classmethod
    def open_on_full_disk(cls, folder: Path, media: Path | None = None) -> Store:
        """Open the store for reading while its disk is full; other processes are locked out. Raises VlmtuiError."""
        path = folder / FILE
        require_readable(path)
        with explaining(path):
            lock = ProcessLock(folder / "sessions")
            database = Database(path, busy_s=0.0, now=time.time, exclusively=True)
        return cls(database, lock, media or folder / "media")

    def close(self) -> None:
        """Close the store; may be called twice. Answers that it has not finished writing then count as interrupted."""
        self.database.close()
        if is_on_network(self.database.path) and not self.database.is_read_only and not self._lock.others():
            release(self.database.path)
        self._lock.close()

    @property
    def is_stale(self) -> bool:
        """True if the file is damaged, was replaced, or has become read-only or writable, so that the store must be
        closed and opened again."""
        return self.database.is_stale or self.database.is_damaged

    @contextmanager
    def together(self) -> Iterator[None]:
        """Group changes: commit all of them on exit, or none."""
        with self.database.writing():
            yield

    # -- conversations

    def new_conversation(self, *, title: str = "", model: str = "") -> ConversationId:
        with self.database.writing() as now:
            made = _new_id(now)
            # All conversations of a transaction share one time.
            while self.database.row("SELECT 1 FROM conversations WHERE id = ?", (made,)) is not None:
                made = _new_id(now)
            fields = {"id": made, "title": title, "model": model, "created_ms": now, "updated_ms": now}
            self.database.insert("conversations", CONVERSATIONS.encode(fields))
            return made

    def conversation(self, conversation: ConversationId) -> ConversationRecord:
        """Return a conversation. Raises VlmtuiError if there is no conversation with this id."""
        row = self.database.row(
            f"SELECT {_conversation_columns()} FROM conversations AS c WHERE c.id = ?", (conversation,)
        )
        if row is None:
            raise bad_input(f"There is no conversation {conversation}.")
        return _conversation(row)

    def last(self) -> ConversationId | None:
        """Return the conversation whose turns or draft changed last, or None."""
        sql = (
            "SELECT c.id FROM conversations AS c LEFT JOIN drafts AS d ON d.conversation = c.id"
            " WHERE c.deleted_ms IS NULL"
            " ORDER BY max(c.updated_ms, coalesce(d.saved_ms, 0)) DESC, c.number DESC LIMIT 1"
        )
        found = self.database.row(sql)
        return None if found is None else ConversationId(found[0])

    def conversations(self, query: str | None = None, *, limit: int = 50, offset: int = 0) -> list[ListEntry]:
        """Return pinned conversations first, then the most recently changed. With `query`: those whose title or one of
        whose turns has all its words; the last word is a prefix."""
        if query is None or not query.strip():
            sql = f"SELECT {_entry_columns()}, NULL FROM conversations AS c WHERE c.deleted_ms IS NULL {_ORDER}"
            return [self._found("", row) for row in self.database.rows(sql, (limit, offset))]
        expression = match_expression(query)
        if expression is None:
            return []
        sql = f"""
            WITH hits (id, turn) AS (
                SELECT t.conversation, max(t.id) FROM turns_search JOIN turns AS t ON t.id = turns_search.rowid
                WHERE turns_search MATCH ?3 GROUP BY t.conversation
                UNION ALL
                SELECT c.id, NULL FROM titles_search JOIN conversations AS c ON c.number = titles_search.rowid
                WHERE titles_search MATCH ?3
            )
            SELECT {_entry_columns()}, (SELECT max(turn) FROM hits WHERE hits.id = c.id)
            FROM conversations AS c WHERE c.id IN (SELECT id FROM hits) AND c.deleted_ms IS NULL {_ORDER}
        """
        with self.database.reading():
            rows = self.database.rows(sql, (limit, offset, expression))
            return [self._found(expression, row) for row in rows]

    def _found(self, expression: str, row: Row) -> ListEntry:
        *columns, draft, attachments, turn = row
        snippet: Row | None = None
        if turn is not None:
            sql = f"SELECT {SNIPPET} FROM turns_search WHERE turns_search MATCH ? AND rowid = ?"
            snippet = self.database.row(sql, (expression, turn))
        return ListEntry(
            conversation=_conversation(tuple(columns)),
            draft=draft or "",
            attachments=attachments,
            turn=turn,
            snippet=None if snippet is None else read_snippet(snippet[0]),
        )

    def rename(self, conversation: ConversationId, title: str) -> None:
        self._change(CONVERSATIONS, conversation, title=title)

    def set_model(self, conversation: ConversationId, model: str) -> None:
        self._change(CONVERSATIONS, conversation, model=model)

    def pin(self, conversation: ConversationId, pinned: bool = True) -> None:
        self._change(CONVERSATIONS, conversation, pinned=pinned)

    def delete(self, conversation: ConversationId) -> None:
        """Hide a conversation; `undelete` restores it, `purge` erases it."""
        with self.database.writing() as now:
            self.update(CONVERSATIONS, conversation, deleted_ms=now)

    def undelete(self, conversation: ConversationId) -> None:
        self._change(CONVERSATIONS, conversation, deleted_ms=None)

    def deleted(self) -> list[ConversationRecord]:
        """Return the conversations that can be restored, most recently deleted first."""
        sql = f"SELECT {_conversation_columns()} FROM conversations AS c WHERE c.deleted_ms IS NOT NULL"
        sql += " ORDER BY c.deleted_ms DESC"
        return [_conversation(row) for row in self.database.rows(sql)]

    def purge(self, conversation: ConversationId) -> None:
        """Erase a conversation with all its turns. Its media stay; see `purge_deleted`."""
        with self.database.writing():
            self.conversation(conversation)
            # Cascading from turn to turn could nest a thousand triggers, which SQLite refuses.
            self.database.rows("UPDATE turns SET parent = NULL WHERE conversation = ?", (conversation,))
            self.database.rows("DELETE FROM conversations WHERE id = ?", (conversation,))

    def purge_deleted(self, older_than_s: float) -> list[ConversationId]:
        """Erase, in one transaction, the conversations that were deleted at least `older_than_s` seconds ago, and
        return their ids. A conversation that has changed within that time, or has a running answer, stays. So do media
        that another turn or draft uses.

        Files are removed before the commit. If the process is killed in between, the conversation stays until the next
        call erases it, and no unused file is left. Raises VlmtuiError if the database cannot be written, OSError if a
        file cannot be removed.
        """
        due_sql = (
            "SELECT c.id FROM conversations AS c LEFT JOIN drafts AS d ON d.conversation = c.id"
            " WHERE c.deleted_ms IS NOT NULL AND max(c.deleted_ms, c.updated_ms, coalesce(d.saved_ms, 0)) <= ?"
        )
        media_sql = (
            "SELECT DISTINCT m.sha256 FROM media_references AS m LEFT JOIN turns AS t ON t.id = m.turn"
            " WHERE t.conversation = ?1 OR m.draft = ?1"
        )
        with self.database.writing():
            rows = self.database.rows(due_sql, (self.database.clock_ms - int(older_than_s * 1000),))
            due = [ConversationId(row[0]) for row in rows if not self.is_answering(row[0])]
            used = {row[0] for conversation in due for row in self.database.rows(media_sql, (conversation,))}
            for conversation in due:
                self.purge(conversation)
            for sha256 in sorted(used):
                if self.database.row("SELECT 1 FROM media_references WHERE sha256 = ?", (sha256,)) is None:
                    remove_copies(self.media, sha256)
        return due

    # -- turns

    def add_turn(self, conversation: ConversationId, parent: TurnId | None, turn: Turn) -> TurnId:
        """Add a turn below `parent` (None: at the beginning), and make its branch the active one. A second child of a
        parent starts a new branch. If the conversation was deleted while another terminal had it open, it is
        restored."""
        with self.database.writing() as now:
            self.update(CONVERSATIONS, conversation, deleted_ms=None)
            if turn.role == "user":
                self.update(CONVERSATIONS, conversation, imported=False)
            fields = {"role": turn.role, "state": "complete", "created_ms": now, **parts_fields(turn.parts)}
            added = self.insert_turn(conversation, parent, fields, turn.attachments)
            self._show(conversation, now, added)
            return added

    def begin_answer(self, parent: TurnId, generation: GenerationRecord) -> TurnId:
        """Add an answer to the turn `parent`, and make its branch the active one. The answer is `running` until
        `write_answer` ends it. A second answer to the same parent is a sibling of the first."""
        with self.database.writing() as now:
            conversation = ConversationId(self._row_of(parent, "conversation")[0])
            fields = {"role": "assistant", "state": "running", "created_ms": now, "text": ""}
            fields |= {"writer": self._lock.id, "generation": generation, "mode": generation.mode}
            answer = self.insert_turn(conversation, parent, fields)
            self._show(conversation, now, answer)
            return answer

    def insert_turn(
        self,
        conversation: ConversationId,
        parent: TurnId | None,
        fields: Mapping[str, object],
        attachments: Iterable[Attachment] = (),
    ) -> TurnId:
        """Insert a turn with these fields, and references to its media. Call it inside a transaction."""
        depth = 0
        if parent is not None:
            row = self.database.row("SELECT depth FROM turns WHERE id = ? AND conversation = ?", (parent, conversation))
            if row is None:
                raise bad_input(f"There is no turn {parent} in the conversation {conversation}.")
            depth = int(row[0]) + 1
        place = {"conversation": conversation, "parent": parent, "depth": depth}
        added = TurnId(self.database.insert("turns", {**place, **TURNS.encode(fields)}))
        self._add_references(added, attachments)
        return added

    def leave_out(self, turn: TurnId, left_out: bool) -> None:
        """Set whether the attachments of a user turn are left out of prompts."""
        self._change(TURNS, turn, left_out=left_out)

    def write_answer(self, answer: TurnId, text: str, data: AnswerData) -> None:
        """Store the answer's whole text so far, and the fields of `data` that are not None. A state other than
        `running` ends the answer. After a failed call, the next one still stores everything."""
        fields = {name: value for name, value in msgspec.structs.asdict(data).items() if value is not None}
        if data.generation is not None:
            fields["mode"] = data.generation.mode
        with self.database.writing() as now:
            conversation = self._require_open(answer)
            if fields.pop("state") != "running":
                fields |= {"state": data.state, "ended_ms": now, "writer": None}
                self.update(CONVERSATIONS, conversation, updated_ms=now)
            self.update(TURNS, answer, text=text, **fields)

    def turn(self, turn: TurnId) -> StoredTurn:
        """Return a turn. Raises VlmtuiError if there is no turn with this id."""
        return _turn(self._row_of(turn, _turn_columns()))

    def turns(self, conversation: ConversationId, limit: int = 50, *, generations: bool = True) -> list[StoredTurn]:
        """Return the last `limit` turns of the active branch, oldest first. Reads no other turn. Without `generations`,
        generation records, which contain whole prompts, are not read."""
        with self.database.reading():
            return self._branch(self.conversation(conversation).leaf, limit, generations=generations)

    def path(self, conversation: ConversationId) -> list[StoredTurn]:
        """Return the active branch, oldest turn first."""
        return self.turns(conversation, limit=_WHOLE)

    def above(self, turn: TurnId) -> list[StoredTurn]:
        """Return the ancestors of `turn`, oldest first, without generation records."""
        return self._branch(self._row_of(turn, "t.parent")[0], _WHOLE, generations=False)

    def _branch(self, end: TurnId | None, limit: int, *, generations: bool) -> list[StoredTurn]:
        if end is None or limit < 1:
            return []
        sql = f"{_UP} SELECT {_turn_columns(generations=generations)} FROM up JOIN turns AS t ON t.id = up.id"
        return [_turn(row) for row in self.database.rows(f"{sql} ORDER BY up.steps DESC", (end, limit))]

    def tree(self, conversation: ConversationId) -> list[StoredTurn]:
        """Return all turns of all branches, parents before children."""
        sql = f"SELECT {_turn_columns()} FROM turns AS t WHERE t.conversation = ? ORDER BY t.id"
        return [_turn(row) for row in self.database.rows(sql, (conversation,))]

    def siblings(self, turn: TurnId) -> list[TurnId]:
        """Return all turns with the same parent, including this one, oldest first."""
        row = self._row_of(turn, "conversation, parent")
        sql = "SELECT id FROM turns WHERE conversation = ? AND parent IS ? ORDER BY id"
        return [TurnId(found[0]) for found in self.database.rows(sql, row)]

    def activate(self, turn: TurnId) -> None:
        """Make the branch through `turn` the active one. Below `turn`, it continues with the branch that was active
        there last."""
        with self.database.writing():
            conversation, parent, depth = self._row_of(turn, "conversation, parent, depth")
            leaf = self.database.row("SELECT leaf FROM conversations WHERE id = ?", (conversation,))
            if parent is not None and leaf is not None and leaf[0] == parent:
                # The active branch grows; nothing above changes.
                self.database.rows("UPDATE turns SET active_child = ? WHERE id = ?", (turn, parent))
            else:
                above = self.database.rows(f"{_UP} SELECT id, parent FROM up", (turn, int(depth) + 1))
                for child, top in above:
                    if top is not None:
                        self.database.rows("UPDATE turns SET active_child = ? WHERE id = ?", (child, top))
                self.update(CONVERSATIONS, conversation, active_root=above[-1][0])
            end = self.database.row(f"{_DOWN} SELECT id FROM down ORDER BY depth DESC LIMIT 1", (turn,))
            assert end is not None
            self.update(CONVERSATIONS, conversation, leaf=end[0])

    def mark_interrupted(self) -> list[TurnId]:
        """Mark running answers whose writer has died as interrupted; their text stays. Answers of other living
        processes are left alone."""
        with self.database.writing() as now:
            rows = self.database.rows("SELECT id, writer FROM turns WHERE state = 'running' ORDER BY id")
            alive = {writer: self._lock.is_alive(writer or "") for writer in {row[1] for row in rows}}
            dead = [TurnId(turn) for turn, writer in rows if not alive[writer]]
            for turn in dead:
                self.update(TURNS, turn, state="interrupted", ended_ms=now, writer=None)
            return dead

    def interrupted(self, limit: int = 20) -> list[StoredTurn]:
        """Return the newest interrupted answers, newest first."""
        sql = (
            "SELECT t.id FROM turns AS t JOIN conversations AS c ON c.id = t.conversation"
            " WHERE t.state = 'interrupted' AND c.deleted_ms IS NULL ORDER BY t.id DESC LIMIT ?"
        )
        return [self.turn(TurnId(row[0])) for row in self.database.rows(sql, (limit,))]

    def ended_among(self, request_ids: Sequence[str]) -> list[str]:
        """Return those of the given request ids whose answers have ended and are stored."""
        sql = """
            SELECT r.value FROM json_each(?) AS r JOIN turns AS t
            ON r.value = CASE WHEN json_valid(t.recipe) THEN t.recipe ->> '$.request_id' END
            WHERE t.state NOT IN ('running', 'interrupted')
        """
        return [row[0] for row in self.database.rows(sql, (msgspec.json.encode(request_ids).decode(),))]

    def is_answering(self, conversation: ConversationId) -> bool:
        """Return True if a living process is writing an answer in the conversation."""
        sql = "SELECT writer FROM turns WHERE conversation = ? AND state = 'running'"
        return any(self._lock.is_alive(row[0] or "") for row in self.database.rows(sql, (conversation,)))

    def take_over(self, answer: TurnId) -> bool:
        """Become the writer of an interrupted answer. Return False if another process was faster, or if the answer has
        ended."""
        with self.database.writing():
            sql = "UPDATE turns SET state = 'running', writer = ? WHERE id = ? AND state = 'interrupted' RETURNING id"
            return bool(self.database.rows(sql, (self._lock.id, answer)))

    def give_back(self, answer: TurnId) -> None:
        """Mark an answer as interrupted again, after `take_over`."""
        with self.database.writing() as now:
            self.update(TURNS, answer, state="interrupted", ended_ms=now, writer=None)

    # -- drafts, comparisons, media

    def save_draft(self, conversation: ConversationId, draft: StoredDraft) -> None:
        """Store a draft; an empty one is deleted."""
        with self.database.writing() as now:
            self.conversation(conversation)
            self.database.rows("DELETE FROM drafts WHERE conversation = ?", (conversation,))
            if draft.text or draft.attachments:
                fields = {**msgspec.structs.asdict(draft), "conversation": conversation, "saved_ms": now}
                self.database.insert("drafts", DRAFTS.encode(fields))
                for sha256 in {item.sha256 for item in draft.attachments.values()}:
                    self.database.insert("media_references", {"sha256": sha256, "draft": conversation})

    def draft(self, conversation: ConversationId) -> StoredDraft:
        """Return the stored draft, or an empty one."""
        row = self.database.row(f"SELECT {DRAFTS.names} FROM drafts WHERE conversation = ?", (conversation,))
        if row is None:
            return StoredDraft()
        fields = DRAFTS.decode(row)
        return StoredDraft(text=fields["text"], attachments=fields["attachments"])

    def add_comparison(self, turn: TurnId, document: object, attachments: Iterable[Attachment] = ()) -> None:
        """Store a document (anything that msgspec can encode as JSON) and its media references with a turn."""
        with self.database.writing() as now:
            self._row_of(turn, "id")
            self._add_references(turn, attachments)
            fields = {"turn": turn, "created_ms": now, "document": document}
            self.database.insert("comparisons", COMPARISONS.encode(fields))

    def comparisons(self, turn: TurnId) -> list[StoredComparison]:
        """Return the documents of a turn, oldest first, as plain JSON values."""
        sql = f"SELECT {COMPARISONS.names} FROM comparisons WHERE turn = ? ORDER BY id"
        return [StoredComparison(**COMPARISONS.decode(row)) for row in self.database.rows(sql, (turn,))]

    def update(self, table: Table, key: ConversationId | TurnId, **fields: object) -> None:
        """Change fields of a conversation or a turn. Call it inside a transaction."""
        values = table.encode(fields)
        sets = ", ".join(f"{column} = ?" for column in values)
        sql = f"UPDATE {table.name} SET {sets} WHERE id = ? RETURNING id"
        if not self.database.rows(sql, (*values.values(), key)):
            raise bad_input(f"There is no {table.name.removesuffix('s')} {key}.")

    def _change(self, table: Table, key: ConversationId | TurnId, **fields: object) -> None:
        with self.database.writing():
            self.update(table, key, **fields)

    def _show(self, conversation: ConversationId, now: int, turn: TurnId) -> None:
        self.update(CONVERSATIONS, conversation, updated_ms=now)
        self.activate(turn)

    def _add_references(self, turn: TurnId, attachments: Iterable[Attachment]) -> None:
        for sha256 in dict.fromkeys(item.sha256 for item in attachments):
            self.database.insert("media_references", {"sha256": sha256, "turn": turn})

    def _row_of(self, turn: TurnId, columns: str) -> Row:
        """Return these columns of a turn. Raises VlmtuiError if there is no such turn."""
        row = self.database.row(f"SELECT {columns} FROM turns AS t WHERE t.id = ?", (turn,))
        if row is None:
            raise bad_input(f"There is no turn {turn} in the conversations.")
        return row

    def _require_open(self, answer: TurnId) -> ConversationId:
        """Return the conversation of an answer that is running or interrupted, and may therefore be written. Raises
        VlmtuiError if the answer has ended."""
        conversation, role, state = self._row_of(answer, "conversation, role, state")
        if role != "assistant" or state not in ("running", "interrupted"):
            raise bad_input(f"The answer {answer} has already ended ({state}).")
        return ConversationId(conversation)


def parts_fields(parts: Sequence[Part]) -> dict[str, object]:
    """Return the fields that store a turn's parts. If a text is the only part, it is stored in `text`, and `parts` is
    None."""
    text = "".join(part.text for part in parts if isinstance(part, Text))
    only_text = len(parts) == 1 and isinstance(parts[0], Text)
    return {"text": text, "parts": None if only_text else tuple(parts)}


def _new_id(made_ms: int) -> ConversationId:
    """Return an id of nine characters for the time (milliseconds, until the year 3084) and four random ones."""
    number = (made_ms << 20) | secrets.randbits(20)
    return ConversationId("".join(_ALPHABET[number >> shift & 31] for shift in range(60, -1, -5)))


def _conversation_columns() -> str:
    return f"{CONVERSATIONS.select('c')}, {_LENGTH}"


def _entry_columns() -> str:
    return f"{_conversation_columns()}, {_DRAFT}, {_ATTACHMENTS}"


def _conversation(row: Row) -> ConversationRecord:
    fields = CONVERSATIONS.decode(row)
    del fields["number"]
    return ConversationRecord(length=row[-1], **fields)


def _turn_columns(*, generations: bool = True) -> str:
    return f"{TURNS.select('t', without='' if generations else 'recipe')}, {_PLACE}"


def _turn(row: Row) -> StoredTurn:
    fields = TURNS.decode(row)
    text, parts = fields.pop("text"), fields.pop("parts")
    del fields["writer"]
    position, siblings = row[-2:]
    return StoredTurn(parts=parts or (Text(text),), position=position, siblings=siblings, **fields)
