"""An exchange: a user's turn and its answer, live or from the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Text, Turn
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Cancelled, Failed, Finished, GenerateRequest, Timings, Usage
from vlmtui.errors import ErrorKind
from vlmtui.session.generation import Answer, PromptMode
from vlmtui.session.thought import ThoughtMeter
from vlmtui.text import one_line

if TYPE_CHECKING:
    from vlmtui.store.records import GenerationRecord, StoredTurn, TurnId


class Siblings(msgspec.Struct, frozen=True):
    """A turn's position among its siblings, from 1, and their number."""

    position: int = 1
    count: int = 1


_ALONE = Siblings()


@dataclass(eq=False, slots=True, frozen=True)
class Exchange:
    """A user's turn and its answer. Read its fields; only the conversation and its parts call the methods below
    `branches`, which change it."""

    user: Turn
    answer: Answer
    is_left_out: bool = False
    """Whether its attachments are left out of later prompts."""
    above: Exchange | None = None
    """The exchange before it."""
    request: GenerateRequest | None = None
    """The request; None if it was sent in an earlier session."""
    info: EngineInfo | None = None
    """Facts of the engine that answered; None if that was in an earlier session."""
    record: GenerationRecord | None = None
    """How the answer was generated; None for exchanges loaded with less detail."""
    mode: PromptMode = "chat"
    """How the answer's prompt was built."""
    user_id: TurnId | None = None
    """None until it is stored."""
    answer_id: TurnId | None = None
    user_siblings: Siblings = _ALONE
    answer_siblings: Siblings = _ALONE

    @property
    def is_running(self) -> bool:
        return self.answer.outcome is None

    def needed(self, info: EngineInfo | None) -> bool:
        """Whether its answer needs this engine: it is running there, or the engine died while generating it."""
        failure = self.answer.failure
        return self.is_running or (self.info is info and failure is not None and failure.kind is ErrorKind.ENGINE_DIED)

    @property
    def is_remembered(self) -> bool:
        """Whether later prompts include it: only if it has an answer."""
        return bool(self.answer.text)

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
        """The user's turn without attachments."""
        return Turn("user", tuple(part for part in self.user.parts if isinstance(part, Text)) or (Text(""),))

    def branches(self) -> str:
        """`message 2/3 · answer 1/2`; empty without siblings."""
        told = (("message", self.user_siblings), ("answer", self.answer_siblings))
        return " · ".join(f"{what} {place.position}/{place.count}" for what, place in told if place.count > 1)

    def marks(self) -> str:
        """`raw · answer 2/2`: whether a raw prompt made the answer, and its branches."""
        return " · ".join(filter(None, ("raw" if self.mode == "raw" else "", self.branches())))

    def put_answer(
        self, answer: Answer, request: GenerateRequest, info: EngineInfo | None, record: GenerationRecord
    ) -> None:
        """Start a new answer, not stored yet, as a sibling of the existing ones or as the first."""
        if answer is not self.answer and (self.answer_id is not None or self.answer.request_id):
            count = self.answer_siblings.count + 1
            self._set(answer_siblings=Siblings(count, count))
        self._set(answer=answer, answer_id=None, request=request, info=info, record=record, mode=record.mode)

    def show_answer(self, answer: Answer) -> None:
        """Set the stored answer, resumed or restored."""
        self._set(answer=answer)

    def note_stored(self, user_id: TurnId, siblings: Siblings | None) -> None:
        """Note that the user's turn is stored; pass `siblings` if they may have changed."""
        self._set(user_id=user_id, user_siblings=siblings or self.user_siblings)

    def note_answer_stored(self, answer_id: TurnId, record: GenerationRecord, siblings: Siblings | None) -> None:
        """Note that the answer is stored, partly or completely."""
        self._set(answer_id=answer_id, record=record, answer_siblings=siblings or self.answer_siblings)

    def note_gone(self) -> None:
        """Note that it is no longer in the store."""
        self._set(user_id=None)

    def leave_out(self, left_out: bool) -> None:
        """Set whether later prompts leave its attachments out."""
        self._set(is_left_out=left_out)

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


def attachments_named(exchange: Exchange) -> str:
    """Return `cat.jpg is`, `a.png, b.png are`: the beginning of a sentence about the attachments."""
    attachments = exchange.user.attachments
    return f"{', '.join(one_line(item.name) for item in attachments)} {'is' if len(attachments) == 1 else 'are'}"


def exchanges_of(turns: Iterable[StoredTurn], above: Exchange | None = None) -> Iterator[Exchange]:
    """Convert stored turns to exchanges, the first one after `above`. System turns are skipped; an answer without a
    question, as in an imported conversation, gets an empty one."""
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
    return Exchange(
        Turn("user", (Text(""),)) if user is None else user.turn,
        _unanswered() if answer is None else stored_answer(answer),
        is_left_out=user is not None and user.left_out,
        above=above,
        record=None if answer is None else answer.generation,
        mode="chat" if answer is None else answer.mode,
        user_id=None if user is None else user.id,
        answer_id=None if answer is None else answer.id,
        user_siblings=Siblings() if user is None else Siblings(user.position, user.siblings),
        answer_siblings=Siblings() if answer is None else Siblings(answer.position, answer.siblings),
    )


def stored_answer(turn: StoredTurn) -> Answer:
    """Return a stored answer as if it had just ended."""
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


def _unanswered() -> Answer:
    return Answer("", outcome=Failed(request_id="", failure=_interrupted("There is no answer.")))


def _interrupted(message: str) -> Failure:
    return Failure(kind=ErrorKind.INTERNAL, message=message)
