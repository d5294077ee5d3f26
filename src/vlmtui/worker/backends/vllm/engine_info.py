"""Reads EngineInfo from a loaded vLLM engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from vlmtui.domain.capabilities import ALL
from vlmtui.domain.engine import EngineInfo, LoadSpec
from vlmtui.worker.hf.media_spans import MODALITIES
from vlmtui.worker.hf.vocabulary import VocabularyReader, special_texts


def read_engine_info(llm: Any, spec: LoadSpec, arguments: Mapping[str, object]) -> EngineInfo:
    """Read the facts of an AsyncLLM. `arguments`: the engine arguments it was created with."""
    import vllm
    from vllm.platforms import current_platform

    config, tokenizer = llm.model_config, llm.get_tokenizer()
    processor = getattr(llm.renderer, "mm_processor", None)
    limits = dict(processor.info.allowed_mm_limits) if processor is not None else {}
    template = _chat_template(llm)
    bos = _bos_token(tokenizer)
    return EngineInfo(
        spec=spec,
        architecture=config.architectures[0],
        engine="vLLM",
        engine_version=vllm.__version__,
        device="cpu" if current_platform.is_cpu() else str(current_platform.get_device_name()),
        dtype=str(config.dtype).removeprefix("torch."),
        max_model_len=config.max_model_len,
        has_chat_template=template is not None,
        limits={modality: limits[modality] for modality in MODALITIES if limits.get(modality)},
        load_s=0.0,
        engine_args=dict(arguments),
        revision=getattr(config.hf_config, "_commit_hash", None) or config.revision,
        chat_template=template or "",
        special_tokens=special_texts(tokenizer),
        stop_tokens=_stop_tokens(config, tokenizer),
        bos_token=bos,
        adds_bos=bos is not None and list(tokenizer.encode("x"))[:1] == [tokenizer.bos_token_id],
        capabilities=msgspec.structs.replace(ALL, chat_template_source=bool(template)),
    )


def _chat_template(llm: Any) -> str | None:
    """Return the template's source; empty if code formats the model's messages, None if there is no template."""
    from vllm.renderers.hf import HfRenderer, resolve_chat_template

    if not isinstance(llm.renderer, HfRenderer):
        return ""
    found = resolve_chat_template(llm.get_tokenizer(), None, None, model_config=llm.model_config)
    return None if found is None else str(found)


def _stop_tokens(config: Any, tokenizer: Any) -> tuple[str, ...]:
    """Return the texts of the EOS tokens of the tokenizer and of the generation config."""
    configured = config.try_get_generation_config().get("eos_token_id")
    ids = [tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])]
    entries = VocabularyReader(tokenizer)
    return tuple(dict.fromkeys(entries.text(token) for token in ids if isinstance(token, int)))


def _bos_token(tokenizer: Any) -> str | None:
    token = getattr(tokenizer, "bos_token_id", None)
    return VocabularyReader(tokenizer).text(token) if isinstance(token, int) else None
