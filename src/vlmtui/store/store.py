"""The conversation store: the interface of this package."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Turn
from vlmtui.domain.failure import Failure
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, bad_input
from vlmtui.paths import private_dir
from vlmtui.store import listing, tree
from vlmtui.store.database import Database
from vlmtui.store.opening import FILE, explaining, prepare_database, require_readable
from vlmtui.store.process_lock import ProcessLock
from vlmtui.store.records import (
    ConversationId,
    ConversationRecord,
    GenerationRecord,
    ListEntry,
    Outcome,
    Pictures,
    StoredComparison,
    StoredDraft,
    StoredTurn,
    TurnId,
)
from vlmtui.store.tables import COMPARISONS, CONVERSATIONS, DRAFTS, TURNS, Table, from_json_text

_WHOLE = 2**31


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
        """What the user must know about its opening; empty: nothing."""

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
        """Open the store in `folder` (0700, created if missing). Raises VlmtuiError.

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
            lock = ProcessLock(private_dir(folder) / "sessions")
            undone.callback(lock.close)
            lock.forget_dead()
            database = Database(folder / FILE, busy_s=busy_s, now=now)
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
        """Close the store; may be called twice. Its running answers now count as interrupted."""
        self.database.close()
        self._lock.close()

    @property
    def is_stale(self) -> bool:
        """Whether the file is damaged or was replaced, so that the store must be closed and opened again."""
        return self.database.is_replaced or self.database.is_damaged

    @contextmanager
    def together(self) -> Iterator[None]:
        """Group changes: all of them are committed on exit, or none."""
        with self.database.writing():
            yield

    # -- conversations

    def new_conversation(self, *, title: str = "", model: str = "") -> ConversationId:
        with self.database.writing() as now:
            return listing.insert_conversation(self.database, now, title=title, model=model)

    def conversation(self, conversation: ConversationId) -> ConversationRecord:
        """Raises VlmtuiError where there is none."""
        return listing.read_conversation(self.database, conversation)

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
        """Return pinned conversations first, then the most recently changed. With `query`: those with all its words in
        the title or in one turn; the last word is a prefix."""
        return listing.list_conversations(self.database, query, limit, offset)

    def pictures(self, conversations: Sequence[ConversationId]) -> dict[ConversationId, Pictures]:
        """Return the images and videos of each of these conversations that has any."""
        return listing.pictures(self.database, conversations)

    def rename(self, conversation: ConversationId, title: str) -> None:
        self._change(CONVERSATIONS, conversation, title=title)

    def set_model(self, conversation: ConversationId, model: str) -> None:
        self._change(CONVERSATIONS, conversation, model=model)

    def pin(self, conversation: ConversationId, pinned: bool = True) -> None:
        self._change(CONVERSATIONS, conversation, pinned=pinned)

    def delete(self, conversation: ConversationId) -> None:
        """Hide a conversation; `undelete` restores it, `purge` erases it."""
        with self.database.writing() as now:
            self._update(CONVERSATIONS, conversation, deleted_ms=now)

    def undelete(self, conversation: ConversationId) -> None:
        self._change(CONVERSATIONS, conversation, deleted_ms=None)

    def deleted(self) -> list[ConversationRecord]:
        """Return the conversations that can be restored, most recently deleted first."""
        return listing.deleted_conversations(self.database)

    def purge(self, conversation: ConversationId) -> None:
        """Erase a conversation with all its turns. Its media stay; see `vlmtui.store.purging`."""
        with self.database.writing():
            listing.read_conversation(self.database, conversation)
            # Cascading from turn to turn could nest a thousand triggers, which SQLite refuses.
            self.database.rows("UPDATE turns SET parent = NULL WHERE conversation = ?", (conversation,))
            self.database.rows("DELETE FROM conversations WHERE id = ?", (conversation,))

    # -- turns

    def add_turn(
        self, conversation: ConversationId, parent: TurnId | None, turn: Turn, *, activate: bool = True
    ) -> TurnId:
        """Add a turn below `parent` (None: at the beginning). A second child of a parent starts a new branch. A deleted
        conversation, still open in another terminal, is restored."""
        with self.database.writing() as now:
            self._update(CONVERSATIONS, conversation, deleted_ms=None)
            if turn.role == "user":
                self._update(CONVERSATIONS, conversation, imported=False)
            fields = {"role": turn.role, "state": "complete", "created_ms": now, **tree.parts_fields(turn.parts)}
            added = tree.insert_turn(self.database, conversation, parent, TURNS.encode(fields), turn.attachments)
            self._touch(conversation, now, added if activate else None)
            return added

    def begin_answer(self, parent: TurnId, generation: GenerationRecord, *, activate: bool = True) -> TurnId:
        """Add an answer to the turn `parent`; it is `running` until `end_answer`. A second answer to the same parent is
        a sibling."""
        with self.database.writing() as now:
            row = self.database.row("SELECT conversation FROM turns WHERE id = ?", (parent,))
            if row is None:
                raise tree.unknown_turn(parent)
            fields = {"role": "assistant", "state": "running", "created_ms": now, "text": ""}
            fields |= {"writer": self._lock.id, "generation": generation, "mode": generation.mode}
            answer = tree.insert_turn(self.database, ConversationId(row[0]), parent, TURNS.encode(fields))
            self._touch(ConversationId(row[0]), now, answer if activate else None)
            return answer

    def leave_out(self, turn: TurnId, left_out: bool) -> None:
        """Set whether the attachments of a user turn are left out of prompts."""
        self._change(TURNS, turn, left_out=left_out)

    def set_generation(self, answer: TurnId, generation: GenerationRecord, used: Sampling | None = None) -> None:
        """Update facts that are only known after the answer's start: the rendered prompt, the sampling that is used."""
        self._change(TURNS, answer, generation=generation, mode=generation.mode, used=used)

    def append_answer(self, answer: TurnId, text: str, tokens: int) -> None:
        """Store the whole text so far and its token count. A failed call loses nothing if the next one succeeds."""
        with self.database.writing():
            self._require_open(answer)
            self._update(TURNS, answer, text=text, tokens=tokens)

    def end_answer(self, answer: TurnId, text: str, outcome: Outcome, *, tokens: int | None = None) -> None:
        """Store the whole text and how it ended. `tokens` defaults to the count in the statistics."""
        statistics, failure = outcome.statistics, outcome.failure
        if tokens is None and statistics is not None:
            tokens = statistics.usage.completion_tokens
        with self.database.writing() as now:
            conversation = self._require_open(answer)
            fields = {"text": text, "state": outcome.state, "ended_ms": now, "writer": None}
            fields |= {"statistics": statistics, "failure": failure} | ({} if tokens is None else {"tokens": tokens})
            self._update(TURNS, answer, **fields)
            self._touch(conversation, now, None)

    def turn(self, turn: TurnId) -> StoredTurn:
        """Raises VlmtuiError where there is none."""
        return tree.read_turn(self.database, turn)

    def turns(
        self, conversation: ConversationId, before: TurnId | None = None, limit: int = 50, *, generations: bool = True
    ) -> list[StoredTurn]:
        """Return the last `limit` turns of the active branch, or those just above `before`; oldest first. Without
        `generations`, generation records, which contain whole prompts, are not read."""
        with self.database.reading():
            end = listing.read_conversation(self.database, conversation).leaf
            if before is not None:
                end = tree.read_turn(self.database, before).parent
            return tree.read_branch(self.database, end, limit, generations=generations)

    def path(self, conversation: ConversationId) -> list[StoredTurn]:
        """Return the active branch, oldest turn first."""
        return self.turns(conversation, limit=_WHOLE)

    def above(self, turn: TurnId) -> list[StoredTurn]:
        """Return the ancestors of `turn`, oldest first, without generation records."""
        return tree.read_branch(self.database, tree.read_turn(self.database, turn).parent, _WHOLE, generations=False)

    def tree(self, conversation: ConversationId) -> list[StoredTurn]:
        """Return all turns of all branches, parents before children."""
        with self.database.reading():
            leaf = listing.read_conversation(self.database, conversation).leaf
            return tree.read_all(self.database, conversation, leaf)

    def siblings(self, turn: TurnId) -> list[TurnId]:
        """Return all turns with the same parent, including this one, oldest first."""
        return tree.sibling_ids(self.database, turn)

    def activate(self, turn: TurnId) -> None:
        """Make the branch through `turn` active; below it, the branch that was active there last."""
        with self.database.writing():
            tree.show_branch(self.database, turn)

    def mark_interrupted(self) -> list[TurnId]:
        """Mark running answers whose writer has died as interrupted; their text stays. Answers of other living
        processes are left alone."""
        with self.database.writing() as now:
            rows = self.database.rows("SELECT id, writer FROM turns WHERE state = 'running' ORDER BY id")
            alive = {writer: self._lock.is_alive(writer or "") for writer in {row[1] for row in rows}}
            dead = [TurnId(turn) for turn, writer in rows if not alive[writer]]
            for turn in dead:
                self._update(TURNS, turn, state="interrupted", ended_ms=now, writer=None)
            return dead

    def interrupted(self, limit: int = 20) -> list[StoredTurn]:
        """Return the newest interrupted answers, newest first."""
        sql = (
            "SELECT t.id FROM turns AS t JOIN conversations AS c ON c.id = t.conversation"
            " WHERE t.state = 'interrupted' AND c.deleted_ms IS NULL ORDER BY t.id DESC LIMIT ?"
        )
        return [tree.read_turn(self.database, TurnId(row[0])) for row in self.database.rows(sql, (limit,))]

    def ended_among(self, request_ids: Sequence[str]) -> list[str]:
        """Which of these requests are answers that have ended, and are here as far as they came."""
        sql = """
            SELECT r.value FROM json_each(?) AS r JOIN turns AS t
            ON r.value = CASE WHEN json_valid(t.recipe) THEN t.recipe ->> '$.request_id' END
            WHERE t.state NOT IN ('running', 'interrupted')
        """
        return [row[0] for row in self.database.rows(sql, (msgspec.json.encode(request_ids).decode(),))]

    def is_answering(self, conversation: ConversationId) -> bool:
        """Whether a living process is writing an answer in it."""
        sql = "SELECT writer FROM turns WHERE conversation = ? AND state = 'running'"
        return any(self._lock.is_alive(row[0] or "") for row in self.database.rows(sql, (conversation,)))

    def take_over(self, answer: TurnId) -> bool:
        """Become the writer of an interrupted answer; False if another process was faster, or it has ended."""
        with self.database.writing():
            sql = "UPDATE turns SET state = 'running', writer = ? WHERE id = ? AND state = 'interrupted' RETURNING id"
            return bool(self.database.rows(sql, (self._lock.id, answer)))

    def give_back(self, answer: TurnId) -> None:
        """Mark an answer that was taken over as interrupted again."""
        with self.database.writing() as now:
            self._update(TURNS, answer, state="interrupted", ended_ms=now, writer=None)

    def deaths_below(self, turn: TurnId) -> int:
        """Return how many answers to a turn ended because the engine died."""
        sql = "SELECT failure FROM turns WHERE parent = ? AND state = 'failed'"
        failures = (from_json_text(row[0], Failure, otherwise=None) for row in self.database.rows(sql, (turn,)))
        return sum(failure is not None and failure.kind is ErrorKind.ENGINE_DIED for failure in failures)

    # -- drafts, comparisons, media

    def save_draft(self, conversation: ConversationId, draft: StoredDraft) -> None:
        """Store a draft; an empty one is deleted."""
        with self.database.writing() as now:
            listing.read_conversation(self.database, conversation)
            listing.replace_draft(self.database, now, conversation, draft)

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
            tree.read_turn(self.database, turn)
            tree.add_references(self.database, turn, (item.sha256 for item in attachments))
            self.database.insert(
                "comparisons", COMPARISONS.encode({"turn": turn, "created_ms": now, "document": document})
            )

    def comparisons(self, turn: TurnId) -> list[StoredComparison]:
        """Return the documents of a turn, oldest first, as plain JSON values."""
        sql = f"SELECT {COMPARISONS.names} FROM comparisons WHERE turn = ? ORDER BY id"
        return [StoredComparison(**COMPARISONS.decode(row)) for row in self.database.rows(sql, (turn,))]

    def _require_open(self, answer: TurnId) -> ConversationId:
        """Return the conversation of an answer that may be written. One marked interrupted may continue."""
        row = self.database.row("SELECT conversation, role, state FROM turns WHERE id = ?", (answer,))
        if row is None:
            raise tree.unknown_turn(answer)
        if row[1] != "assistant" or row[2] not in ("running", "interrupted"):
            raise bad_input(f"The answer {answer} has already ended ({row[2]}).")
        return ConversationId(row[0])

    def _touch(self, conversation: ConversationId, now: int, shown: TurnId | None) -> None:
        self._update(CONVERSATIONS, conversation, updated_ms=now)
        if shown is not None:
            tree.show_branch(self.database, shown)

    def _change(self, table: Table, key: ConversationId | TurnId, **fields: object) -> None:
        with self.database.writing():
            self._update(table, key, **fields)

    def _update(self, table: Table, key: ConversationId | TurnId, **fields: object) -> None:
        values = table.encode(fields)
        sets = ", ".join(f"{column} = ?" for column in values)
        sql = f"UPDATE {table.name} SET {sets} WHERE id = ? RETURNING id"
        if not self.database.rows(sql, (*values.values(), key)):
            raise bad_input(f"There is no {table.name.removesuffix('s')} {key}.")
