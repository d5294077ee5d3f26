"""Exchanges (a user's message with its answer), the branch of them on screen, and the events about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.conversation import (
    Attachment,
    Text,
    Turn,
    all_attachments,
    assistant_turn,
    attachments_of,
    system_turn,
)
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import Cancelled, Failed, Failure, Finished, GenerateRequest, Timings, Usage
from vlmtui.errors import ErrorKind, Remedy, bad_input
from vlmtui.session.generation import Answer, PromptMedia, PromptMode, ThoughtMeter, media_items
from vlmtui.store.records import AnswerData, Statistics, TurnId
from vlmtui.text import one_line

if TYPE_CHECKING:
    from vlmtui.store.records import GenerationRecord, StoredTurn, TurnState


class Siblings(msgspec.Struct, frozen=True):
    """A turn's position among the alternatives to it (siblings), from 1, and their number."""

    position: int = 1
    count: int = 1


_ALONE = Siblings()


class Exchange(msgspec.Struct, eq=False):
    """A user's turn and its answer. Only its conversation changes it."""

    user: Turn
    answer: Answer
    is_left_out: bool = False
    """True if later prompts leave its attachments out."""
    above: Exchange | None = None
    """The exchange before this one."""
    request: GenerateRequest | None = None
    """The request; None if it was sent in an earlier session."""
    info: EngineInfo | None = None
    """The engine that answered; None if that was in an earlier session."""
    record: GenerationRecord | None = None
    """How the answer was generated; None if that was not loaded from the store."""
    mode: PromptMode = "chat"
    """How the answer's prompt was made."""
    user_id: TurnId | None = None
    """The id of the stored user turn; None until the turn is stored."""
    answer_id: TurnId | None = None
    user_siblings: Siblings = _ALONE
    answer_siblings: Siblings = _ALONE

    @property
    def is_running(self) -> bool:
        return self.answer.outcome is None

    def needed(self, info: EngineInfo | None) -> bool:
        """Return whether the answer depends on the engine with `info`: it is running, or this engine died during it."""
        failure = self.answer.failure
        return self.is_running or (self.info is info and failure is not None and failure.kind is ErrorKind.ENGINE_DIED)

    @property
    def answered_by(self) -> str:
        """The name of the model that answered, with its LoRA adapter; empty if unknown."""
        record = self.record
        if record is None:
            return ""
        name = one_line(record.made_by.name if record.made_by is not None else record.model)
        return f"{name} · LoRA {one_line(PurePath(record.adapter).name)}" if record.adapter else name

    @property
    def changes_model(self) -> bool:
        """True if another model, or the same with another LoRA adapter, answered the exchange above. False if
        unknown."""
        above = self.above.answered_by if self.above is not None else ""
        return bool(above and self.answered_by) and above != self.answered_by

    @property
    def is_remembered(self) -> bool:
        """True if later prompts include the exchange: it has an answer."""
        return self.answer.has_text

    @property
    def sent_user(self) -> Turn:
        """The user's turn as later requests include it."""
        return self.user_without_attachments if self.is_left_out else self.user

    @property
    def sent_attachments(self) -> tuple[Attachment, ...]:
        """The attachments that later prompts include."""
        return () if self.is_left_out or not (self.is_remembered or self.is_running) else self.user.attachments

    @property
    def user_without_attachments(self) -> Turn:
        return Turn("user", tuple(part for part in self.user.parts if isinstance(part, Text)) or (Text(""),))

    def branches(self) -> str:
        """`message 2/3 · answer 1/2`; empty without siblings."""
        told = (("message", self.user_siblings), ("answer", self.answer_siblings))
        return " · ".join(f"{what} {place.position}/{place.count}" for what, place in told if place.count > 1)

    def marks(self) -> str:
        """`raw · answer 2/2`: marks an answer to a raw prompt, and the branches."""
        return " · ".join(filter(None, ("raw" if self.mode == "raw" else "", self.branches())))

    def put_answer(
        self, answer: Answer, request: GenerateRequest, info: EngineInfo | None, record: GenerationRecord
    ) -> None:
        """Begin a new answer: the first, or a sibling of the existing answers."""
        if answer is not self.answer and (self.answer_id is not None or self.answer.request_id):
            count = self.answer_siblings.count + 1
            self.answer_siblings = Siblings(count, count)
        self.answer, self.answer_id = answer, None
        self.request, self.info = request, info
        self.record, self.mode = record, record.mode


def attachments_named(exchange: Exchange) -> str:
    """Return `cat.jpg is` or `a.png, b.png are`, the beginning of a sentence about the attachments."""
    attachments = exchange.user.attachments
    return f"{', '.join(one_line(item.name) for item in attachments)} {'is' if len(attachments) == 1 else 'are'}"


def exchanges_of(turns: Iterable[StoredTurn], above: Exchange | None = None) -> Iterator[Exchange]:
    """Convert stored turns to exchanges. `above`: the exchange before the first of them. System turns are skipped. An
    answer without a question, as in an imported conversation, gets an empty question."""
    waiting: StoredTurn | None = None
    for turn in turns:
        if turn.role == "assistant":
            above = _exchange(waiting, turn, above)
            waiting = None
            yield above
        elif turn.role == "user":
            if waiting is not None:
                above = _exchange(waiting, None, above)
                yield above
            waiting = turn
    if waiting is not None:
        yield _exchange(waiting, None, above)


def _exchange(user: StoredTurn | None, answer: StoredTurn | None, above: Exchange | None) -> Exchange:
    unanswered = Failed(request_id="", failure=_interrupted("There is no answer."))
    return Exchange(
        Turn("user", (Text(""),)) if user is None else user.turn,
        Answer("", outcome=unanswered) if answer is None else stored_answer(answer),
        is_left_out=user is not None and user.left_out,
        above=above,
        record=None if answer is None else answer.generation,
        mode="chat" if answer is None else answer.mode,
        user_id=None if user is None else user.id,
        answer_id=None if answer is None else answer.id,
        user_siblings=Siblings() if user is None else Siblings(user.position, user.siblings),
        answer_siblings=Siblings() if answer is None else Siblings(answer.position, answer.siblings),
    )


def answer_data(answer: Answer, generation: GenerationRecord | None) -> AnswerData:
    """Return an answer as stored, without its text. `stored_answer` is the reverse."""
    state: TurnState = "running"
    statistics = None
    match answer.outcome:
        case Finished(finish_reason=reason, stop=stop):
            state, statistics = "complete", Statistics(finish_reason=reason, stop=stop)
        case Cancelled():
            state, statistics = "stopped", Statistics()
        case Failed():
            state, statistics = "failed", Statistics()
    if statistics is not None:
        statistics = msgspec.structs.replace(
            statistics, usage=answer.usage, timings=answer.timings or Timings(), thought=answer.thought.ended
        )
    return AnswerData(
        state=state,
        tokens=answer.tokens,
        used=answer.used,
        statistics=statistics,
        failure=answer.failure,
        generation=generation,
    )


def stored_answer(turn: StoredTurn) -> Answer:
    """Return a stored turn's answer with its outcome."""
    request_id = turn.generation.request_id if turn.generation else ""
    usage = turn.statistics.usage if turn.statistics else Usage(completion_tokens=turn.tokens)
    timings = turn.statistics.timings if turn.statistics else Timings()
    thought = ThoughtMeter(is_timed=False, ended=turn.statistics.thought if turn.statistics else None)
    if thought.ended is not None:
        thought.tags = thought.ended.tags
    elif turn.generation is not None and turn.generation.thinking is not None:
        thought.tags = turn.generation.thinking
    pieces = [turn.text] if turn.text else []
    answer = Answer(request_id, pieces, tokens=turn.tokens, used=turn.used, thought=thought)
    match turn.state:
        case "complete":
            statistics = turn.statistics
            reason = (statistics.finish_reason if statistics else None) or "stop"
            stop = statistics.stop if statistics else None
            answer.outcome = Finished(
                request_id=request_id, finish_reason=reason, usage=usage, timings=timings, stop=stop
            )
        case "stopped":
            answer.outcome = Cancelled(request_id=request_id, usage=usage, timings=timings)
        case "running":
            failure = Failure(kind=ErrorKind.ENGINE_BUSY, message="Another vlmtui is still receiving this answer.")
            answer.outcome = Failed(request_id=request_id, failure=failure)
        case "failed" | "interrupted":
            failure = turn.failure or _interrupted("The answer was interrupted: vlmtui exited first.")
            answer.outcome = Failed(request_id=request_id, failure=failure)
    return answer


def _interrupted(message: str) -> Failure:
    return Failure(kind=ErrorKind.INTERNAL, message=message)


class RequestSent(msgspec.Struct, frozen=True):
    """The exchange's turn is stored if possible, and its request is being sent."""

    exchange: Exchange


class AnswerReplaced(msgspec.Struct, frozen=True):
    """The exchange shows another answer, which may still be running."""

    exchange: Exchange


class AnswerEnded(msgspec.Struct, frozen=True):
    """The exchange's answer has an outcome."""

    exchange: Exchange


class AttachmentsLeftOut(msgspec.Struct, frozen=True):
    """Later prompts leave the exchange's attachments out, or include them again."""

    exchange: Exchange


ConversationEvent = RequestSent | AnswerReplaced | AnswerEnded | AttachmentsLeftOut
Subscriber = Callable[[ConversationEvent], None]


class Sibling(msgspec.Struct, frozen=True):
    """Names a turn by its position: `number`, from 1, among the siblings of the turn `of`."""

    of: TurnId
    number: int


class Branch:
    """The exchanges of a branch in order. The first `older` of them are not on screen; `load_older` shows more."""

    def __init__(self, exchanges: Iterable[Exchange] = (), *, older: int = 0) -> None:
        self._all = list(exchanges)
        self.older = older

    @property
    def newest(self) -> list[Exchange]:
        """The exchanges on screen."""
        return self._all[self.older :]

    @property
    def all(self) -> list[Exchange]:
        return list(self._all)

    @property
    def last(self) -> Exchange | None:
        return self._all[-1] if self._all else None

    @property
    def branching(self) -> Exchange | None:
        """The last exchange whose message or answer has siblings."""
        return next((exchange for exchange in reversed(self._all) if exchange.branches()), None)

    def sibling_beside(self, by: int) -> Sibling | None:
        """Return the sibling `by` positions after the one on screen, in the last exchange with siblings: an answer if
        possible, else a message. None if there is none."""
        exchange = self.branching
        places = _places(exchange) if exchange is not None else []
        found = ((turn, place.position + by, place.count) for turn, place in places)
        return next((Sibling(turn, at) for turn, at, count in found if turn is not None and 1 <= at <= count), None)

    def sibling(self, number: int) -> Sibling:
        """Return answer `number` of the last exchange with siblings; if that has only one answer, return message
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
        """The number of attachments that later prompts include from exchanges older than `newest`."""
        return count_attachments(self._all[: self.older])

    def load_older(self, limit: int) -> list[Exchange]:
        """Add up to `limit` older exchanges to the newest. Return the added exchanges, oldest first."""
        end, self.older = self.older, max(0, self.older - limit)
        return self._all[self.older : end]

    def load(self, exchange: Exchange) -> None:
        """Add this exchange and all after it to `newest`."""
        self.older = min(self.older, self._all.index(exchange))

    def until(self, exchange: Exchange | None) -> list[Exchange]:
        """Return all exchanges before this one; the whole branch for None."""
        return self._all[: self._all.index(exchange)] if exchange in self._all else self.all

    def find(self, answer: TurnId) -> Exchange | None:
        return next((exchange for exchange in self._all if exchange.answer_id == answer), None)

    def end_at(self, exchange: Exchange) -> Exchange:
        """Make an exchange the last of the branch, and return it. If others followed, the returned exchange is a copy,
        since those still refer to the original. Raises VlmtuiError if others follow and the exchange is not stored
        yet."""
        if exchange is self.last:
            return exchange
        if exchange.user_id is None:
            raise bad_input("The newest turns could not be saved yet, so no branch can be made.")
        self.load(exchange)
        last = msgspec.structs.replace(exchange)
        self.end_with(last, instead_of=exchange)
        return last

    def end_with(self, exchange: Exchange, *, instead_of: Exchange | None = None) -> None:
        """Append an exchange. `instead_of`: first remove this exchange and all after it."""
        if instead_of is not None:
            del self._all[self._all.index(instead_of) :]
        self._all.append(exchange)


def _places(exchange: Exchange) -> list[tuple[TurnId | None, Siblings]]:
    """Return the answer and the message of an exchange, each as its turn's id and its position among its siblings."""
    return [(exchange.answer_id, exchange.answer_siblings), (exchange.user_id, exchange.user_siblings)]


def turns_until(above: Exchange | None, asked: Turn, system_prompt: str = "") -> list[Turn]:
    """Return the turns of a request: system prompt, history without unanswered messages, and `asked`, the message to
    answer."""
    return _turns(above, asked, system_prompt, lambda exchange: exchange.sent_user)


def prompt_media(exchange: Exchange) -> list[PromptMedia]:
    """Return the attachments of an exchange's prompt, in order; empty if unknown."""
    attachments: tuple[Attachment, ...] = ()
    if exchange.request is not None:
        attachments = attachments_of(exchange.request.prompt)
    elif exchange.record is not None:
        attachments = all_attachments(
            turns_as_sent(exchange, exchange.record.system_prompt, exchange.record.attachments)
        )
    known = exchange.record.media_tokens if exchange.record is not None else ()
    return media_items(exchange.answer.prompt, attachments, known)


def turns_as_sent(exchange: Exchange, system_prompt: str, sent: Sequence[str]) -> list[Turn]:
    """Return the turns that led to an existing answer. `sent`: the SHA-256 of each attachment in the answer's prompt,
    in order; attachments that were not in that prompt are left out, even if later prompts include them."""
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
    """Return the turns of a request; `user_of` returns an exchange's message."""
    turns = [asked]
    while above is not None:
        if above.is_remembered:
            turns += [assistant_turn(above.answer.text), user_of(above)]
        above = above.above
    return [*([system_turn(system_prompt)] if system_prompt.strip() else []), *reversed(turns)]


def count_attachments(exchanges: Sequence[Exchange]) -> int:
    return sum(len(exchange.sent_attachments) for exchange in exchanges)
