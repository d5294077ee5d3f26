"""Reads EngineInfo from a model that Transformers has loaded."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.capabilities import ALL
from vlmtui.domain.engine import EngineInfo, LoadSpec
from vlmtui.worker.backends.transformers.arguments import Arguments
from vlmtui.worker.backends.transformers.devices import input_device
from vlmtui.worker.backends.transformers.loading import LoadedModel
from vlmtui.worker.hf.vocabulary import VocabularyReader, special_texts

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
