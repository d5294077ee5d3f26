"""Requests to an engine, the events it sends in reply, and failures as data."""

from __future__ import annotations

from typing import Literal

import msgspec

from vlmtui.domain.conversation import Modality, Prompt
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A `VlmtuiError` as data."""

    kind: ErrorKind
    message: str
    detail: str = ""
    hint: str = ""

    @classmethod
    def of(cls, error: VlmtuiError) -> Failure:
        return cls(kind=error.kind, message=error.message, detail=error.detail, hint=error.hint)

    def error(self) -> VlmtuiError:
        return VlmtuiError(self.kind, self.message, detail=self.detail, hint=self.hint)


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    request_id: str
    """Unique among all clients of the worker."""
    prompt: Prompt
    sampling: Sampling
    own_arguments: tuple[str, ...] = ()
    """Names of processor arguments in `sampling` that come from the model family's TOML record, not from the user. They
    are left out if the server accepts no processor arguments."""


class GenerateRequest(_Request, frozen=True, kw_only=True, tag="generate"):
    """A request to answer the prompt."""

    logprobs: int | None = None
    """Report the log-probability of every answer token, and of this many of the most likely tokens at its position."""
    adapter: str = ""
    """The folder of a LoRA adapter to answer with. Absolute; empty: the engine's own, if it has one."""
    from_cache: bool = False
    """Send the engine only the identifiers of the media. If they are not in its cache, the request fails (NOT_KEPT)."""
    final_only: bool = False
    """Send the whole answer as one Delta at its end, and of the prompt only its token ids and the places of its media,
    without text and vocabulary: nobody watches. An engine may send more."""
    keep: bool = False
    """Continue if the client disconnects, and keep the answer until a client fetches it (`Engine.resume`) and forgets
    it."""


class ScoreRequest(_Request, frozen=True, kw_only=True, tag="score"):
    """A request for the log-probabilities of given tokens as the answer to the prompt, without generating. The reply is
    one Delta; each token's log-probability depends on the prompt and the tokens before it."""

    tokens: tuple[int, ...]
    """The tokens to score. Fewer come back if they exceed the context."""
    logprobs: int | None = None
    """Also report this many of the most likely tokens at each position."""
    adapter: str = ""
    """The folder of a LoRA adapter to score with. Absolute; empty: the engine's own, if it has one."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A request to write each attachment's pixels, as the processor made them, to files; `PromptReady.seen` lists
    them."""

    folder: str
    """A private folder for the image files. Absolute."""
    values: bool = False
    """Also write the processor's output values (`SeenMedium.values`)."""


class RenderRequest(_Request, frozen=True, kw_only=True, tag="render"):
    """A request to render the prompt, process its media, and stop after PromptReady."""

    view: View | None = None
    """Also write the processed pixels there."""


Request = GenerateRequest | ScoreRequest | RenderRequest


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of the tokenizer's vocabulary."""

    text: str
    """The token decoded on its own, special tokens kept. Hostile text."""
    special: bool = False
    data: bytes | None = None
    """The token's bytes, if the text does not determine them (parts of a character)."""


Vocabulary = dict[int, Token]
"""Tokens by id."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An alternative token and its log-probability."""

    token_id: int
    logprob: float


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """An answer token's log-probability, and the most likely tokens at its position, most likely first."""

    token_id: int
    logprob: float
    top: tuple[Candidate, ...] = ()

    @property
    def by_id(self) -> dict[int, float]:
        """The log-probabilities of this token and of the most likely ones, by id."""
        return {self.token_id: self.logprob} | {one.token_id: one.logprob for one in self.top}


class MediaSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Where the engine placed an attachment's tokens in the prompt."""

    modality: Modality
    index: int
    """Index among the attachments of this modality, from 0."""
    offset: int
    length: int
    """Length of the span in tokens."""
    tokens: int
    """How many of them are image or video embeddings (separators are not counted)."""
    resized: tuple[int, int] | None = None
    """Width and height in pixels after the processor resized it (of one tile, if it made tiles); None if unknown."""
    grid: tuple[int, ...] = ()
    """Patches (frames, rows, columns) as the processor counts them, or the number of tiles; empty if unknown."""
    tensors: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """Shapes of the processor's output tensors by name (`pixel_values`: (1024, 1176))."""


class SeenPicture(msgspec.Struct, frozen=True, kw_only=True):
    """An image, tile or frame as the model sees it, converted back from the processor's tensor."""

    path: str
    """A PNG file, RGB."""
    width: int
    """Pixels."""
    height: int
    offset: int | None = None
    """Where its tokens begin in the prompt; None: unknown."""
    length: int = 0
    """Number of these tokens."""


class SeenMedium(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment as the model sees it."""

    modality: Modality
    index: int
    """Index among the attachments of this modality, from 0."""
    layout: Literal["", "picture", "tiles", "patches", "frames"] = ""
    """How the images are arranged in the tensor; empty: unknown, so they can't be read."""
    tensor: str = ""
    """The tensor's name (`pixel_values`)."""
    pictures: tuple[SeenPicture, ...] = ()
    is_exact: bool = True
    """False: the processor's mean and deviation are unknown, so that contrast and colours are stretched."""
    left_out: int = 0
    """Number of further images that were not written."""
    values: tuple[str, ...] = ()
    """NumPy files (float32) with the values that the model computes with, if `View.values` is set: each image's
    channels, rows and columns; if its layout can't be read, one file with the whole tensor."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts, as the engine reports them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    image_tokens: int = 0
    """Prompt tokens that represent images."""
    video_tokens: int = 0
    """Prompt tokens that represent video frames."""
    audio_tokens: int = 0
    """Prompt tokens that represent audio."""
    cached_tokens: int = 0
    """Prompt tokens that were found in the prefix cache."""

    @property
    def media_tokens(self) -> int:
        return self.image_tokens + self.video_tokens + self.audio_tokens

    @property
    def media_text(self) -> str:
        """The media tokens in words: `16 image`, `164 video`, `16 image, 164 video`. Empty without media."""
        counts = (("image", self.image_tokens), ("video", self.video_tokens), ("audio", self.audio_tokens))
        return ", ".join(f"{count:,} {modality}" for modality, count in counts if count)


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from the arrival of the request, measured in the worker."""

    ttft_s: float | None = None
    """Time to first token; None if there was none."""
    total_s: float = 0.0
    queued_s: float | None = None
    """Seconds that the request waited for other requests, as the engine reports; None: unknown."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True, tag="waiting"):
    """A server takes no requests now; the engine asks it again after `seconds`. Sent before the first delta, once for
    each wait."""

    request_id: str
    seconds: float
    reason: str
    """What the server said. Hostile text."""


class PromptReady(msgspec.Struct, frozen=True, kw_only=True, tag="prompt_ready"):
    """The prompt as the model gets it. Sent before the first token."""

    request_id: str
    prompt: str
    """Decoded from `token_ids`, with special tokens and expanded placeholders. Empty with `final_only`."""
    token_ids: tuple[int, ...]
    media: tuple[MediaSpan, ...]
    vocabulary: Vocabulary = msgspec.field(default_factory=dict)
    """Every distinct token of the prompt. Empty with `final_only`."""
    text: str = ""
    """The prompt text as the template wrote it, before tokenization. Set for a `RenderRequest` only; empty if the
    engine does not report it. Hostile text."""
    seen: tuple[SeenMedium, ...] = ()
    """The processed images, if `RenderRequest.view` requests them."""
    used: Sampling | None = None
    """The sampling that the engine uses: completed with the model's own defaults and the drawn seed. None if nothing is
    generated, or if the engine does not report it."""


def usage_of(prompt: PromptReady | None, completion_tokens: int = 0) -> Usage:
    """Return the token counts of a prompt (None: not rendered yet) and of its answer so far."""
    if prompt is None:
        return Usage(completion_tokens=completion_tokens)
    return Usage(
        prompt_tokens=len(prompt.token_ids),
        completion_tokens=completion_tokens,
        image_tokens=sum(span.tokens for span in prompt.media if span.modality == "image"),
        video_tokens=sum(span.tokens for span in prompt.media if span.modality == "video"),
        audio_tokens=sum(span.tokens for span in prompt.media if span.modality == "audio"),
    )


class Delta(msgspec.Struct, frozen=True, kw_only=True, tag="delta"):
    """New text since the last delta."""

    request_id: str
    text: str
    tokens: int
    """Number of tokens in this text; 0: unknown."""
    token_ids: tuple[int, ...] = ()
    """The ids of these tokens."""
    vocabulary: Vocabulary = msgspec.field(default_factory=dict)
    """Tokens of `token_ids` and `logprobs` that were not in the prompt's or an earlier delta's vocabulary."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """One per token, if requested."""


FinishReason = Literal["stop", "length"]


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """The answer is complete."""

    request_id: str
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    stop: str | None = None
    """The stop string, or the text of the stop token, that ended the answer; None for `length`, or if unknown."""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The request failed; the text so far remains valid."""

    request_id: str
    failure: Failure


class Cancelled(msgspec.Struct, frozen=True, kw_only=True, tag="cancelled"):
    """The request was aborted in the engine; the text so far remains valid."""

    request_id: str
    usage: Usage
    timings: Timings


EngineEvent = Waiting | PromptReady | Delta | Finished | Failed | Cancelled
"""A request's events: any number of Waitings, at most one PromptReady, any number of Deltas, then exactly one Finished,
Failed or Cancelled."""
