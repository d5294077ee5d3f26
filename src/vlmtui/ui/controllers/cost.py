"""What a message costs before it is sent: the tokens of its attachments and of the whole prompt. No widgets here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vlmtui.domain.attachment import Modality
from vlmtui.domain.engine import PromptReady
from vlmtui.ui.controllers.draft import Token


@dataclass(frozen=True, slots=True)
class Cost:
    """As the engine itself counted it."""

    prompt_tokens: int
    context: int
    """The engine's context length, in tokens."""
    tokens: Mapping[int, int]
    """Tokens of each attachment of the message, by its number."""

    @property
    def is_too_much(self) -> bool:
        """Whether not even one token of an answer would fit."""
        return self.prompt_tokens >= self.context

    @property
    def text(self) -> str:
        """For people, in one line."""
        told = f"{self.prompt_tokens:,} of {self.context:,} tokens"
        if self.is_too_much:
            return f"Too long for the model: {told}."
        return f"This prompt takes {told} ({self.prompt_tokens / self.context:.0%})."


def cost_of(ready: PromptReady, message: list[Token], context: int) -> Cost:
    """`message` are the tokens of the draft, whose attachments are the newest of the prompt."""
    tokens: dict[int, int] = {}
    for modality in ("image", "video"):
        numbers = [token.number for token in message if token.attachment and token.attachment.modality == modality]
        counts = _counts(ready, modality)
        if len(counts) >= len(numbers):
            tokens |= dict(zip(reversed(numbers), reversed(counts), strict=False))
    return Cost(len(ready.token_ids), context, tokens)


def _counts(ready: PromptReady, modality: Modality) -> list[int]:
    """Tokens of each attachment of a modality, in the prompt's order. A video may have a span for every frame."""
    spans = sorted((span for span in ready.media if span.modality == modality), key=lambda span: span.index)
    return [span.tokens for span in spans]
