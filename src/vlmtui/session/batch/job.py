"""How items become requests and lines of the output, and the key of an item: one with the same key is
not asked again."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.domain.conversation import Media, Part, Text, Turn, system_turn
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.prompt import RawPrompt
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import bad_input
from vlmtui.inspection.raw_prompt_check import check_raw
from vlmtui.registry.prompts import check_attachments
from vlmtui.registry.schema import Family
from vlmtui.session.answer_json import answer_json, tokens_json
from vlmtui.session.batch.item import BatchItem, Item
from vlmtui.session.generation import Answer, PromptMode, make_request, request_for

INCLUDES = ("prompt", "token_ids")
"""The fields that a line has only if they are asked for."""
_SPEED_ONLY = frozenset(
    {
        "max_num_seqs", "gpu_memory_utilization", "limit_mm_per_prompt", "mm_processor_cache_gb", "disable_log_stats",
        "enforce_eager", "model", "max_num_batched_tokens", "enable_prefix_caching", "url", "api_key_env",
        "api_key_file", "allow_owner", "max_model_len",
    }
)  # fmt: skip
"""Engine arguments that change how fast an answer comes, or whether it fits, but not the answer."""
_SAMPLE = 65_536
_SAMPLES = 4
_BLANK = Attachment(
    modality="image", name="", path="", sha256="", width=1, height=1, size_bytes=0, format="", sampling=None
)
"""Stands for a medium in a key, which has its content besides."""


class BatchJob(msgspec.Struct, frozen=True, kw_only=True):
    """How the items of a batch are asked and written."""

    family: Family
    model: str
    """Its name, for the lines."""
    sampling: Sampling
    """Of items that set none."""
    cache: Path
    """The application's cache folder."""
    mode: PromptMode = "chat"
    system: str = ""
    """Of items that have none."""
    logprobs: int | None = None
    include: frozenset[str] = frozenset()
    """Some of `INCLUDES`."""
    num_frames: int = 8
    """Of a video."""

    def key(self, item: BatchItem, media: Sequence[str], sampling: VideoSampling, engine: str) -> str:
        """Return the key of an item. `media`: the content of each medium. `sampling`: of videos.
        `engine`: from `engine_key`. Raises VlmtuiError if the model does not take the item."""
        kinds = [(one.modality, sampling if one.modality == "video" else None) for one in item.sources]
        blanks = [msgspec.structs.replace(_BLANK, modality=kind, sampling=of_video) for kind, of_video in kinds]
        request = self.request(item, blanks)
        return _hash([request.prompt, request.sampling, request.logprobs, media, engine])

    def request(self, item: BatchItem, attachments: Sequence[Attachment]) -> GenerateRequest:
        """Return the request. `attachments`: of the item's sources, in their order. Raises VlmtuiError."""
        sampling = msgspec.structs.replace(self.sampling, **item.sampling)
        logprobs = self.logprobs if item.logprobs is None else item.logprobs
        if item.raw is not None:
            check_attachments(self.family, [Turn("user", tuple(Media(one) for one in attachments))])
            prompt = RawPrompt(text=item.raw, attachments=tuple(attachments))
            request = request_for(prompt, self.family, sampling, logprobs=logprobs)
        else:
            turns = list(self._turns(item, iter(attachments)))
            request = make_request(self.family, turns, sampling, mode=self.mode, logprobs=logprobs)
        return msgspec.structs.replace(request, final_only="prompt" not in self.include)

    def check_raw(self, request: GenerateRequest, info: EngineInfo) -> None:
        """Raise VlmtuiError if the placeholders of a raw prompt do not fit its attachments."""
        if not isinstance(request.prompt, RawPrompt):
            return
        found = check_raw(
            request.prompt.text,
            request.prompt.attachments,
            self.family,
            special_tokens=frozenset(info.special_tokens),
            stop_tokens=info.stop_tokens,
            bos=info.bos_token,
            adds_bos=info.adds_bos,
        )
        for finding in found:
            if finding.blocks:
                raise bad_input(finding.message)

    def line(self, result: ItemResult) -> bytes:
        """Return the line of a result."""
        item, answer = result.item, result.answer
        value: dict[str, object] = {"id": item.id, "line": item.line, "key": result.key, "error": result.failure}
        if isinstance(item, BatchItem):
            value["question"] = item.question
            value["mode"] = "raw" if item.raw is not None else self.mode
            value["media"] = [one.sha256 for one in result.attachments]
        if answer is not None:
            value |= self._answer(answer)
        if isinstance(item, BatchItem) and item.expect is not None:
            value["expect"] = item.expect
            value["correct"] = result.is_answered and answer is not None and item.expect.holds(answer.text)
        value["ended"] = round(result.ended, 3)
        return msgspec.json.encode(value)

    def _answer(self, answer: Answer) -> dict[str, object]:
        found = answer_json(self.model, answer, 0.0)
        tokens = tokens_json(answer)
        if "prompt" not in self.include:
            del found["prompt"]
        if "token_ids" not in self.include:
            del tokens["prompt_token_ids"], tokens["answer_token_ids"]
        return found | tokens

    def _turns(self, item: BatchItem, attachments: Iterator[Attachment]) -> Iterator[Turn]:
        if self.system and not any(message.role == "system" for message in item.messages):
            yield system_turn(self.system)
        for message in item.messages:
            parts: tuple[Part, ...] = tuple(
                Text(part) if isinstance(part, str) else Media(next(attachments)) for part in message.parts
            )
            yield Turn(message.role, parts)


@dataclass(slots=True, eq=False)
class ItemResult:
    """The end of an item: an answer, or a failure."""

    item: Item
    key: str = ""
    answer: Answer | None = None
    failure: Failure | None = None
    request: GenerateRequest | None = None
    """None: nothing was sent."""
    attachments: Sequence[Attachment] = ()
    ended: float = field(default_factory=time.time)

    @property
    def is_answered(self) -> bool:
        return self.answer is not None and self.failure is None


def engine_key(info: EngineInfo) -> str:
    """Return the part of every key that comes from the model and the engine. Blocking: reads of local
    weights."""
    spec = info.spec
    kept = {name: value for name, value in info.engine_args.items() if name not in _SPEED_ONLY}
    weights = _folder_digest(Path(spec.model)) if Path(spec.model).is_dir() else spec.model
    model = [weights, info.revision, info.architecture, spec.lora, spec.more_loras, info.chat_template]
    return _hash([*model, info.engine, info.engine_version, info.dtype, spec.backend, kept])


def _hash(value: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=16).hexdigest()


def _folder_digest(folder: Path) -> str:
    """Return a digest of a model's files: names, sizes, and samples of their content, as reading all
    takes minutes."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            for number in range(_SAMPLES + 1):
                file.seek(max(0, size - _SAMPLE) * number // _SAMPLES)
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()
