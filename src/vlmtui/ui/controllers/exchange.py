"""A user's turn and its answer, live or out of the store. No widgets here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.conversation import Text, Turn
from vlmtui.domain.engine import Cancelled, EngineInfo, Failed, Failure, Finished, GenerateRequest, Timings, Usage
from vlmtui.engine.session import Answer
from vlmtui.errors import ErrorKind

if TYPE_CHECKING:
    from vlmtui.store.records import Recipe, StoredTurn, TurnId


class Siblings(msgspec.Struct, frozen=True):
    """Which one of the turns with the same parent it is, from 1, and how many there are."""

    position: int = 1
    count: int = 1


_ALONE = Siblings()


@dataclass(eq=False, slots=True)
class Exchange:
    """A user's turn and its answer."""

    user: Turn
    answer: Answer
    earlier: list[Answer] = field(default_factory=list)
    """Answers that another one was asked for instead of, since the conversation was opened."""
    is_blind: bool = False
    """Its attachments are not sent any more."""
    above: Exchange | None = None
    """The exchange that it follows."""
    request: GenerateRequest | None = None
    """What was sent; None where that was in an earlier session."""
    info: EngineInfo | None = None
    """The engine that was asked, as it said of itself; None where that was in an earlier session."""
    recipe: Recipe | None = None
    """What made the answer; None above the newest turns of a stored conversation."""
    user_id: TurnId | None = None
    """None until it is stored."""
    answer_id: TurnId | None = None
    user_siblings: Siblings = _ALONE
    answer_siblings: Siblings = _ALONE

    @property
    def is_running(self) -> bool:
        return self.answer.outcome is None

    @property
    def is_remembered(self) -> bool:
        """Whether later turns are sent with it: not when nothing came of it."""
        return bool(self.answer.text)

    @property
    def sent_user(self) -> Turn:
        """The user's turn as later requests have it."""
        if not self.is_blind:
            return self.user
        return Turn("user", tuple(part for part in self.user.parts if isinstance(part, Text)) or (Text(""),))

    def branches(self) -> str:
        """`message 2/3 · answer 1/2`; empty where it has no siblings."""
        told = (("message", self.user_siblings), ("answer", self.answer_siblings))
        return " · ".join(f"{what} {place.position}/{place.count}" for what, place in told if place.count > 1)


def exchanges_of(turns: Iterable[StoredTurn], above: Exchange | None = None) -> Iterator[Exchange]:
    """Stored turns as exchanges, the first of them below `above`. System turns are left out; an answer that follows no
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
        above=above,
        recipe=None if answer is None else answer.recipe,
        user_id=None if user is None else user.id,
        answer_id=None if answer is None else answer.id,
        user_siblings=Siblings() if user is None else Siblings(user.position, user.siblings),
        answer_siblings=Siblings() if answer is None else Siblings(answer.position, answer.siblings),
    )


def stored_answer(turn: StoredTurn) -> Answer:
    """An answer out of the store, as if it had just ended."""
    request_id = turn.recipe.request_id if turn.recipe else ""
    usage = turn.statistics.usage if turn.statistics else Usage(completion_tokens=turn.tokens)
    timings = turn.statistics.timings if turn.statistics else Timings()
    answer = Answer(request_id, [turn.text] if turn.text else [], tokens=turn.tokens)
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
            failure = Failure(kind=ErrorKind.ENGINE_BUSY, message="Another vlmtui is still getting this answer.")
            answer.outcome = Failed(request_id=request_id, failure=failure)
        case "failed" | "interrupted":
            failure = turn.failure or _interrupted("The answer was interrupted: vlmtui ended before it did.")
            answer.outcome = Failed(request_id=request_id, failure=failure)
    return answer


def _unanswered() -> Answer:
    return Answer("", outcome=Failed(request_id="", failure=_interrupted("No answer was asked for, or none came.")))


def _interrupted(message: str) -> Failure:
    return Failure(kind=ErrorKind.INTERNAL, message=message)
