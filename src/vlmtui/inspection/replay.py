"""The comparison document: JSON with the prompts and answers of a comparison, to view it or run it again."""

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
"""Media types by the suffix of an attachment's stored copy, which for most formats is a PNG file."""
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")

Natural = Annotated[int, msgspec.Meta(ge=0)]
ParameterName = Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(PARAMETERS)})$")]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the document. An unknown field is an error."""


class MediaRecord(Record, frozen=True, kw_only=True):
    """An attachment. Without `data`, running the comparison again needs the file with this hash."""

    sha256: Digest
    """The SHA-256 of the stored file."""
    name: str
    """Hostile text."""
    modality: Modality
    media_type: str
    """`image/png`, …; `application/octet-stream` if unknown."""
    data: str | None = None
    """The bytes in base64, if embedded."""

    @property
    def content(self) -> bytes | None:
        """The embedded bytes, or None."""
        return None if self.data is None else base64.b64decode(self.data, validate=True)


class CandidateRecord(Record, frozen=True, kw_only=True):
    """An alternative token and its log-probability."""

    token_id: Natural
    text: str
    logprob: float


class LogprobRecord(Record, frozen=True, kw_only=True):
    """A token of the answer, and the most likely tokens at its position, the likeliest first."""

    token_id: Natural
    text: str
    logprob: float
    top: tuple[CandidateRecord, ...] = ()


class EngineFingerprint(Record, frozen=True, kw_only=True):
    """The facts about an engine that may change its answers. All texts are hostile: make them visible before showing
    them."""

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
    """The engine arguments in effect."""

    @property
    def facts(self) -> str:
        """The engine in one line: `vLLM 0.32.0 · float32 · cpu`."""
        return " · ".join(filter(None, (f"{self.engine} {self.engine_version}".strip(), self.dtype, self.device)))


class Side(Record, frozen=True, kw_only=True):
    """A prompt and the model's answer."""

    mode: Literal["chat", "raw"]
    label: str = ""
    """The side's name, such as `seed 2`; empty if `mode` is enough. Hostile text."""
    adapter: str = ""
    """The folder of the request's LoRA adapter, as `~/…` if it is in the home folder. Hostile text."""
    engine: EngineFingerprint | None = None
    """The engine of the answer; None: the comparison's engine."""
    sampling: dict[ParameterName, Number | None] = msgspec.field(default_factory=dict)
    """The parameters that differ from the comparison's, by name."""
    own: Sampling | None = None
    """The whole sampling of the request, if it differs in more than `sampling`: stop strings, structured output,
    processor arguments."""
    used: Sampling | None = None
    """The sampling that the engine used, without open values; None: not recorded."""
    request: Prompt | None = None
    """The request, to run it again; its attachments have hashes instead of paths."""
    prompt: str
    """The decoded prompt of the model, with every token of an image."""
    prompt_token_ids: tuple[Natural, ...]
    prompt_token_texts: tuple[str, ...] = ()
    """The text of each token of the prompt, or empty."""
    special_token_ids: tuple[Natural, ...] = ()
    """The ids of the special tokens among those of the prompt and the answer."""
    token_bytes: dict[Natural, bytes] = msgspec.field(default_factory=dict)
    """The bytes of tokens that are not whole characters, by token id; base64."""
    media: tuple[MediaSpan, ...] = ()
    answer: str = ""
    answer_token_ids: tuple[Natural, ...] = ()
    answer_token_texts: tuple[str, ...] = ()
    """The text of each token of the answer, or empty."""
    usage: Usage = Usage()
    timings: Timings = Timings()
    finish_reason: FinishReason | None = None
    """None if the request failed or was stopped."""
    stop: str | None = None
    failure: str = ""
    """Why the answer is missing or incomplete."""
    logprobs: tuple[LogprobRecord, ...] | None = None


class DiffSummary(Record, frozen=True, kw_only=True):
    """The differences of the first two sides, as in `PromptDiff` and `AnswerDiff`."""

    prompts_identical: bool
    answers_identical: bool
    prompt_first_divergence: Natural | None = None
    """A token's index."""
    answer_first_divergence: Natural | None = None
    """A token's index."""
    answer_first_difference: Natural | None = None
    """An offset in characters."""
    findings: tuple[str, ...] = ()


class Comparison(Record, frozen=True, kw_only=True):
    """The whole document."""

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
    """This, `backend` and `device` are empty in older documents."""
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    """The engine arguments in effect."""
    sampling: Sampling
    attachments: tuple[MediaRecord, ...] = ()
    sides: tuple[Side, ...]
    """One to eight sides; the others are compared with the first."""
    difference: DiffSummary | None = None
    """None if there is only one side, or the first or second side has no prompt."""


def engine_of(comparison: Comparison, side: Side) -> EngineFingerprint:
    """Return the fingerprint of a side's engine."""
    if side.engine is not None:
        return side.engine
    return EngineFingerprint(**{name: getattr(comparison, name) for name in EngineFingerprint.__struct_fields__})


def media_record(attachment: Attachment, content: bytes | None = None) -> MediaRecord:
    """Return the record of an attachment. `content`: its bytes, to embed them."""
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
    return DiffSummary(
        prompts_identical=prompts.identical,
        answers_identical=answers.identical,
        prompt_first_divergence=prompts.first_divergence,
        answer_first_divergence=answers.first_divergence,
        answer_first_difference=answers.first_difference,
        findings=prompts.findings,
    )


def to_json(comparison: Comparison) -> bytes:
    """Return the document as indented JSON with a line break at its end."""
    return msgspec.json.format(msgspec.json.encode(comparison), indent=2) + b"\n"


def from_json(data: bytes) -> Comparison:
    """Return the document from its JSON.

    Raises VlmtuiError if the JSON is invalid, if a field is unknown or missing, if embedded media do not match their
    hash, or if the numbers of token texts and token ids differ.
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
    """Return the path of the first field in `given` (the JSON) that decoding has dropped from `read`, or "". Needed
    because the structs of `vlmtui.domain` do not reject unknown fields."""
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
