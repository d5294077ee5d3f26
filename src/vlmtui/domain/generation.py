"""A request for an answer, and the events that an engine answers it with."""

from __future__ import annotations

from typing import Literal

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.failure import Failure
from vlmtui.domain.prompt import Prompt
from vlmtui.domain.sampling import Sampling


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `request_id` is unique among all clients of the worker."""

    request_id: str
    prompt: Prompt
    sampling: Sampling
    only_render: bool = False
    """Make the prompt, media processed and counted, and end after PromptReady: nothing is generated."""
    logprobs: int | None = None
    """Tell the log-probability of every token of the answer, and so many of the likeliest tokens at its place."""
    keep: bool = False
    """Go on when the client is lost, and keep the answer until it is fetched (`Engine.resume`) and let go."""


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of the tokenizer's vocabulary."""

    text: str
    """Decoded alone, special tokens kept. Hostile text."""
    special: bool = False
    data: bytes | None = None
    """Its bytes, where the text does not tell them: parts of characters."""


Vocabulary = dict[int, Token]
"""Tokens by their ids."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A token that might have come, and the logarithm of its probability."""

    token_id: int
    logprob: float


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token of the answer, and the likeliest at its place, the likeliest first."""

    token_id: int
    logprob: float
    top: tuple[Candidate, ...] = ()


class MediaSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Where an attachment's tokens stand in the prompt, as the engine itself placed them."""

    modality: Modality
    index: int
    """Counts the attachments of this modality from 0."""
    offset: int
    length: int
    """Tokens from the first to the last of the span."""
    tokens: int
    """How many of them are embeddings of the image or video (separators not counted)."""
    resized: tuple[int, int] | None = None
    """Width and height, in pixels, that the processor made of it (of a tile where it made tiles); None where it does
    not say."""
    grid: tuple[int, ...] = ()
    """Patches as the processor counts them (frames, rows, columns), or tiles; empty where it does not say."""
    tensors: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """Shapes of what the processor made of it, by name (`pixel_values`: (1024, 1176))."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts, as the engine reports them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    image_tokens: int = 0
    """Tokens of the prompt that stand for images."""
    video_tokens: int = 0
    """Those that stand for frames of videos. Answers of the first version count them as `image_tokens`."""

    @property
    def media_text(self) -> str:
        """`16 image`, `164 video`, `16 image, 164 video`; empty where the prompt has neither."""
        counts = (("image", self.image_tokens), ("video", self.video_tokens))
        return ", ".join(f"{count:,} {modality}" for modality, count in counts if count)


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, measured in the worker from the arrival of the request."""

    ttft_s: float | None = None
    """To the first token; None where none came."""
    total_s: float = 0.0


class PromptReady(msgspec.Struct, frozen=True, kw_only=True, tag="prompt_ready"):
    """The prompt as the model is given it. Comes before the first token."""

    request_id: str
    prompt: str
    """Decoded from `token_ids`, special tokens kept, each image's run of tokens as it stands."""
    token_ids: tuple[int, ...]
    media: tuple[MediaSpan, ...]
    vocabulary: Vocabulary = msgspec.field(default_factory=dict)
    """Every token of the prompt, once."""


def usage_of(prompt: PromptReady | None, completion_tokens: int = 0) -> Usage:
    """The tokens of a prompt, None before it is made, and of so much of its answer."""
    if prompt is None:
        return Usage(completion_tokens=completion_tokens)
    return Usage(
        prompt_tokens=len(prompt.token_ids),
        completion_tokens=completion_tokens,
        image_tokens=sum(span.tokens for span in prompt.media if span.modality == "image"),
        video_tokens=sum(span.tokens for span in prompt.media if span.modality == "video"),
    )


class Delta(msgspec.Struct, frozen=True, kw_only=True, tag="delta"):
    """New text since the last delta."""

    request_id: str
    text: str
    tokens: int
    """Tokens behind this text."""
    token_ids: tuple[int, ...] = ()
    """Those tokens."""
    vocabulary: Vocabulary = msgspec.field(default_factory=dict)
    """Tokens of `token_ids` and `logprobs` that neither the prompt nor an earlier delta has told."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """One a token, where they were asked for."""


FinishReason = Literal["stop", "length"]


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """The answer is complete."""

    request_id: str
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    stop: str | None = None
    """The stop string or the text of the stop token that ended it; None for `length` or where unknown."""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The request failed; the text so far stays valid."""

    request_id: str
    failure: Failure


class Cancelled(msgspec.Struct, frozen=True, kw_only=True, tag="cancelled"):
    """The request was aborted in the engine; the text so far stays valid."""

    request_id: str
    usage: Usage
    timings: Timings


EngineEvent = PromptReady | Delta | Finished | Failed | Cancelled
"""A request's events: at most one PromptReady, any number of Deltas, then exactly one of the last three."""
