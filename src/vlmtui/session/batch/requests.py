"""What is sent for an item, and its key: equal keys, equal answers wanted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.domain.conversation import Media, Part, Text, Turn, system_turn
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.prompt import RawPrompt
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import bad_input
from vlmtui.inspection.raw_prompt_check import check_raw
from vlmtui.registry.loader import Registry
from vlmtui.registry.prompts import check_attachments
from vlmtui.registry.schema import Family
from vlmtui.session.batch.item import BatchItem
from vlmtui.session.generation import PromptMode, make_request, request_for

KEY_PARTS = ("prompt", "media", "sampling", "model", "engine")
"""What a key consists of, in order; each part is a hash of 12 hex digits."""
_SPEED_ONLY = frozenset(
    {
        "max_num_seqs", "gpu_memory_utilization", "limit_mm_per_prompt", "mm_processor_cache_gb", "disable_log_stats",
        "enforce_eager", "model", "max_num_batched_tokens", "enable_prefix_caching", "url", "api_key_env",
        "api_key_file", "allow_owner", "max_model_len",
    }
)  # fmt: skip
"""Engine arguments that change how fast an answer comes, or whether it fits, but not what it is."""
_SAMPLE = 65_536
_SAMPLES = 4


class ItemRequests(msgspec.Struct, frozen=True):
    """How the items of a batch become requests."""

    family: Family
    sampling: Sampling
    """Of items that set none."""
    mode: PromptMode = "chat"
    system: str = ""
    """Of items that have none."""
    template: str = ""
    """A raw prompt in which `{prompt}` stands for an item's question; empty: none."""
    logprobs: int | None = None
    is_prompt_read: bool = False
    """Whether prompts are wanted as texts, not only their numbers of tokens."""
    registry: Registry | None = None

    def key(self, item: BatchItem, media: Sequence[str], sampling: VideoSampling, engine: tuple[str, str]) -> str:
        """Return the key of an item. `media`: the content of each medium. `sampling`: of videos. `engine`: from
        `engine_parts`. Raises VlmtuiError if the model does not take the item."""
        blank = Attachment(
            modality="image", name="", path="", sha256="", width=1, height=1, size_bytes=0, format="", sampling=None
        )
        blanks = [
            msgspec.structs.replace(
                blank, modality=source.modality, sampling=sampling if source.modality == "video" else None
            )
            for source in item.sources
        ]
        request = self.request(item, blanks)
        prompt = _part(msgspec.to_builtins(request.prompt))
        return "-".join(
            (prompt, _part(media), _part([msgspec.to_builtins(request.sampling), request.logprobs]), *engine)
        )

    def request(self, item: BatchItem, attachments: Sequence[Attachment]) -> GenerateRequest:
        """Return the request. `attachments`: of the item's sources, in their order. Raises VlmtuiError."""
        sampling = msgspec.structs.replace(self.sampling, **item.sampling)
        logprobs = self.logprobs if item.logprobs is None else item.logprobs
        raw = item.raw
        if raw is None and self.template:
            raw = self.template.replace("{prompt}", item.question)
        if raw is not None:
            check_attachments(self.family, [Turn("user", tuple(Media(one) for one in attachments))])
            prompt = RawPrompt(text=raw, attachments=tuple(attachments))
            request = request_for(prompt, self.family, sampling, logprobs=logprobs)
        else:
            turns = list(self._turns(item, iter(attachments)))
            request = make_request(self.family, turns, sampling, mode=self.mode, logprobs=logprobs)
        return msgspec.structs.replace(request, final_only=not self.is_prompt_read)

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
            families=self.registry.values() if self.registry is not None else (),
        )
        for finding in found:
            if finding.blocks:
                raise bad_input(finding.message)

    def _turns(self, item: BatchItem, attachments: Iterator[Attachment]) -> Iterator[Turn]:
        if self.system and not any(message.role == "system" for message in item.messages):
            yield system_turn(self.system)
        for message in item.messages:
            parts: tuple[Part, ...] = tuple(
                Text(part) if isinstance(part, str) else Media(next(attachments)) for part in message.parts
            )
            yield Turn(message.role, parts)


def engine_parts(info: EngineInfo) -> tuple[str, str]:
    """Return the parts of every key that come from the engine: model, and engine. Blocking: reads of local weights."""
    spec = info.spec
    model = [spec.model, info.revision, info.architecture, msgspec.to_builtins(spec.lora), info.chat_template]
    model += msgspec.to_builtins(spec.more_loras)
    if Path(spec.model).is_dir():
        model[0] = _folder_digest(Path(spec.model))
    kept = {name: value for name, value in info.engine_args.items() if name not in _SPEED_ONLY}
    return _part(model), _part([info.engine, info.engine_version, info.dtype, spec.backend, kept])


def changed_parts(before: str, now: str) -> list[str]:
    """Return which of `KEY_PARTS` differ between two keys."""
    old = before.split("-")
    if len(old) != len(KEY_PARTS):
        return list(KEY_PARTS)
    return [name for name, one, other in zip(KEY_PARTS, old, now.split("-"), strict=True) if one != other]


def _part(value: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=6).hexdigest()


def _folder_digest(folder: Path) -> str:
    """Return a digest of a model's files: names, sizes, and samples of their content, as reading all takes minutes."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            for number in range(_SAMPLES + 1):
                file.seek(max(0, size - _SAMPLE) * number // _SAMPLES)
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()
