"""What an engine is asked for and what it reports: loads, requests, events."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from vlmtui.domain.attachment import Attachment, Modality
from vlmtui.domain.conversation import Role, Turn
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A `VlmtuiError` as data, so that it can cross a process boundary."""

    kind: ErrorKind
    message: str
    detail: str = ""
    hint: str = ""

    @classmethod
    def of(cls, error: VlmtuiError) -> Failure:
        return cls(kind=error.kind, message=error.message, detail=error.detail, hint=error.hint)

    def error(self) -> VlmtuiError:
        return VlmtuiError(self.kind, self.message, detail=self.detail, hint=self.hint)


class LoraAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRA adapter that every request is run with."""

    name: str
    id: int
    path: str
    """Relative to the model's folder, which the worker looks up."""


class LoadSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides which engine is started. Two equal specs may share one worker."""

    model: str
    """A repository id or a local folder."""
    name: str
    """What the user calls it (`shapes`, `Qwen/Qwen2-VL-7B-Instruct`)."""
    family: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    """vLLM `AsyncEngineArgs` by name. The worker adds what this machine needs (CPU dtype …) where nothing is said."""
    num_frames: int = 8
    """Frames a video is given as by default."""
    lora: LoraAdapter | None = None


class LoadStage(StrEnum):
    """The stages of a load, in order."""

    ENVIRONMENT = "environment"
    CONFIG = "config"
    WEIGHTS = "weights"
    MEMORY = "memory"
    COMPILE = "compile"
    WARMUP = "warmup"


class LoadProgress(msgspec.Struct, frozen=True, kw_only=True, tag="load_progress"):
    """How far a load is. `fraction` (0..1) belongs to the stage and is None where the stage has no measure."""

    stage: LoadStage
    elapsed_s: float
    fraction: float | None = None
    detail: str = ""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What was loaded, as the engine itself says."""

    spec: LoadSpec
    architecture: str
    vllm_version: str
    device: str
    """`cpu`, or the GPU's name."""
    dtype: str
    max_model_len: int
    """Context length in tokens."""
    has_chat_template: bool
    limits: dict[Modality, int]
    """How many items of a modality one conversation may hold."""
    load_s: float
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    """The arguments as finally used."""
    revision: str | None = None
    """The commit of the weights, where they came from a hub."""
    chat_template: str = ""
    """The source of the model's own chat template; empty where it has none, or none in Jinja."""
    special_tokens: tuple[str, ...] = ()
    """The tokenizer's special tokens, by their text."""
    stop_tokens: tuple[str, ...] = ()
    """Tokens that end an answer by the model's own configuration, by their text."""
    bos_token: str | None = None
    adds_bos: bool = False
    """Whether the tokenizer puts the BOS token before a raw prompt by itself."""


class EngineReady(msgspec.Struct, frozen=True, tag="engine_ready"):
    """The engine answers from now on."""

    info: EngineInfo


class LoadFailed(msgspec.Struct, frozen=True, tag="load_failed"):
    """The engine could not be loaded; its process ends."""

    failure: Failure


LoadEvent = LoadProgress | EngineReady | LoadFailed


class ChatPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="chat"):
    """Turns, for a chat template."""

    turns: tuple[Turn, ...]
    chat_template: str | None = None
    """Used instead of the model's own."""
    fallback_template: str | None = None
    """Used where the model has none."""


class RawPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="raw"):
    """A prompt text with placeholders in it, and the attachments in the order of their placeholders."""

    text: str
    attachments: tuple[Attachment, ...] = ()


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message for a chat template: its content is a text with placeholders in it, or a list of parts."""

    role: Role
    content: str | tuple[dict[str, object], ...]


class MessagesPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="messages"):
    """A raw prompt that is still to be written: the worker applies the chat template of the model's tokenizer or
    processor (or the one given) to the messages, and sends the text as it would send a `RawPrompt`."""

    messages: tuple[Message, ...]
    by: Literal["tokenizer", "processor"]
    chat_template: str | None = None
    attachments: tuple[Attachment, ...] = ()
    """In the order of their placeholders."""


Prompt = ChatPrompt | RawPrompt | MessagesPrompt


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
    """Tokens of the prompt that stand for images and video frames."""


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
