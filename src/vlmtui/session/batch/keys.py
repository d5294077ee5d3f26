"""What makes an item's answer, as a short text: equal keys, equal answers wanted."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import GenerateRequest

PARTS = ("prompt", "media", "sampling", "model", "engine")
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


def engine_parts(info: EngineInfo) -> tuple[str, str]:
    """Return the parts of every key that come from the engine: model, and engine. Blocking: reads of local weights."""
    spec = info.spec
    model = [spec.model, info.revision, info.architecture, msgspec.to_builtins(spec.lora), info.chat_template]
    model += msgspec.to_builtins(spec.more_loras)
    if Path(spec.model).is_dir():
        model[0] = _folder_digest(Path(spec.model))
    kept = {name: value for name, value in info.engine_args.items() if name not in _SPEED_ONLY}
    return _part(model), _part([info.engine, info.engine_version, info.dtype, spec.backend, kept])


def item_key(request: GenerateRequest, media: list[str], engine: tuple[str, str]) -> str:
    """Return the key of an item. `request`: with attachments that are the same whatever their content. `media`: the
    content of each medium."""
    prompt = _part(msgspec.to_builtins(request.prompt))
    sampling = _part([msgspec.to_builtins(request.sampling), request.logprobs])
    return "-".join((prompt, _part(media), sampling, *engine))


def changed_parts(before: str, now: str) -> list[str]:
    """Return which of `PARTS` differ between two keys."""
    old = before.split("-")
    if len(old) != len(PARTS):
        return list(PARTS)
    return [name for name, one, other in zip(PARTS, old, now.split("-"), strict=True) if one != other]


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
