"""Loads a model with the Auto classes of Transformers."""

from __future__ import annotations

from typing import Any

import msgspec

from vlmtui.domain.engine import LoadSpec, LoadStage
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.contract import LoadStep, Report
from vlmtui.worker.backends.transformers.adapters import AdapterSwitch
from vlmtui.worker.backends.transformers.arguments import Arguments
from vlmtui.worker.backends.transformers.devices import spread_note, spreading
from vlmtui.worker.backends.transformers.mllama import cross_attention_note, repair_image_features

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
