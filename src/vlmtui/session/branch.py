"""The active branch of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from vlmtui.domain.conversation import Turn, assistant_turn, system_turn
from vlmtui.errors import Remedy, bad_input
from vlmtui.session.exchange import Exchange, Siblings
from vlmtui.store.records import TurnId


class Sibling(msgspec.Struct, frozen=True):
    """Names a turn among the siblings of `of`, by `number` from 1."""

    of: TurnId
    number: int


class Branch:
    """The exchanges of a branch, first to last. `newest` are shown; `load_older` adds older ones to them."""

    def __init__(self, older: Iterable[Exchange] = (), newest: Iterable[Exchange] = ()) -> None:
        self._older = list(older)
        self._newest = list(newest)

    @property
    def newest(self) -> list[Exchange]:
        return list(self._newest)

    @property
    def older(self) -> int:
        """How many exchanges precede the newest."""
        return len(self._older)

    @property
    def all(self) -> list[Exchange]:
        return [*self._older, *self._newest]

    @property
    def last(self) -> Exchange | None:
        return self._newest[-1] if self._newest else None

    @property
    def branching(self) -> Exchange | None:
        """Return the last exchange whose message or answer has siblings."""
        return next((exchange for exchange in reversed(self.all) if exchange.branches()), None)

    def sibling_beside(self, by: int) -> Sibling | None:
        """Return the sibling `by` places further, of the last exchange that has siblings: first of its answer, then
        of its message. None if there is none on that side."""
        exchange = self.branching
        places = _places(exchange) if exchange is not None else []
        found = ((turn, place.position + by, place.count) for turn, place in places)
        return next((Sibling(turn, at) for turn, at, count in found if turn is not None and 1 <= at <= count), None)

    def sibling(self, number: int) -> Sibling:
        """Return answer `number` of the last exchange that has siblings; if it has only one answer, message
        `number`. Raises VlmtuiError if there is none."""
        exchange = self.branching
        if exchange is None:
            raise bad_input("The conversation has no branches.", remedy=Remedy.MAKE_BRANCH)
        turn, place = next((turn, place) for turn, place in _places(exchange) if place.count > 1)
        if turn is None or not 1 <= number <= place.count:
            raise bad_input(f"There are {place.count} branches here; there is no branch {number}.")
        return Sibling(turn, number)

    @property
    def attachments_above(self) -> int:
        """How many attachments later prompts include from exchanges before the newest."""
        return count_attachments(self._older)

    def load_older(self, limit: int) -> list[Exchange]:
        """Add up to `limit` older exchanges to the newest; return those added, oldest first."""
        at = max(0, len(self._older) - limit)
        self._older, loaded = self._older[:at], self._older[at:]
        self._newest = [*loaded, *self._newest]
        return loaded

    def load(self, exchange: Exchange) -> None:
        """Add this exchange of the branch, and all after it, to the newest."""
        if exchange in self._older:
            self.load_older(len(self._older) - self._older.index(exchange))

    def until(self, exchange: Exchange | None) -> list[Exchange]:
        """Return all exchanges before this one; the whole branch for None."""
        everything = self.all
        return everything[: everything.index(exchange)] if exchange in everything else everything

    def find(self, answer: TurnId) -> Exchange | None:
        """Return the exchange of a stored answer."""
        return next((exchange for exchange in self.all if exchange.answer_id == answer), None)

    def end_at(self, exchange: Exchange) -> Exchange:
        """Let what is below an exchange leave the branch. Return the exchange that is the last now: another one where
        something was below, as what has left keeps its own. Raises VlmtuiError where it is not stored."""
        if exchange is self.last:
            return exchange
        if exchange.user_id is None:
            raise bad_input("The newest turns could not be saved yet, so no branch can be made.")
        self.load(exchange)
        last = replace(exchange)
        self.end_with(last, instead_of=exchange)
        return last

    def end_with(self, exchange: Exchange, *, instead_of: Exchange | None = None) -> None:
        """Append an exchange. If it replaces another, remove that one and all after it from the branch."""
        if instead_of is not None:
            self._newest = self._newest[: self._newest.index(instead_of)]
        self._newest = [*self._newest, exchange]


def _places(exchange: Exchange) -> list[tuple[TurnId | None, Siblings]]:
    """Yield the turns of an exchange with their positions among their siblings."""
    return [(exchange.answer_id, exchange.answer_siblings), (exchange.user_id, exchange.user_siblings)]


def turns_until(above: Exchange | None, asked: Turn, system_prompt: str = "") -> list[Turn]:
    """Return the turns of a request that answers `asked`: system prompt, history, `asked`.

    Leaves out exchanges without an answer, and attachments that the user left out.
    """
    return _turns(above, asked, system_prompt, lambda exchange: exchange.sent_user)


def turns_as_sent(exchange: Exchange, system_prompt: str, sent: Sequence[str]) -> list[Turn]:
    """Return the turns of an answer that already exists, whose prompt had the attachments with these SHA-256, in
    this order. Attachments left out then are left out here, whatever changed since."""
    waiting = list(sent)

    def user_of(one: Exchange) -> Turn:
        hashes = [attachment.sha256 for attachment in one.user.attachments]
        if not hashes:
            return one.user
        if waiting[-len(hashes) :] != hashes:
            return one.user_without_attachments
        del waiting[-len(hashes) :]
        return one.user

    return _turns(exchange.above, user_of(exchange), system_prompt, user_of)


def _turns(above: Exchange | None, asked: Turn, system_prompt: str, user_of: Callable[[Exchange], Turn]) -> list[Turn]:
    """Yield turns from last to first; `user_of` returns the user's turn of an exchange."""
    turns = [asked]
    while above is not None:
        if above.is_remembered:
            turns += [assistant_turn(above.answer.text), user_of(above)]
        above = above.above
    return [*([system_turn(system_prompt)] if system_prompt.strip() else []), *reversed(turns)]


def count_attachments(exchanges: Sequence[Exchange]) -> int:
    return sum(len(exchange.sent_attachments) for exchange in exchanges)
