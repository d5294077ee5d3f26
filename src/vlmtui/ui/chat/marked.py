"""The message or answer that the message cursor is on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from vlmtui.session.exchange import Exchange, Siblings
from vlmtui.store.records import TurnId
from vlmtui.ui.document.answer_parts import AnswerPart, answer_parts


class Part(Enum):
    """A part of an exchange."""

    MESSAGE = "message"
    ANSWER = "answer"


@dataclass(frozen=True)
class Marked:
    """A message or an answer."""

    exchange: Exchange
    part: Part

    @property
    def text(self) -> str:
        return self.exchange.user.text if self.part is Part.MESSAGE else self.exchange.answer.text

    @property
    def parts(self) -> list[AnswerPart]:
        """The parts of an answer; none of a message."""
        answer = self.exchange.answer
        return [] if self.part is Part.MESSAGE else answer_parts(answer.parts(answer.text))

    @property
    def turn(self) -> TurnId | None:
        """None until it is stored."""
        return self.exchange.user_id if self.part is Part.MESSAGE else self.exchange.answer_id

    @property
    def siblings(self) -> Siblings:
        return self.exchange.user_siblings if self.part is Part.MESSAGE else self.exchange.answer_siblings
