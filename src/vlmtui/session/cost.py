"""The cost of a message before it is sent: the tokens of its attachments and of the whole prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import get_args

import msgspec

from vlmtui.domain.capabilities import lack
from vlmtui.domain.conversation import Modality
from vlmtui.domain.engine import FITTED
from vlmtui.domain.generation import PromptReady
from vlmtui.errors import VlmtuiError
from vlmtui.registry.estimate import estimated_tokens, settings_of, tokens_of_size
from vlmtui.registry.match import Model
from vlmtui.session.conversation import Conversation
from vlmtui.session.dials import processor_arguments
from vlmtui.session.draft import DraftToken
from vlmtui.session.engines import AppEngines, EngineState, is_remote
from vlmtui.session.generation import render
from vlmtui.text import counted

_LONG_TEXT = 2000
"""The fewest characters of a text without attachments whose tokens are counted."""


EstimateTokens = Callable[[Modality, tuple[int, int], int | None], int | None]
"""Returns the estimated tokens for a modality, (width, height) in pixels, and number of frames; None: unknown."""


class Cost(msgspec.Struct, frozen=True):
    """The tokens of the next prompt, as counted by the engine."""

    prompt_tokens: int
    context: int
    """The engine's context length, in tokens; 0: unknown."""
    tokens: Mapping[int, int]
    """Tokens of the draft's attachments, by number."""

    @property
    def is_too_much(self) -> bool:
        """True if the prompt leaves no room for an answer."""
        return 0 < self.context <= self.prompt_tokens

    @property
    def text(self) -> str:
        """The cost for display: `This prompt takes 1,200 of 8,192 tokens (15%).`"""
        if not self.context:
            return f"This prompt takes {counted(self.prompt_tokens, 'token')}."
        used = f"{self.prompt_tokens:,} of {self.context:,} tokens"
        if self.is_too_much:
            return f"Too long for the model: {used}."
        return f"This prompt takes {used} ({self.prompt_tokens / self.context:.0%})."


class CostEstimate(msgspec.Struct, frozen=True):
    """Tokens estimated from the model family's TOML record, without an engine."""

    tokens: Mapping[int, int]
    """Estimated tokens of the draft's attachments, by number; without those that can't be estimated."""
    unknown: int
    """Number of attachments without an estimate."""
    context: int | None
    """The context length in tokens; None: unknown."""
    why: str = ""
    """Why the engine can't count them; empty: it is not loaded yet."""

    @property
    def text(self) -> str:
        """The estimate for display: `Attachments take ~1,200 of 8,192 tokens (an estimate until the model is
        loaded).`"""
        if not self.tokens:
            return self.why
        total = f"~{sum(self.tokens.values()):,}"
        used = f"{total} of {self.context:,}" if self.context else total
        more = f", and {self.unknown} unknown" if self.unknown else ""
        how = f"an estimate). {self.why}" if self.why else "an estimate until the model is loaded)."
        return f"Attachments take {used} tokens{more} ({how}"


def tokens_before_attaching(
    model: Model, modality: Modality, size: tuple[int, int], frames: int | None = None
) -> int | None:
    """Estimate a file's tokens from width and height in pixels and the number of frames; None: impossible."""
    sampled = model.spec.num_frames
    settings = settings_of(model.family, engine_args=model.spec.engine_args)
    return tokens_of_size(model.family, modality, size, frames=min(sampled, frames or sampled), settings=settings)


def cost_of(ready: PromptReady, message: list[DraftToken], context: int) -> Cost:
    """Return the cost of a rendered prompt. `message`: the tokens of the draft, such as `[Image #1]`; their attachments
    are the last in the prompt. `context`: the engine's context length in tokens."""
    tokens: dict[int, int] = {}
    for modality in get_args(Modality):
        numbers = [token.number for token in message if token.attachment and token.attachment.modality == modality]
        spans = sorted((span for span in ready.media if span.modality == modality), key=lambda span: span.index)
        counts = [span.tokens for span in spans]  # a video may have a span for each frame
        if len(counts) >= len(numbers):
            tokens |= dict(zip(reversed(numbers), reversed(counts), strict=False))
    return Cost(len(ready.token_ids), context, tokens)


Outcome = Cost | CostEstimate | VlmtuiError | None
"""The cost of a draft, or why it can't be sent; None: nothing to show."""


async def draft_cost(chat: Conversation, controller: AppEngines) -> Outcome:
    """Return the draft's cost, an estimate, or the error. None while an answer is running, and for a draft without
    attachments that is shorter than `_LONG_TEXT` characters."""
    draft, engine, info = chat.draft, controller.engine, controller.info
    if chat.running is not None or not (draft.attachments or len(draft.words) >= _LONG_TEXT):
        return None
    try:
        request = chat.preview(controller.require_model().family)
        if engine is None or info is None or controller.state is not EngineState.READY:
            return draft_estimate(chat, controller)
        if why := lack(info, "render_only"):
            estimate = draft_estimate(chat, controller) or CostEstimate({}, 0, None)
            return msgspec.structs.replace(estimate, why=why)
        tokens = draft.tokens
        return cost_of(await render(engine, request.prompt, request.sampling), tokens, info.max_model_len)
    except VlmtuiError as error:
        return error


def draft_estimate(chat: Conversation, controller: AppEngines) -> CostEstimate | None:
    """Estimate the tokens of the draft's attachments from the family's record; None if no attachment can be
    estimated."""
    if (model := controller.model) is None:
        return None
    items = chat.draft.numbered
    images = sum(item.modality == "image" for item in items.values())
    settings = settings_of(model.family, images, model.spec.engine_args)
    settings |= processor_arguments(chat.settings.sampling, {})
    estimates = {number: estimated_tokens(model.family, item, settings=settings) for number, item in items.items()}
    tokens = {number: count for number, count in estimates.items() if count is not None}
    if not tokens:
        return None
    given = model.spec.engine_args.get("max_model_len")
    context = given if isinstance(given, int) and given != FITTED else model.family.context
    if is_remote(model):
        context = controller.info.max_model_len if controller.info is not None else None
    return CostEstimate(tokens, len(estimates) - len(tokens), context)
