"""A random history of what the product does with its store."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

from tests.faults.shadow import Shadow, ShadowConversation, ShadowTurn, State, observed
from tests.unit.store.made import COMPLETE, RECIPE
from vlmtui.domain.conversation import user_turn
from vlmtui.errors import VlmtuiError
from vlmtui.store.purge_on_request import PurgeWish, plan_purge, purge_on_request
from vlmtui.store.records import ConversationId, Outcome, StoredDraft, TurnId
from vlmtui.store.store import Store

_WORDS = ["red", "circle", "at", "the", "left", "of", "a", "blue", "square,", "says", "the", "model:"]
Call = Callable[[], object]


class Player:
    """Plays a history on the store in `folder`, and keeps account of what was acknowledged."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder = folder
        self.random = random
        self.shadow = Shadow()
        self.maybe: list[Shadow] = []
        """What the store may hold after a crash, too: calls that failed since the last one that was acknowledged."""
        self.acknowledged = 0
        self.refused = 0
        self.wrong: list[str] = []
        self._keys = 0
        self._conversations: dict[int, ConversationId] = {}
        self._turns: dict[int, TurnId] = {}
        self._checkpoint = random.choice((1, 4, 20, 1000))
        """Pages after which the log is copied into the database: a history is too short for the usual 1,000."""
        self.store = self._opened()

    def play(self, steps: int, is_over: Callable[[], bool]) -> None:
        """So many steps, fewer if the machine goes off."""
        for _ in range(steps):
            if is_over():
                return
            if self.random.random() < 0.05 and not self._goes_on_after_reopening():
                return
            self._step(is_over)

    def allowed(self) -> set[State]:
        return {self.shadow.state(), *(one.state() for one in self.maybe)}

    def _step(self, is_over: Callable[[], bool]) -> None:
        if self.random.random() < 0.04:
            self._purge_on_request(is_over)
            return
        after = copy.deepcopy(self.shadow)
        call = self._prepared(after)
        if self.random.random() < 0.15:
            first, second = call, self._prepared(after, is_new=True)

            def call() -> None:
                with self.store.together():
                    first()
                    second()

        try:
            call()
        except VlmtuiError:
            self.refused += 1
            self.maybe.append(after)
            if not is_over():
                self._look("a call that failed has changed something")
            return
        if is_over():  # the call was answered though the machine was off: nothing of it was to be written any more
            self.maybe.append(after)
            return
        self.shadow, self.maybe = after, []
        self.acknowledged += 1

    def _purge_on_request(self, is_over: Callable[[], bool]) -> None:
        """Purge a deleted conversation as `vlmtui store purge` does, if there is one. A call that fails may have purged
        it, but neither half of it nor another one."""
        wish, after = PurgeWish(deleted=True), copy.deepcopy(self.shadow)
        keys = {identifier: key for key, identifier in self._conversations.items()}
        try:
            plan = plan_purge(self.store, wish)
        except VlmtuiError:
            self.refused += 1
            return
        if not plan.conversations:
            return
        del after.conversations[keys[plan.conversations[0].id]]
        try:
            one = msgspec.structs.replace(plan, conversations=plan.conversations[:1])
            purge_on_request(self.store, one, wish)
        except VlmtuiError:
            self.refused += 1
            self.maybe.append(after)
            if not is_over() and self._seen() == after.state():
                self.shadow = after
            return
        if is_over():
            self.maybe.append(after)
            return
        self.shadow, self.maybe = after, []
        self.acknowledged += 1

    def _seen(self) -> State | None:
        try:
            return observed(self.store)
        except VlmtuiError:
            return None

    def _look(self, complaint: str) -> None:
        try:
            if observed(self.store) != self.shadow.state():
                self.wrong.append(complaint)
        except VlmtuiError as error:
            self.wrong.append(f"a store that failed once cannot be read: {error}")

    def _opened(self) -> Store:
        found = Store.open(self.folder, busy_s=0.0)
        if found.recovered is not None:
            self.wrong.append(f"a sound database was set aside: {found.recovered.reason}")
        found.store.database.connection.execute(f"PRAGMA wal_autocheckpoint = {self._checkpoint}")
        return found.store

    def _goes_on_after_reopening(self) -> bool:
        """Open the store again. A call whose flush failed may have happened after all; then the history ends, as the
        ids that it gave out are not known."""
        self._reopen()
        found = self._seen()
        if found is None or found == self.shadow.state():
            return True
        happened = [one for one in self.maybe if one.state() == found]
        if not happened:
            self.wrong.append("after a new start there is what nobody stored")
            return True
        self.shadow, self.maybe = happened[0], []
        return False

    def _reopen(self) -> None:
        self.store.close()
        for _ in range(40):  # a full disk is full for a while
            try:
                self.store = self._opened()
            except VlmtuiError:
                self.refused += 1
            else:
                return
        raise StoppedError

    # -- the calls: each changes the account `after`, and returns what does the same in the store

    def _prepared(self, after: Shadow, *, is_new: bool = False) -> Call:
        living = [key for key in after.conversations if key in self._conversations]
        if is_new or not living or self.random.random() < 0.1:
            return self._new(after)
        key = self.random.choice(living)
        return self.random.choice(_CALLS)(self, after.conversations[key], key, after)

    def _new(self, after: Shadow) -> Call:
        key, title = self._key(), self._text(4)
        after.conversations[key] = ShadowConversation(title, model="shapes")

        def call() -> None:
            self._conversations[key] = self.store.new_conversation(title=title, model="shapes")

        return call

    def _ask(self, one: ShadowConversation, key: int, _: Shadow) -> Call:
        parents = [None, *one.turns] if self.random.random() < 0.2 else [one.leaf()]
        parent, text, turn = self.random.choice(parents), self._text(self.random.choice((5, 80, 2000))), self._key()
        one.is_deleted = False
        one.turns[turn] = ShadowTurn(parent, "user", text)
        one.show(turn)
        identifier, above = self._conversations[key], None if parent is None else self._turns[parent]

        def call() -> None:
            self._turns[turn] = self.store.add_turn(identifier, above, user_turn(text))

        return call

    def _answer(self, one: ShadowConversation, key: int, after: Shadow) -> Call:
        asked = [turn for turn, found in one.turns.items() if found.role == "user"]
        if not asked:
            return self._ask(one, key, after)
        parent, turn = self.random.choice(asked), self._key()
        one.turns[turn] = ShadowTurn(parent, "assistant", "", state="running")
        one.show(turn)
        above = self._turns[parent]

        def call() -> None:
            self._turns[turn] = self.store.begin_answer(above, RECIPE)

        return call

    def _append(self, one: ShadowConversation, key: int, after: Shadow) -> Call:
        running = [turn for turn, found in one.turns.items() if found.state == "running"]
        if not running:
            return self._answer(one, key, after)
        found = one.turns[running[-1]]
        found.text += self._text(self.random.choice((3, 30, 600)))
        found.tokens += 3
        answer, text, tokens = self._turns[running[-1]], found.text, found.tokens
        if self.random.random() < 0.6:
            return lambda: self.store.append_answer(answer, text, tokens)
        outcome = self.random.choice((COMPLETE, Outcome(state="stopped")))
        found.state = outcome.state
        return lambda: self.store.end_answer(answer, text, outcome, tokens=tokens)

    def _rename(self, one: ShadowConversation, key: int, _: Shadow) -> Call:
        one.title, identifier = self._text(4), self._conversations[key]
        title = one.title
        return lambda: self.store.rename(identifier, title)

    def _pin(self, one: ShadowConversation, key: int, _: Shadow) -> Call:
        one.is_pinned, identifier = not one.is_pinned, self._conversations[key]
        is_pinned = one.is_pinned
        return lambda: self.store.pin(identifier, is_pinned)

    def _delete(self, one: ShadowConversation, key: int, _: Shadow) -> Call:
        one.is_deleted, identifier = not one.is_deleted, self._conversations[key]
        return lambda one=one.is_deleted: (self.store.delete if one else self.store.undelete)(identifier)  # type: ignore[misc]

    def _purge(self, _: ShadowConversation, key: int, after: Shadow) -> Call:
        identifier = self._conversations[key]
        del after.conversations[key]
        return lambda: self.store.purge(identifier)

    def _draft(self, one: ShadowConversation, key: int, _: Shadow) -> Call:
        one.draft, identifier = self.random.choice(("", self._text(9))), self._conversations[key]
        draft = StoredDraft(text=one.draft)
        return lambda: self.store.save_draft(identifier, draft)

    def _compare(self, one: ShadowConversation, key: int, after: Shadow) -> Call:
        if not one.turns:
            return self._ask(one, key, after)
        turn, text = self.random.choice(list(one.turns)), self._text(40)
        document = {"difference": text}
        one.turns[turn].comparisons.append(str(document))
        identifier = self._turns[turn]
        return lambda: self.store.add_comparison(identifier, document)

    def _show(self, one: ShadowConversation, key: int, after: Shadow) -> Call:
        if not one.turns:
            return self._ask(one, key, after)
        turn = self.random.choice(list(one.turns))
        one.show(turn)
        identifier = self._turns[turn]
        return lambda: self.store.activate(identifier)

    def _key(self) -> int:
        self._keys += 1
        return self._keys

    def _text(self, words: int) -> str:
        return f"n{self._key()} " + " ".join(self.random.choice(_WORDS) for _ in range(words))


class StoppedError(Exception):
    """The store cannot be opened again: the machine is off."""


_CALLS: tuple[Callable[[Player, ShadowConversation, int, Shadow], Call], ...] = (
    *(Player._ask,) * 3,
    *(Player._answer,) * 2,
    *(Player._append,) * 5,
    Player._rename,
    Player._pin,
    Player._delete,
    Player._purge,
    *(Player._draft,) * 2,
    Player._compare,
    Player._show,
)
