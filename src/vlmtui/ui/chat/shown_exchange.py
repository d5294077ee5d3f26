"""An exchange that has widgets, and what its line of marks shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from textual.content import Content
from textual.widget import Widget

from vlmtui.session.exchange import Exchange
from vlmtui.ui.chat.assistant_turn import AssistantTurn
from vlmtui.ui.chat.marked import Marked, Part
from vlmtui.ui.chat.past_answer import PastAnswer
from vlmtui.ui.widgets.clicks import clickable

_TURN = 2
"""Number of widgets for an exchange of text."""
_ILLUSTRATED = 4
"""Number of widgets for an exchange with attachments."""
_PICTURE = 4
"""Number of widgets for each attachment."""
_STYLE = "$muted 80%"


@dataclass
class ShownExchange:
    """An exchange that has widgets."""

    exchange: Exchange
    first_number: int | None
    """Number of its first attachment in the prompt; None: left out of prompts, or no attachments."""
    user: Widget
    answer: AssistantTurn | PastAnswer

    def part(self, part: Part) -> Widget:
        return self.user if part is Part.MESSAGE else self.answer


def answer_widget(
    exchange: Exchange, *, is_live: bool, thinking_open: bool | None = None
) -> AssistantTurn | PastAnswer:
    """Return a widget that grows, or a cheaper one. `thinking_open`: whether its reasoning was open."""
    if is_live:
        return AssistantTurn(exchange.answer, marks_later(exchange))
    return PastAnswer(exchange.answer, marks_later(exchange), thinking_open=thinking_open)


def clicked_part(shown: Iterable[ShownExchange], widget: Widget, told: dict[str, object]) -> tuple[Marked, int] | None:
    """Return the message or answer that a click was on, and the branch that is wanted: -1 the one before, 1 the next
    one, else 0. `told`: what the clicked text says of itself, as made by `branch_marks`."""
    for one in shown:
        for part in Part:
            if one.part(part) in widget.ancestors_with_self:
                step = told.get("branch", 0)
                wanted = Part(told["branches_of"]) if "branches_of" in told else part
                return Marked(one.exchange, wanted), step if isinstance(step, int) else 0
    return None


def branch_marks(exchange: Exchange) -> Content:
    """Return whether a raw prompt made the answer, and the branches, whose arrows can be clicked: `‹ answer 2/3 ›`."""
    marks = [Content.styled("raw", _STYLE)] if exchange.mode == "raw" else []
    for part, place in ((Part.MESSAGE, exchange.user_siblings), (Part.ANSWER, exchange.answer_siblings)):
        if place.count > 1:
            back = clickable("‹", "$accent", branches_of=part.value, branch=-1)
            on = clickable("›", "$accent", branches_of=part.value, branch=1)
            said = Content.styled(f" {part.value} {place.position}/{place.count} ", _STYLE)
            marks.append(Content.assemble(back, said, on))
    return Content.styled(" · ", _STYLE).join(marks)


def marks_later(exchange: Exchange) -> Callable[[], Content]:
    """Return what returns them whenever they are needed."""
    return partial(branch_marks, exchange)


def weight_of(exchange: Exchange) -> int:
    """Return roughly how many widgets the exchange needs."""
    count = len(exchange.user.attachments)
    return _TURN + (_ILLUSTRATED + _PICTURE * count if count else 0)


def media_of(exchanges: Iterable[Exchange]) -> int:
    """Return how many attachments later prompts include of these."""
    return sum(len(exchange.sent_attachments) for exchange in exchanges)


def widgets_of(shown: Iterable[ShownExchange]) -> list[Widget]:
    """Return the widgets in their order on the screen."""
    return [widget for one in shown for widget in (one.user, one.answer)]
