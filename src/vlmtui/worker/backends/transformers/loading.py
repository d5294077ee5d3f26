"""Load a model in Transformers, with engine arguments (vLLM's names where both have them), devices, LoRA adapters."""

from __future__ import annotations

import importlib.util
import inspect
import pickle
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from vlmtui.domain.capabilities import ALL
from vlmtui.domain.conversation import Modality, attachments_of
from vlmtui.domain.engine import FITTED, EngineInfo, LoadSpec, LoadStage, adapter_for
from vlmtui.domain.generation import GenerateRequest, ScoreRequest
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.registry.model_files import require_adapter
from vlmtui.text import did_you_mean
from vlmtui.worker.backends.contract import LoadStep, Report
from vlmtui.worker.health import limit_memory
from vlmtui.worker.hf.template_variables import read_variables
from vlmtui.worker.hf.vocabulary import eos_ids, tokenizer_facts
from vlmtui.worker.loaded_files import folder_signature, own_adapter_folder

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    max_model_len: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The most tokens of prompt and answer together. A model with a shorter context uses its own; None: its own."""
    limit_mm_per_prompt: dict[Modality, Annotated[int, msgspec.Meta(ge=0)]] = msgspec.field(default_factory=dict)
    """The most items of each modality in one prompt."""
    mm_processor_kwargs: dict[str, object] = msgspec.field(default_factory=dict)
    """Arguments of the model's processor for every prompt."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None
    """The number format of the weights; None: float32 on a CPU, else that of the checkpoint."""
    device: _Name | None = None
    """A torch device; None: the first GPU, or else the CPU."""
    device_map: _Name | Annotated[dict[str, int | str], msgspec.Meta(min_length=1)] | None = None
    """Transformers' argument for spreading the layers over GPUs, memory and disk: `auto`, or a device for each module
    name. Needs the package accelerate."""
    attn_implementation: _Name | None = None
    """Transformers' name of the attention: `sdpa`, `eager`, `flash_attention_2`."""
    load_format: Literal["auto", "dummy"] = "auto"
    """`dummy`: random weights, drawn with `seed`."""
    seed: int = 0
    """The seed of the random weights."""
    revision: _Name | None = None
    """The commit or branch to load, if the spec has none."""
    enable_lora: bool = False
    """Ignored, like the next two fields. They are accepted because vLLM needs them; Transformers takes any LoRA adapter
    without them."""
    max_loras: int = 1
    max_lora_rank: int = 16
    raw_special_tokens: bool = True
    """True if the tokenizer adds special tokens (BOS) to a raw prompt, as in vLLM."""


def read_arguments(spec: LoadSpec) -> Arguments:
    """Return the spec's engine arguments. Raises VlmtuiError for an unknown argument, with the most similar name, or
    for a wrong value."""
    known = Arguments.__struct_fields__
    for name in spec.engine_args:
        if name not in known:
            raise VlmtuiError(
                ErrorKind.BAD_ENGINE_ARGUMENT,
                f"The Transformers backend has no engine argument {name!r}.",
                hint=did_you_mean(name, known) or f"It has {', '.join(known)}.",
            )
    try:
        found: Arguments = msgspec.convert(_as_here(spec.engine_args), Arguments)
    except msgspec.ValidationError as error:
        raise VlmtuiError(
            ErrorKind.BAD_ENGINE_ARGUMENT,
            "An engine argument has a wrong value.",
            detail=str(error),
            hint="Correct it in the settings or in the model's record.",
        ) from error
    if found.device_map is not None and (found.device or found.load_format == "dummy"):
        message = "device_map goes neither with device nor with load_format = dummy."
        raise VlmtuiError(ErrorKind.BAD_ENGINE_ARGUMENT, message, hint="Leave the others out.")
    return found


def _as_here(given: Mapping[str, object]) -> dict[str, object]:
    """Return vLLM's arguments as this backend has them: without `max_model_len` if vLLM is to choose it by the
    memory (FITTED), and with `limit_mm_per_prompt` as plain counts (`{count = 2, width = 512}` becomes 2)."""
    given = {name: value for name, value in given.items() if (name, value) != ("max_model_len", FITTED)}
    limits = given.get("limit_mm_per_prompt")
    if not isinstance(limits, Mapping):
        return given
    counts = {name: one.get("count") if isinstance(one, Mapping) else one for name, one in limits.items()}
    return {**given, "limit_mm_per_prompt": counts}


def spreading(arguments: Arguments) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that spread a model over devices; empty without `device_map`. Raises
    VlmtuiError if accelerate is missing."""
    if arguments.device_map is None:
        return {}
    if importlib.util.find_spec("accelerate") is None:
        raise VlmtuiError(
            ErrorKind.BAD_ENGINE_ARGUMENT,
            "device_map needs the package accelerate, which is not installed.",
            hint="Install it with the engine: pip install accelerate",
        )
    return {"device_map": arguments.device_map}


def input_device(model: Any) -> Any:
    """Return the device for the model's inputs: that of its embeddings, even if accelerate keeps them on disk."""
    embeddings = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    weight = getattr(embeddings, "weight", None)
    if weight is not None and not weight.is_meta:
        return weight.device
    hook = getattr(embeddings, "_hf_hook", None)
    if (device := getattr(hook, "execution_device", None)) is not None:
        return device
    return next((one.device for one in model.parameters() if not one.is_meta), model.device)


def spread_note(model: Any) -> str:
    """Return a sentence that tells how many modules are on each device; "" if all are on the same."""
    spread = getattr(model, "hf_device_map", None) or {}
    counts = Counter(f"GPU {place}" if isinstance(place, int) else str(place) for place in spread.values())
    shown = ", ".join(f"{count} on {place}" for place, count in counts.items())
    return f"Its parts are spread: {shown}." if len(counts) > 1 else ""


def cross_attention_note(config: Any) -> str:
    """Return a note about image tokens for a model with cross-attention to images (Llama 3.2 Vision), else ""."""
    if not getattr(getattr(config, "text_config", None), "cross_attention_layers", None):
        return ""
    return "Images reach this model by cross-attention: each takes one token of the prompt, whatever its size."


def repair_image_features(model: Any) -> bool:
    """Repair the image features of Llama 3.2 Vision, if this version of Transformers computes them wrongly. Return
    whether it did. Raises VlmtuiError if a repair is impossible.

    The vision tower's `intermediate_layers_indices` count from the input of the first layer. Since version 4.57 at the
    latest, Transformers counts from the first layer's output, which is one layer too late and changes log-probabilities
    by 0.3. The fault's report, not sent yet: docs/upstream/transformers-mllama-features.md. Check with Transformers
    5.25 whether the repair is still needed.
    """
    tower = getattr(getattr(model, "model", None), "vision_model", None)
    indices = getattr(tower, "intermediate_layers_indices", None)
    if tower is None or indices is None or not _lacks_the_input(tower.transformer, input_device(model)):
        return False
    if 0 in indices:
        raise VlmtuiError(
            ErrorKind.ARCHITECTURE_UNSUPPORTED,
            "This version of Transformers reads images of this model wrongly.",
            detail=f"intermediate_layers_indices = {list(indices)}: the input of the first layer is not to be had.",
        )
    tower.intermediate_layers_indices = [index - 1 for index in indices]
    return True


def _lacks_the_input(encoder: Any, device: Any) -> bool:
    """Return True if the encoder's hidden states begin with the first layer's output instead of its input."""
    import torch

    weight = next(encoder.parameters())
    given = torch.ones(1, 4, encoder.config.hidden_size, dtype=weight.dtype, device=device)
    given[:, ::2] = -1
    with torch.no_grad():
        asked = {"output_hidden_states"} & inspect.signature(encoder.forward).parameters.keys()
        states = encoder(given, attention_mask=None, **dict.fromkeys(asked, True)).hidden_states
    return not torch.equal(states[0].to(device), given)


def repair_positions(model: Any) -> bool:
    """Repair the positions of PaddleOCR-VL's patches, if this version of Transformers resizes their grid with aligned
    corners. Return whether it did.

    The published code does not align them, nor does vLLM. The fault's report, not sent yet:
    docs/upstream/transformers-paddleocr-positions.md. Check with Transformers 5.25 whether the repair is still needed.
    """
    found = [one for one in model.modules() if type(one).__name__ == "PaddleOCRVisionEmbeddings"]
    wrong = [one for one in found if getattr(one, "interpolation_align_corners", False)]
    for one in wrong:
        one.interpolation_align_corners = False
    return bool(wrong)


_CONFIG = "adapter_config.json"
_FILES = ("adapter_model.safetensors", "adapter_model.bin")
_KEPT_MAX = 8
"""The most adapters of requests that stay loaded; the least recently used is removed first."""
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError, EOFError, pickle.UnpicklingError)
"""The errors of peft, torch and Transformers for files that are not an adapter, or not an adapter of this model."""
_FURTHER = ("modules_to_save", "trainable_token_indices", "target_parameters", "alora_invocation_tokens")
_CHANGING = ("pissa", "olora", "corda", "lora_ga")
"""Values of an adapter's `init_lora_weights` that also change the model's own weights."""


class AdapterSwitch:
    """Switches the model to the LoRA adapter of each request. Not thread-safe."""

    def __init__(self, model: Any, spec: LoadSpec, revision: str | None) -> None:
        """Load the adapters of the model family's record, downloading missing files. Raises VlmtuiError. Blocking."""
        self._model = model
        self._spec = spec
        self._named: dict[tuple[str, object], str] = {}
        """The adapters of requests by (folder, signature of its files), the most recently used last."""
        self._tried = 0
        self._is_changed = False
        for adapter in spec.loras:
            self._load(own_adapter_folder(spec, adapter, revision), adapter.name)
        self._switch("")

    def use(self, request: GenerateRequest | ScoreRequest) -> None:
        """Switch to the adapter that the request names. If it names none, use that of the model family's record for the
        request's media. Raises VlmtuiError if the folder has no adapter for this model. Blocking."""
        if request.adapter:
            self._switch(self._of_folder(Path(request.adapter)))
            return
        own = adapter_for(self._spec, (one.modality for one in attachments_of(request.prompt)))
        self._switch("" if own is None else own.name)

    def _switch(self, name: str) -> None:
        if name:
            self._model.set_adapter(name)
            self._model.enable_adapters()
        elif self._is_changed:
            self._model.disable_adapters()

    def _of_folder(self, folder: Path) -> str:
        """Return the name of a folder's adapter, and load it if it is new or has changed."""
        _weights_file(folder)
        key = str(folder), folder_signature(folder)
        name = self._named.pop(key, "")
        if not name:
            self._tried += 1
            name = f"of-request-{self._tried}"
            self._load(folder, name)
            outdated = [other for other in self._named if other[0] == key[0]]
            for other in outdated or [*self._named][: max(len(self._named) - _KEPT_MAX + 1, 0)]:
                self._take_out(self._named.pop(other))
        self._named[key] = name
        return name

    def _load(self, folder: Path, name: str) -> None:
        """Load a folder's adapter into the model. Raises VlmtuiError, and leaves the model as it was, if one of the
        adapter's weights does not fit."""
        if importlib.util.find_spec("peft") is None:
            raise VlmtuiError(
                ErrorKind.UNSUPPORTED,
                f"The LoRA adapter {folder.name!r} needs the package peft, which is not installed.",
                hint="Install it with the engine: pip install peft",
            )
        if any(one.is_meta for one in self._model.parameters()):
            raise VlmtuiError(
                ErrorKind.UNSUPPORTED,
                "A model of which parts are kept in slower memory takes no LoRA adapter.",
                hint="Load it whole on the GPUs, or merge the adapter into it.",
            )
        from safetensors import SafetensorError

        _weights_file(folder)
        require_adapter(folder)
        with ExitStack() as undoing:
            undoing.callback(self._take_out, name)
            try:
                _check_config(folder)
                found = self._model.load_adapter(str(folder), adapter_name=name)
            except (*_UNREADABLE, SafetensorError) as error:
                raise _unreadable(folder, f"{type(error).__name__}: {error}") from error
            if strange := [*found.unexpected_keys, *_halves(found.missing_keys, name)]:
                raise _unreadable(folder, f"{len(strange):,} weights fit nowhere or are missing: {min(strange)}")
            self._is_changed = True
            undoing.pop_all()
        self._model.eval()

    def _take_out(self, name: str) -> None:
        if name in getattr(self._model, "peft_config", {}):
            self._model.delete_adapter(name)


def _weights_file(folder: Path) -> Path:
    file = next((folder / name for name in _FILES if (folder / name).is_file()), None)
    if file is None or not (folder / _CONFIG).is_file():
        raise bad_input(
            f"The folder {folder.name!r} has no LoRA adapter.",
            detail=f"{folder}: {_CONFIG} and {_FILES[0]} are needed.",
        )
    return file


def _check_config(folder: Path) -> None:
    """Raise VlmtuiError(UNSUPPORTED) for an adapter that has more than LoRA matrices."""
    from peft import PeftConfig

    config = PeftConfig.from_pretrained(str(folder))
    kind = str(getattr(config.peft_type, "value", config.peft_type))
    found = [] if kind == "LORA" else [f"peft_type = {kind}"]
    found += [f"{name} = {value}" for name in _FURTHER if (value := getattr(config, name, None))]
    begun = str(getattr(config, "init_lora_weights", True))
    found += [f"init_lora_weights = {begun}"] if begun.startswith(_CHANGING) else []
    if found:
        raise VlmtuiError(
            ErrorKind.UNSUPPORTED,
            f"The adapter {folder.name!r} has more than LoRA matrices.",
            detail=f"{_CONFIG}: {', '.join(found)}",
            hint="Merge it into the model with peft (merge_and_unload), and load the result.",
        )


def _halves(missing: Collection[str], adapter: str) -> list[str]:
    """Return the missing weights of modules for which the adapter has only one of the matrices A and B.

    `missing`: the weights that the load did not find. It also lists other adapters' weights, and both matrices of each
    module that this adapter leaves unchanged.
    """
    own = [key for key in missing if f".{adapter}." in f"{key}."]
    modules = Counter(key.partition(".lora_")[0] for key in own)
    return [key for key in own if modules[key.partition(".lora_")[0]] == 1]


def _unreadable(folder: Path, why: str) -> VlmtuiError:
    message = f"Can't load the LoRA adapter {folder.name!r}."
    return bad_input(message, detail=why, hint="Was it trained for this model, and is it whole?")


_KEPT = (
    "bos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "no_repeat_ngram_size", "bad_words_ids",
)  # fmt: skip
"""The settings of a model's generation config that stay; sampling and stop tokens come from each request."""


class LoadedModel(msgspec.Struct, frozen=True):
    model: Any
    config: Any
    processor: Any
    """None if the model has only a tokenizer."""
    tokenizer: Any
    generation_config: Any
    """The model's own generation config. `model.generation_config` has no sampling parameters."""
    device: str
    adapters: AdapterSwitch
    notes: tuple[str, ...]
    """Sentences about this load for the user."""

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The ids of the tokens that end an answer."""
        return eos_ids(self.tokenizer, getattr(self.generation_config, "eos_token_id", None))


def load_model(spec: LoadSpec, arguments: Arguments, report: Report) -> LoadedModel:
    """Load a model with its processor and adapters. Raises VlmtuiError, or any exception of Transformers. Blocking."""
    import torch
    from transformers import AutoConfig, AutoProcessor

    report(LoadStep(LoadStage.CONFIG, "reading the model's config"))
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cpu":
        limit_memory()
    hub: dict[str, Any] = {"trust_remote_code": spec.trust_remote_code}
    if (revision := spec.revision or arguments.revision) is not None:
        hub["revision"] = revision
    if spec.trust_remote_code and spec.code_revision is not None:
        hub["code_revision"] = spec.code_revision
    config = AutoConfig.from_pretrained(spec.model, **hub)
    found = AutoProcessor.from_pretrained(spec.model, **hub)  # a tokenizer if the model has no processor
    processor = found if hasattr(found, "tokenizer") else None
    tokenizer = found if processor is None else processor.tokenizer
    report(LoadStep(LoadStage.WEIGHTS, "reading the weights"))
    model = _read_model(spec, config, arguments, device, hub)
    notes = [note for note in (spread_note(model), cross_attention_note(config)) if note]
    if repair_image_features(model):
        notes.append("This version of Transformers takes this model's image features one layer too late; corrected.")
    if repair_positions(model):
        notes.append("This version of Transformers resizes this model's grid of positions wrongly; corrected.")
    adapters = AdapterSwitch(model, spec, hub.get("revision"))
    own = _without_sampling(model)
    return LoadedModel(model.eval(), config, processor, tokenizer, own, device, adapters, tuple(notes))


def _read_model(spec: LoadSpec, config: Any, arguments: Arguments, device: str, hub: dict[str, Any]) -> Any:
    import torch

    auto = auto_class(config)
    chosen = arguments.dtype or ("float32" if device == "cpu" else "auto")
    how: dict[str, Any] = {"dtype": chosen if chosen == "auto" else getattr(torch, chosen)}
    if arguments.attn_implementation is not None:
        how["attn_implementation"] = arguments.attn_implementation
    if arguments.load_format == "dummy":
        torch.manual_seed(arguments.seed)
        code = {"trust_remote_code": True} if spec.trust_remote_code else {}
        model = auto.from_config(config, **({} if chosen == "auto" else how), **code)
        return model.to(device)
    spread = spreading(arguments)
    model = auto.from_pretrained(spec.model, config=config, **how, **spread, **hub)
    return model if spread else model.to(device)


def auto_class(config: Any) -> Any:
    """Return the Auto class for a config. Some models, such as Phi-4 Multimodal, are only in AutoModelForCausalLM."""
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
    )

    own = getattr(config, "auto_map", None) or {}
    for auto, table in (
        (AutoModelForImageTextToText, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING),
        (AutoModelForCausalLM, MODEL_FOR_CAUSAL_LM_MAPPING),
    ):
        if type(config) in table or auto.__name__ in own:
            return auto
    raise VlmtuiError(
        ErrorKind.ARCHITECTURE_UNSUPPORTED,
        f"The installed Transformers has no model for {', '.join(config.architectures or [type(config).__name__])} "
        "that takes images and answers in text.",
        hint="Choose another engine for it with --backend, or Ctrl+G in the list of models.",
    )


def _without_sampling(model: Any) -> Any:
    """Give the model a generation config without sampling settings, and return its original one."""
    from transformers import GenerationConfig

    own = model.generation_config
    if own is None:
        own = GenerationConfig.from_model_config(model.config)
    kept = {name: value for name in _KEPT if (value := getattr(own, name, None)) is not None}
    model.generation_config = GenerationConfig(**kept)
    return own


_UNKNOWN_CONTEXT = 4096
_UNLIMITED: dict[Modality, int] = {"image": 8, "video": 1}
"""The limits of items in a prompt if the engine arguments set none."""


def read_engine_info(loaded: LoadedModel, spec: LoadSpec, arguments: Arguments) -> EngineInfo:
    import torch
    import transformers

    model, place = loaded.model, input_device(loaded.model)
    template = _chat_template(loaded)
    context, notes = _context(loaded, arguments)
    facts = tokenizer_facts(loaded.tokenizer, loaded.eos_ids)
    facts["adds_bos"] &= arguments.raw_special_tokens
    device = torch.cuda.get_device_name(place) if torch.device(place).type == "cuda" else torch.device(place).type
    return EngineInfo(
        spec=spec,
        architecture=type(model).__name__,
        engine="Transformers",
        engine_version=transformers.__version__,
        device=device,
        dtype=str(model.dtype).removeprefix("torch."),
        max_model_len=context,
        has_chat_template=template is not None,
        limits=_limits(loaded, arguments),
        load_s=0.0,
        engine_args=_given(arguments),
        revision=getattr(loaded.config, "_commit_hash", None),
        chat_template=template or "",
        template_variables=read_variables(template) if template else None,
        capabilities=msgspec.structs.replace(
            ALL, chat_template_source=bool(template), metrics=False, media_by_id=False
        ),
        notes=(*notes, *loaded.notes),
        **facts,
    )


def _chat_template(loaded: LoadedModel) -> str | None:
    for source in (loaded.processor, loaded.tokenizer):
        found = getattr(source, "chat_template", None)
        if isinstance(found, Mapping):
            found = found.get("default")
        if found:
            return str(found)
    return None


def _context(loaded: LoadedModel, arguments: Arguments) -> tuple[int, list[str]]:
    """Return the context length in tokens, and a note if it is shorter than `max_model_len`."""
    text = loaded.config.get_text_config(decoder=True) if hasattr(loaded.config, "get_text_config") else loaded.config
    known = [getattr(text, name, None) for name in ("max_position_embeddings", "n_positions", "max_seq_len")]
    own = next((size for size in known if isinstance(size, int) and size > 0), None)
    wished = arguments.max_model_len
    if own is None:
        return wished or _UNKNOWN_CONTEXT, []
    if wished is not None and wished > own:
        return own, [f"The model's own context is {own:,} tokens; {wished:,} were asked for."]
    return wished or own, []


def _limits(loaded: LoadedModel, arguments: Arguments) -> dict[Modality, int]:
    has: dict[Modality, bool] = {
        "image": getattr(loaded.processor, "image_processor", None) is not None,
        "video": getattr(loaded.processor, "video_processor", None) is not None,
    }
    wanted = arguments.limit_mm_per_prompt or _UNLIMITED
    return {modality: wanted[modality] for modality in has if has[modality] and wanted.get(modality)}


def _given(arguments: Arguments) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(arguments)
    default: dict[str, object] = msgspec.to_builtins(Arguments())
    return {name: value for name, value in found.items() if value != default[name]}
