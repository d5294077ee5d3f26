"""Loads a model with the Auto classes of Transformers, and reads its facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.capabilities import ALL
from vlmtui.domain.engine import EngineInfo, LoadSpec, LoadStage
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.contract import LoadStep, Report
from vlmtui.worker.backends.transformers.adapters import AdapterSwitch
from vlmtui.worker.backends.transformers.arguments import Arguments
from vlmtui.worker.backends.transformers.devices import input_device, spread_note, spreading
from vlmtui.worker.backends.transformers.mllama import cross_attention_note, repair_image_features
from vlmtui.worker.hf.vocabulary import VocabularyReader, special_texts

_KEPT = (
    "bos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "no_repeat_ngram_size", "bad_words_ids",
)  # fmt: skip
"""What a model's generation config says besides its sampling and its stop tokens, which each request decides."""


class LoadedModel(msgspec.Struct, frozen=True):
    """A model, and what belongs to it."""

    model: Any
    config: Any
    processor: Any
    """None: it has only a tokenizer."""
    tokenizer: Any
    generation_config: Any
    """As the model came with it; that of `model` holds no sampling."""
    device: str
    adapters: AdapterSwitch
    notes: tuple[str, ...]
    """What a person has to know of this load."""


def load_model(spec: LoadSpec, arguments: Arguments, report: Report) -> LoadedModel:
    """Load everything. Raises VlmtuiError, or whatever Transformers raises. Blocking."""
    import torch
    from transformers import AutoConfig

    report(LoadStep(LoadStage.CONFIG, "reading the model's config"))
    hub = _hub_arguments(spec, arguments)
    config = AutoConfig.from_pretrained(spec.model, **hub)
    processor, tokenizer = _processor_and_tokenizer(spec, hub)
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    report(LoadStep(LoadStage.WEIGHTS, "reading the weights"))
    model = _read_model(spec, config, arguments, device, hub)
    notes = [note for note in (spread_note(model), cross_attention_note(config)) if note]
    if repair_image_features(model):
        notes.append("This version of Transformers takes this model's image features one layer too late; corrected.")
    adapters = AdapterSwitch(model, spec, hub.get("revision"))
    own = _without_sampling(model)
    return LoadedModel(model.eval(), config, processor, tokenizer, own, device, adapters, tuple(notes))


def _hub_arguments(spec: LoadSpec, arguments: Arguments) -> dict[str, Any]:
    hub: dict[str, Any] = {"trust_remote_code": spec.trust_remote_code}
    if (revision := spec.revision or arguments.revision) is not None:
        hub["revision"] = revision
    if spec.trust_remote_code and spec.code_revision is not None:
        hub["code_revision"] = spec.code_revision
    return hub


def _processor_and_tokenizer(spec: LoadSpec, hub: dict[str, Any]) -> tuple[Any, Any]:
    from transformers import AutoProcessor

    found = AutoProcessor.from_pretrained(spec.model, **hub)
    processor = found if hasattr(found, "tokenizer") else None
    return processor, found if processor is None else processor.tokenizer


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
    """Return the Auto class for a config. Phi-4 Multimodal, for one, is known as a text model only."""
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
    """Take the sampling out of the model's generation config, which is returned as it was."""
    from transformers import GenerationConfig

    own = model.generation_config
    if own is None:
        own = GenerationConfig.from_model_config(model.config)
    kept = {name: value for name in _KEPT if (value := getattr(own, name, None)) is not None}
    model.generation_config = GenerationConfig(**kept)
    return own


_UNKNOWN_CONTEXT = 4096
_UNLIMITED: dict[Modality, int] = {"image": 8, "video": 1}
"""The most items where no record says how many."""


def read_engine_info(loaded: LoadedModel, spec: LoadSpec, arguments: Arguments) -> EngineInfo:
    """Return the facts of the loaded model."""
    import torch
    import transformers

    tokenizer, model = loaded.tokenizer, loaded.model
    template = _chat_template(loaded)
    context, notes = _context(loaded, arguments)
    bos = getattr(tokenizer, "bos_token_id", None)
    place = input_device(model)
    device = torch.cuda.get_device_name(place) if torch.device(place).type == "cuda" else torch.device(place).type
    entries = VocabularyReader(tokenizer)
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
        special_tokens=special_texts(tokenizer),
        stop_tokens=tuple(dict.fromkeys(entries.text(token) for token in eos_ids(loaded))),
        bos_token=entries.text(bos) if isinstance(bos, int) else None,
        adds_bos=arguments.raw_special_tokens and bos is not None and list(tokenizer.encode("x"))[:1] == [bos],
        capabilities=msgspec.structs.replace(
            ALL, chat_template_source=bool(template), metrics=False, media_by_id=False
        ),
        notes=(*notes, *loaded.notes),
    )


def eos_ids(loaded: LoadedModel) -> tuple[int, ...]:
    """Return the tokens that end an answer, of the tokenizer and of the generation config."""
    configured = getattr(loaded.generation_config, "eos_token_id", None)
    ids = [loaded.tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])]
    return tuple(dict.fromkeys(token for token in ids if isinstance(token, int)))


def _chat_template(loaded: LoadedModel) -> str | None:
    for source in (loaded.processor, loaded.tokenizer):
        found = getattr(source, "chat_template", None)
        if isinstance(found, Mapping):
            found = found.get("default")
        if found:
            return str(found)
    return None


def _context(loaded: LoadedModel, arguments: Arguments) -> tuple[int, list[str]]:
    """Return the context in tokens, and a note if it is less than the record wished."""
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
