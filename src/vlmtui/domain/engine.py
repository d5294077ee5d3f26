"""Engines as data: the model and kind of engine to start, load progress, facts, status and display names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from vlmtui.domain.capabilities import Capabilities
from vlmtui.domain.conversation import Modality
from vlmtui.domain.generation import Failure
from vlmtui.domain.template import Scalar
from vlmtui.errors import ErrorKind, VlmtuiError

_NAME = re.compile(r"^[a-z][a-z0-9_-]{0,31}$")
_VERSION = re.compile(r"^\d{1,6}(\.\d{1,6}){1,3}$")
BackendName = Annotated[str, msgspec.Meta(pattern=_NAME.pattern)]
"""A kind of engine, by its name in `vlmtui.worker.backends`."""
FOLDER_GONE = "the folder is gone"
"""In place of the names of changed files."""
FITTED = -1
"""The engine argument `max_model_len` for as much of the model's own context as fits in the memory."""
DEFAULT_BACKEND = "vllm"
TRANSFORMERS_BACKEND = "transformers"
"""Hugging Face Transformers, in the environment of the installed vLLM."""
PINNED_BACKEND = "pinned"
"""Another version of vLLM, in an environment of its own."""
SERVED_BACKEND = "served"
"""The installed vLLM's own server, started here."""
SERVED_BACKENDS = frozenset({PINNED_BACKEND, SERVED_BACKEND})
"""The backends for which the worker starts a server."""
REMOTE_BACKEND = "remote"
"""A server that runs elsewhere: nothing is loaded here."""
PinnedVersion = Annotated[str, msgspec.Meta(pattern=_VERSION.pattern)]
"""A version of vLLM, such as `0.23.0`."""


class LoraAdapter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A LoRA adapter that comes with the model."""

    name: str
    id: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] = 1
    """A number that only this adapter of the model has."""
    path: str = ""
    """Relative to the model's folder."""
    modalities: tuple[Modality, ...] = ()
    """The adapter answers requests with media of these modalities; empty: all requests."""


class LoadSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determines which engine to start. Equal specs share one worker; see also `can_serve`."""

    model: str
    """A repository id or a local folder."""
    name: str
    """The model's name for people (`shapes`, `Qwen/Qwen2-VL-7B-Instruct`)."""
    backend: BackendName = DEFAULT_BACKEND
    """The kind of engine that runs it."""
    pinned: PinnedVersion | None = None
    """The version of vLLM, for the backend `pinned`."""
    family: str | None = None
    revision: str | None = None
    """The commit to load; None: the newest."""
    trust_remote_code: bool = False
    """True if the model's own Python code may run, limited to `code_revision` or `code_sha256`."""
    code_revision: str | None = None
    """The commit of the code's repository; None: `revision`."""
    code_sha256: str | None = None
    """`RemoteCode.digest` of the code that may run, for a model in a local folder."""
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    """The backend's arguments by name (for `vllm`, fields of `AsyncEngineArgs`). The worker adds defaults for this
    machine, such as the dtype on a CPU."""
    typed: tuple[str, ...] = ()
    """Names in `engine_args` that the user typed, on the command line or in `config.toml`. Only these may name code, a
    file or an address (`vlmtui.registry.engine_arguments` has the rules)."""
    num_frames: int = 8
    """Default number of frames per video."""
    loras: tuple[LoraAdapter, ...] = ()
    """The first whose modalities fit a request answers it."""


class LoadStage(StrEnum):
    """The stages of a load, in order."""

    ENVIRONMENT = "environment"
    CONFIG = "config"
    """Reading the model's configuration, and starting the engine's own processes, which takes longer."""
    WEIGHTS = "weights"
    MEMORY = "memory"
    COMPILE = "compile"
    WARMUP = "warmup"

    @property
    def label(self) -> str:
        """The stage's display name."""
        return _STAGE_LABELS[self]


_STAGE_LABELS = {
    LoadStage.ENVIRONMENT: "Environment",
    LoadStage.CONFIG: "Config, engine start",
    LoadStage.WEIGHTS: "Weights",
    LoadStage.MEMORY: "Memory and KV cache",
    LoadStage.COMPILE: "Compile and graphs",
    LoadStage.WARMUP: "Warm-up",
}


class LoadProgress(msgspec.Struct, frozen=True, kw_only=True, tag="load_progress"):
    """Load progress. `fraction` (0..1) is the progress within the stage, None if unknown."""

    stage: LoadStage
    elapsed_s: float
    fraction: float | None = None
    detail: str = ""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a loaded engine, as it reports them."""

    spec: LoadSpec
    architecture: str
    engine: str
    """The engine's display name, such as `vLLM`."""
    engine_version: str
    device: str
    """`cpu`, or the GPU's name."""
    dtype: str
    max_model_len: int
    """Context length in tokens; 0: unknown, since a server need not tell it."""
    has_chat_template: bool
    limits: dict[Modality, int]
    """The most items of each modality in one prompt; empty for a server, which does not tell them."""
    load_s: float
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    """The arguments actually used."""
    revision: str | None = None
    """The commit of the weights, if they came from a hub."""
    files: str = ""
    """A digest of the files that were loaded: weights, tokenizer, templates, configuration and the record's adapters.
    Empty: unknown, as of a server elsewhere."""
    chat_template: str = ""
    """The Jinja source of the model's chat template; empty if it has none."""
    template_variables: dict[str, tuple[Scalar, ...]] | None = None
    """The variables that the chat template reads, each with the values that it compares it with. None: unknown."""
    special_tokens: tuple[str, ...] = ()
    """The texts of the tokenizer's special tokens."""
    stop_tokens: tuple[str, ...] = ()
    """The texts of the tokens that end an answer, from the model's configuration."""
    bos_token: str | None = None
    adds_bos: bool = False
    """True if the tokenizer adds the BOS token to a raw prompt."""
    address: str = ""
    """The address at which other clients can use the engine; empty if it has none, or if it runs elsewhere."""
    capabilities: Capabilities = Capabilities()
    remedies: dict[str, str] = msgspec.field(default_factory=dict)
    """For capabilities that the engine lacks, by name: how the user can add them. Most have no remedy."""
    notes: tuple[str, ...] = ()
    """Notes on this load for the user: a context shorter than requested, a repaired fault."""


class Activity(StrEnum):
    """What a running engine is doing."""

    LOADING = "loading"
    IDLE = "idle"
    BUSY = "busy"
    STOPPING = "stopping"


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a running engine is doing, and the resources it uses."""

    spec: LoadSpec
    state: Activity
    clients: int
    """Connected clients, not counting `vlmtui ps` and `vlmtui stop`."""
    running: int
    """Number of running requests."""
    idle_s: float
    """Seconds since the last request ended; 0 while busy."""
    keep_alive_s: float | None
    """Seconds it stays after its last client leaves; None: forever."""
    rss_bytes: int
    """Resident memory of all its processes."""
    gpu_bytes: int | None
    """GPU memory of the same processes; None if unknown."""
    kept: tuple[str, ...] = ()
    """Ids of requests without a client: still running, or waiting to be fetched."""
    engine_silent_s: float = 0.0
    """Seconds without a sign of life from the engine; 0 if it is well, and while it loads."""
    changed: tuple[str, ...] = ()
    """The names of the files that have changed since the engine loaded them, or `FOLDER_GONE`. Hostile text."""


class EngineReady(msgspec.Struct, frozen=True, tag="engine_ready"):
    """The engine is loaded and accepts requests."""

    info: EngineInfo


class LoadFailed(msgspec.Struct, frozen=True, tag="load_failed"):
    """The engine could not be loaded; its process ends."""

    failure: Failure


LoadEvent = LoadProgress | EngineReady | LoadFailed


_TITLES = {DEFAULT_BACKEND: "vLLM", TRANSFORMERS_BACKEND: "Transformers"}


class BackendChoice(msgspec.Struct, frozen=True):
    """A kind of engine; for `pinned` also the version of vLLM."""

    backend: BackendName = DEFAULT_BACKEND
    pinned: PinnedVersion | None = None

    @staticmethod
    def of(spec: LoadSpec) -> BackendChoice:
        """Return the kind of engine in a spec."""
        return BackendChoice(spec.backend, spec.pinned)

    @property
    def text(self) -> str:
        """The text that `read_backend` parses to this choice."""
        return f"vllm=={self.pinned}" if self.pinned is not None else self.backend

    @property
    def title(self) -> str:
        """The display name: `vLLM`, `Transformers`, `vLLM 0.23.0`."""
        return f"vLLM {self.pinned}" if self.pinned is not None else _TITLES.get(self.backend, self.backend)


def read_backend(text: str) -> BackendChoice:
    """Parse `vllm`, `transformers`, `vllm==X.Y.Z`, or the name of a backend that another package offers.

    Raises VlmtuiError(BAD_USAGE)."""
    name, equals, version = text.strip().partition("==")
    if equals:
        if name.strip() == DEFAULT_BACKEND and _VERSION.fullmatch(version.strip()):
            return BackendChoice(PINNED_BACKEND, version.strip())
    elif name == REMOTE_BACKEND:
        raise VlmtuiError(ErrorKind.BAD_USAGE, "A server is not a backend here.", hint="Use --engine ADDRESS.")
    elif name != PINNED_BACKEND and _NAME.fullmatch(name):
        return BackendChoice(name)
    message = f"{text!r} is not a backend."
    raise VlmtuiError(ErrorKind.BAD_USAGE, message, hint="Write vllm, transformers, or vllm==0.23.0.")


def adapter_for(spec: LoadSpec, shown: Iterable[Modality]) -> LoraAdapter | None:
    """Return the first adapter for a prompt with these modalities; None if the model answers without an adapter."""
    modalities = set(shown)
    for adapter in spec.loras:
        if not adapter.modalities or modalities & set(adapter.modalities):
            return adapter
    return None


def kind_of(spec: LoadSpec) -> str:
    """Return the display name of the kind of engine: `vLLM`, `Transformers`, `vLLM 0.23.0`, `server`."""
    return "server" if spec.backend == REMOTE_BACKEND else BackendChoice.of(spec).title


def can_serve(running: LoadSpec, wanted: LoadSpec) -> bool:
    """Return True if an engine loaded with `running` can answer in place of one loaded with `wanted`: it differs at
    most in LoRA, a longer context, or more media in a prompt."""
    if msgspec.structs.replace(running, engine_args={}, typed=()) != msgspec.structs.replace(
        wanted, engine_args={}, typed=()
    ):
        return False
    has, wants = running.engine_args, wanted.engine_args
    return all(
        has.get(name) == wants.get(name) or _is_more(name, has.get(name), wants) for name in has.keys() | wants.keys()
    )


_LORA = {"enable_lora": False, "max_lora_rank": 16, "max_loras": 1}
"""vLLM's arguments for LoRA, with its defaults."""


def _is_more(name: str, has: object, wants: Mapping[str, object]) -> bool:
    """Return True if the value `has` of an engine argument allows all that the one in `wants` does."""
    wanted = wants.get(name)
    if name in _LORA and not wants.get("enable_lora"):
        return True
    match name, has, wanted:
        case (("max_lora_rank" | "max_loras"), _, _):
            has, wanted = has or _LORA[name], wanted or _LORA[name]
            return isinstance(has, int) and isinstance(wanted, int) and has >= wanted
        case "max_model_len", None, int():  # the model's own context, which no other exceeds
            return True
        case "max_model_len", int(), int():
            return has >= wanted > 0
        case "limit_mm_per_prompt", dict(), dict():
            pairs = [(has.get(modality), most) for modality, most in wanted.items()]
            counts = all(isinstance(one, int) and isinstance(most, int) and one >= most for one, most in pairs)
            return counts and has.keys() == wanted.keys()
    return False


def distinction(spec: LoadSpec, others: Sequence[LoadSpec]) -> str:
    """Return how an engine differs from other engines of the same name: its kind, its family, and the arguments that
    others lack or set differently. Returns "" if nothing differs."""
    same = [one for one in others if one.name == spec.name and one != spec]
    told = [kind_of(spec)] if any(kind_of(one) != kind_of(spec) for one in same) else []
    alike = [one for one in same if kind_of(one) == kind_of(spec)]
    if any(one.family != spec.family for one in alike):
        told.append(f"family={spec.family or 'unknown'}")
    texts = _argument_texts(spec)
    return ", ".join([*told, *(one for one in texts if any(one not in _argument_texts(other) for other in alike))])


def _argument_texts(spec: LoadSpec) -> list[str]:
    """Return a spec's engine arguments for display: `LoRA up to rank 64, 4 at a time`, `dtype=float32`."""
    left_out = {*_LORA, "placeholders"}  # the placeholders follow from the model's family
    lora = {**_LORA, **spec.engine_args}
    told = [f"LoRA up to rank {lora['max_lora_rank']}, {lora['max_loras']} at a time"] if lora["enable_lora"] else []
    return told + [f"{name}={value}" for name, value in sorted(spec.engine_args.items()) if name not in left_out]


def labels(specs: Sequence[LoadSpec]) -> list[str]:
    """Return a display name for each engine. Engines of the same name also get their differences."""
    return [f"{spec.name} ({found})" if (found := distinction(spec, specs)) else spec.name for spec in specs]
