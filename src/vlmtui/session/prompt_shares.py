"""The tokens of each attachment in a prompt."""

from __future__ import annotations

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import all_attachments
from vlmtui.domain.prompt import attachments_of
from vlmtui.inspection.tokens import attachment_of
from vlmtui.session.exchange import Exchange, turns_as_sent


class PromptShare(msgspec.Struct, frozen=True):
    """An attachment of a prompt, and its tokens."""

    number: int
    """Number in the prompt, from 1."""
    attachment: Attachment
    tokens: int | None
    """None if unknown."""


def prompt_shares(exchange: Exchange) -> list[PromptShare]:
    """Return the attachments of an exchange's prompt, in order, with their tokens."""
    attachments = prompt_attachments(exchange)
    spans = exchange.answer.prompt.media if exchange.answer.prompt else ()
    tokens = {id(item): span.tokens for span in spans if (item := attachment_of(span, attachments))}
    return [PromptShare(number, item, tokens.get(id(item))) for number, item in enumerate(attachments, 1)]


def prompt_attachments(exchange: Exchange) -> tuple[Attachment, ...]:
    """Return the attachments of the exchange's prompt, in order; empty if unknown."""
    if exchange.request is not None:
        return attachments_of(exchange.request.prompt)
    if exchange.record is not None:
        sent = turns_as_sent(exchange, exchange.record.system_prompt, exchange.record.attachments)
        return all_attachments(sent)
    return ()
