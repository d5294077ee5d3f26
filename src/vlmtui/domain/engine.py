"""Which engine is loaded, how far its load is, what it says of itself, and what it is doing."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.capabilities import Capabilities
from vlmtui.domain.failure import Failure

BackendName = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
"""A kind of engine, by the name that `vlmtui.worker.backends` knows it by."""
DEFAULT_BACKEND = "vllm"


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
    backend: BackendName = DEFAULT_BACKEND
    """The kind of engine that runs it."""
    family: str | None = None
    revision: str | None = None
    """The commit to load; None: the newest."""
    trust_remote_code: bool = False
    """Whether the model's own Python code may run: that of the revision below, or with the hash below, and no other."""
    code_revision: str | None = None
    """The commit of the repository that the code is taken from; None: `revision`."""
    code_sha256: str | None = None
    """Of a local folder: `RemoteCode.digest` of the code that may run."""
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    """The backend's own arguments, by name (for `vllm` the fields of its `AsyncEngineArgs`). The worker adds what this
    machine needs (a CPU's dtype …) where nothing is said."""
    num_frames: int = 8
    """Frames a video is given as by default."""
    lora: LoraAdapter | None = None


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
        """Its name for people, everywhere the same."""
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
    """How far a load is. `fraction` (0..1) belongs to the stage and is None where the stage has no measure."""

    stage: LoadStage
    elapsed_s: float
    fraction: float | None = None
    detail: str = ""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What was loaded, as the engine itself says."""

    spec: LoadSpec
    architecture: str
    engine: str
    """What the engine is called, `vLLM`."""
    engine_version: str
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
    capabilities: Capabilities = Capabilities()


class Activity(StrEnum):
    """What a running engine does."""

    LOADING = "loading"
    IDLE = "idle"
    BUSY = "busy"
    STOPPING = "stopping"


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a running engine does, and what it costs."""

    spec: LoadSpec
    state: Activity
    clients: int
    """Those that use it now; one that only looks (`vlmtui ps`) or comes to end it is not counted."""
    running: int
    """Requests under way."""
    idle_s: float
    """Seconds since the last request ended; 0 while busy."""
    keep_alive_s: float | None
    """Seconds that it stays once its last client has gone; None: for ever."""
    rss_bytes: int
    """Resident memory of all its processes."""
    gpu_bytes: int | None
    """GPU memory of the same processes, where that can be told."""
    kept: tuple[str, ...] = ()
    """Requests that go on, or wait to be fetched, without a client."""
    engine_silent_s: float = 0.0
    """Seconds without any sign of life from the engine itself; 0 where all is well, and while loading."""


class EngineReady(msgspec.Struct, frozen=True, tag="engine_ready"):
    """The engine answers from now on."""

    info: EngineInfo


class LoadFailed(msgspec.Struct, frozen=True, tag="load_failed"):
    """The engine could not be loaded; its process ends."""

    failure: Failure


LoadEvent = LoadProgress | EngineReady | LoadFailed
