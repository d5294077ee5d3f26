"""Which of a model's own LoRA adapters answers a request."""

from __future__ import annotations

from collections.abc import Iterable

from vlmtui.domain.attachment import Modality
from vlmtui.domain.engine import LoadSpec, LoraAdapter


def adapters_of(spec: LoadSpec) -> tuple[LoraAdapter, ...]:
    """Return the model's own adapters, the preferred one first."""
    return spec.more_loras if spec.lora is None else (spec.lora, *spec.more_loras)


def adapter_for(spec: LoadSpec, shown: Iterable[Modality]) -> LoraAdapter | None:
    """Return the first adapter that fits what a prompt shows; None: the model answers without one."""
    modalities = set(shown)
    for adapter in adapters_of(spec):
        if not adapter.modalities or modalities & set(adapter.modalities):
            return adapter
    return None
