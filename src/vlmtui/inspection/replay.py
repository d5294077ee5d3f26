"""A comparison as a document: all that is needed to view it or to run it again."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from vlmtui.domain.conversation import Attachment, Modality, Prompt
from vlmtui.domain.generation import FinishReason, MediaSpan, Timings, Usage
from vlmtui.domain.sampling import PARAMETERS, Number, Sampling
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.inspection.answer_diff import AnswerDiff
from vlmtui.inspection.prompt_diff import PromptDiff

SIDES_MAX = 8
_TYPES = {"jpeg": "image/jpeg", "png": "image/png", "webp": "image/webp", "gif": "image/gif"}
_STORED = {".png": "image/png", ".jpg": "image/jpeg"}
"""Media type by the suffix of the stored copy, which is a PNG of the prepared pixels for most formats."""
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")

Natural = Annotated[int, msgspec.Meta(ge=0)]
ParameterName = Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(PARAMETERS)})$")]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the document. Unknown fields are errors."""


class MediaRecord(Record, frozen=True, kw_only=True):
    """An attachment. Without `data`, the reader needs the file with this hash."""

    sha256: Digest
    """SHA-256 of the bytes that the model was given."""
    name: str
    """Hostile text."""
    modality: Modality
    media_type: str
    """`image/png`; `application/octet-stream` where unknown."""
    data: str | None = None
    """The bytes in base64, if embedded."""

    @property
    def content(self) -> bytes | None:
        """Return the embedded bytes, or None."""
        return None if self.data is None else base64.b64decode(self.data, validate=True)


class CandidateRecord(Record, frozen=True, kw_only=True):
    """An alternative token and its log-probability."""

    token_id: Natural
    text: str
    logprob: float


class LogprobRecord(Record, frozen=True, kw_only=True):
    """A token of the answer, and the most likely tokens at its position, most likely first."""

    token_id: Natural
    text: str
    logprob: float
    top: tuple[CandidateRecord, ...] = ()


class EngineFingerprint(Record, frozen=True, kw_only=True):
    """The engine that answered, in enough detail to tell what changed between two answers. Hostile texts."""

    model: str
    revision: str | None = None
    """The commit of the weights."""
    backend: str = "vllm"
    engine: str
    """The engine's name, `vLLM`."""
    engine_version: str
    device: str = ""
    dtype: str = ""
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    """The engine arguments that were in effect."""

    @property
    def facts(self) -> str:
        """A line for people: `vLLM 0.32.0 · float32 · cpu`."""
        return " · ".join(filter(None, (f"{self.engine} {self.engine_version}", self.dtype, self.device)))


class Side(Record, frozen=True, kw_only=True):
    """One of the prompts, and the model's answer."""

    mode: Literal["chat", "raw"]
    label: str = ""
    """The side's name, if the mode does not say it: `seed 2`. Hostile text."""
    adapter: str = ""
    """The folder of the LoRA adapter that answered, `~/…` below the home folder; empty: none, or the engine's own.
    Hostile text."""
    engine: EngineFingerprint | None = None
    """The engine that answered; None: the comparison's engine."""
    sampling: dict[ParameterName, Number | None] = msgspec.field(default_factory=dict)
    """The parameters that differ from the comparison's, by name."""
    own: Sampling | None = None
    """The sampling of its request, if more than those numbers differs: stop strings, structure, processor arguments."""
    used: Sampling | None = None
    """The sampling values that the engine used, every one resolved; None: not recorded."""
    request: Prompt | None = None
    """The request, to run it again; its attachments have hashes instead of paths."""
    prompt: str
    """The prompt that the model got, decoded; with every token of an image."""
    prompt_token_ids: tuple[Natural, ...]
    prompt_token_texts: tuple[str, ...] = ()
    """The prompt's tokens, decoded one by one; as many as the ids, or none."""
    special_token_ids: tuple[Natural, ...] = ()
    """Which tokens of the prompt and the answer are special."""
    token_bytes: dict[Natural, bytes] = msgspec.field(default_factory=dict)
    """The bytes of tokens that are not whole characters, by token id; base64."""
    media: tuple[MediaSpan, ...] = ()
    answer: str = ""
    answer_token_ids: tuple[Natural, ...] = ()
    answer_token_texts: tuple[str, ...] = ()
    """The answer's tokens, decoded one by one; as many as the ids, or none."""
    usage: Usage = Usage()
    timings: Timings = Timings()
    finish_reason: FinishReason | None = None
    """None if it failed or was stopped."""
    stop: str | None = None
    failure: str = ""
    """Why the answer is missing or incomplete."""
    logprobs: tuple[LogprobRecord, ...] | None = None


class DiffSummary(Record, frozen=True, kw_only=True):
    """The result of comparing the first two sides."""

    prompts_identical: bool
    answers_identical: bool
    prompt_first_divergence: Natural | None = None
    """Index of the first differing token, as in `PromptDiff`."""
    answer_first_divergence: Natural | None = None
    """Index of the first differing token."""
    answer_first_difference: Natural | None = None
    """Offset in characters."""
    findings: tuple[str, ...] = ()


class Comparison(Record, frozen=True, kw_only=True):
    """The document."""

    format: Literal["vlmtui-comparison-1"] = "vlmtui-comparison-1"
    model: str
    revision: str | None = None
    """The commit of the weights."""
    engine: str
    """The engine's name, `vLLM`."""
    engine_version: str
    backend: str = ""
    device: str = ""
    dtype: str = ""
    """The three are empty in documents that do not have them."""
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    """The engine arguments that were in effect."""
    sampling: Sampling
    attachments: tuple[MediaRecord, ...] = ()
    sides: tuple[Side, ...]
    """One to eight; the others are compared with the first."""
    difference: DiffSummary | None = None
    """None with one side, or if the first or the second has no prompt."""


def engine_of(comparison: Comparison, side: Side) -> EngineFingerprint:
    """Return what answered a side."""
    if side.engine is not None:
        return side.engine
    return EngineFingerprint(
        model=comparison.model,
        revision=comparison.revision,
        backend=comparison.backend,
        engine=comparison.engine,
        engine_version=comparison.engine_version,
        device=comparison.device,
        dtype=comparison.dtype,
        engine_args=comparison.engine_args,
    )


def media_record(attachment: Attachment, content: bytes | None = None) -> MediaRecord:
    """Return the record of an attachment; with `content`, the document embeds its bytes."""
    known = _STORED.get(Path(attachment.path).suffix) or _TYPES.get(attachment.format.lower())
    if attachment.modality != "image":
        known = None
    return MediaRecord(
        sha256=attachment.sha256,
        name=attachment.name.encode("utf-8", "replace").decode(),
        modality=attachment.modality,
        media_type=known or "application/octet-stream",
        data=None if content is None else base64.b64encode(content).decode(),
    )


def summary_of(prompts: PromptDiff, answers: AnswerDiff) -> DiffSummary:
    """Summarize the two differences."""
    return DiffSummary(
        prompts_identical=prompts.identical,
        answers_identical=answers.identical,
        prompt_first_divergence=prompts.first_divergence,
        answer_first_divergence=answers.first_divergence,
        answer_first_difference=answers.first_difference,
        findings=prompts.findings,
    )


def to_json(comparison: Comparison) -> bytes:
    """Return the document, indented, with a line break at its end."""
    return msgspec.json.format(msgspec.json.encode(comparison), indent=2) + b"\n"


def from_json(data: bytes) -> Comparison:
    """Return the document that `to_json` wrote.

    Raises VlmtuiError with what is wrong: not JSON, an unknown or missing field, media with another hash, token texts
    and ids of different numbers.
    """
    try:
        comparison = msgspec.json.decode(data, type=Comparison)
        unknown = _unknown(msgspec.json.decode(data), msgspec.to_builtins(comparison, str_keys=True), "$")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(str(error)) from error
    problem = f"unknown field `{unknown}`" if unknown else _problem(comparison)
    if problem:
        raise _wrong(problem)
    return comparison


def _unknown(given: object, read: object, path: str) -> str:
    """Return the first field of the JSON text that was not read; needed because the domain's structs ignore unknown
    ones."""
    if isinstance(given, dict) and isinstance(read, dict):
        inside = ((f"{path}.{key}", value, read[key]) for key, value in given.items() if key in read)
        lost = next((f"{path}.{key}" for key in given if key not in read), "")
        return lost or next((found for at, one, other in inside if (found := _unknown(one, other, at))), "")
    if isinstance(given, list) and isinstance(read, Sequence) and not isinstance(read, str):
        pairs = enumerate(zip(given, read, strict=False))
        return next((found for at, (one, other) in pairs if (found := _unknown(one, other, f"{path}[{at}]"))), "")
    return ""


def _problem(comparison: Comparison) -> str:
    if not 1 <= len(comparison.sides) <= SIDES_MAX:
        return f"{len(comparison.sides)} sides; the limit is 1 to {SIDES_MAX}"
    for side in comparison.sides:
        if side.prompt_token_texts and len(side.prompt_token_texts) != len(side.prompt_token_ids):
            return "a prompt has different numbers of token texts and token ids"
        if side.answer_token_texts and len(side.answer_token_texts) != len(side.answer_token_ids):
            return "an answer has different numbers of token texts and token ids"
    for item in comparison.attachments:
        if item.data is None:
            continue
        try:
            content = item.content if _BASE64.fullmatch(item.data) else None
        except (binascii.Error, ValueError):
            content = None
        if content is None or hashlib.sha256(content).hexdigest() != item.sha256:
            return f"the bytes of {item.name!r} do not match their hash"
    return ""


def _wrong(detail: str) -> VlmtuiError:
    return bad_input("Not a vlmtui comparison, or it was changed.", detail=detail)
