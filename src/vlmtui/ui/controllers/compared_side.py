"""One side of a comparison: what was sent, what came of it, and the same out of a document. No widgets here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from vlmtui.domain.engine import (
    Cancelled,
    EngineInfo,
    Failed,
    Failure,
    Finished,
    GenerateRequest,
    Prompt,
    PromptReady,
    Token,
)
from vlmtui.engine.session import Answer, PromptMode
from vlmtui.errors import ErrorKind
from vlmtui.inspection.replay import Side
from vlmtui.ui.controllers.folded_prompt import attachments_of
from vlmtui.ui.controllers.inspecting import Inspected


class Sent(msgspec.Struct, frozen=True):
    """A request that the conversation itself has sent, as its user's turn."""

    request: GenerateRequest
    answer: Answer
    begun: Callable[[], Awaitable[object]]
    """Waits until the turn is stored, so that its request goes out."""
    over: Callable[[], Awaitable[object]]
    """Waits until the answer has its outcome."""


@dataclass(eq=False, slots=True)
class ComparedSide:
    """One of the two: what was sent, and what came of it."""

    mode: PromptMode
    request: GenerateRequest | None = None
    answer: Answer | None = None
    """None before it is sent."""
    rendered: PromptReady | None = None
    """The prompt as the model would be given it, made without an answer."""
    rendered_from: Prompt | None = None

    sent: Sent | None = None
    """Set where somebody else takes the answer in."""

    def begin(self, request: GenerateRequest, sent: Sent | None = None) -> None:
        """Another request, and an answer that is still to come."""
        self.request, self.sent = request, sent
        self.answer = sent.answer if sent else Answer(request.request_id)

    @property
    def is_running(self) -> bool:
        return self.answer is not None and self.answer.outcome is None

    @property
    def is_over(self) -> bool:
        return self.answer is not None and self.answer.outcome is not None

    @property
    def has_failed(self) -> bool:
        """Whether its answer did not come, or not to its end."""
        return self.answer is not None and isinstance(self.answer.outcome, Failed | Cancelled)

    @property
    def prompt(self) -> PromptReady | None:
        """The newest that is known."""
        return (self.answer.prompt if self.answer else None) or self.rendered


def inspected_side(side: ComparedSide, info: EngineInfo) -> Inspected | None:
    """What the inspector shows of a side; None where no prompt was made yet."""
    title = "chat template" if side.mode == "chat" else "raw prompt"
    if side.answer is not None:
        return Inspected.of_answer(title, side.answer, request=side.request, info=info)
    if side.rendered is None or side.rendered_from is None:
        return None
    return Inspected(
        title=title,
        prompt=side.rendered,
        vocabulary=side.rendered.vocabulary,
        attachments=attachments_of(side.rendered_from),
        info=info,
    )


def reopened(side: Side) -> ComparedSide:
    """A kept side as one whose answer is over."""
    special = frozenset(side.special_token_ids)
    pairs = (
        *zip(side.prompt_token_ids, side.prompt_token_texts, strict=False),
        *zip(side.answer_token_ids, side.answer_token_texts, strict=False),
    )
    vocabulary = {id: Token(text=text, special=id in special, data=side.token_bytes.get(id)) for id, text in pairs}
    ready = PromptReady(
        request_id="",
        prompt=side.prompt,
        token_ids=side.prompt_token_ids,
        media=side.media,
        vocabulary=vocabulary,
    )
    answer = Answer("", [side.answer], ready if side.prompt_token_ids else None, tokens=len(side.answer_token_ids))
    answer.vocabulary = vocabulary
    answer.token_ids = list(side.answer_token_ids)
    answer.outcome = _outcome(side)
    return ComparedSide(side.mode, answer=answer, rendered_from=side.request)


def _outcome(side: Side) -> Finished | Failed | Cancelled:
    if side.finish_reason is not None:
        return Finished(
            request_id="", finish_reason=side.finish_reason, usage=side.usage, timings=side.timings, stop=side.stop
        )
    if side.timings.total_s:
        return Cancelled(request_id="", usage=side.usage, timings=side.timings)
    return Failed(request_id="", failure=Failure(kind=ErrorKind.INTERNAL, message=side.failure))
