"""What makes an answer, as the store keeps it."""

from __future__ import annotations

import hashlib

import msgspec

from vlmtui.domain.conversation import all_attachments
from vlmtui.domain.engine import ChatPrompt, EngineInfo, GenerateRequest
from vlmtui.engine.session import PromptMode
from vlmtui.registry.match import Model
from vlmtui.registry.schema import Family
from vlmtui.store.records import Recipe
from vlmtui.ui.controllers.chat_settings import ChatSettings


def recipe_of(
    model: Model,
    info: EngineInfo | None,
    request: GenerateRequest,
    settings: ChatSettings,
    *,
    mode: PromptMode = "chat",
) -> Recipe:
    """All but the prompt's text, which the engine tells. The sampling is without the family's own stop tokens: those
    are in its record."""
    prompt = request.prompt
    attachments = all_attachments(prompt.turns) if isinstance(prompt, ChatPrompt) else prompt.attachments
    return Recipe(
        model=model.spec.model,
        revision=info.revision if info else model.spec.revision,
        family=model.spec.family,
        record_sha256=record_sha256(model.family),
        vllm_version=info.vllm_version if info else "",
        mode=mode,
        sampling=settings.sampling,
        seed=settings.sampling.seed,
        attachments=tuple(item.sha256 for item in attachments),
        engine_args=dict(info.engine_args) if info else dict(model.spec.engine_args),
        system_prompt=settings.system_prompt,
        request_id=request.request_id,
        spec=model.spec,
    )


def record_sha256(family: Family) -> str:
    """Hex digest of a family's record, by its content."""
    return hashlib.sha256(msgspec.json.encode(family, order="deterministic")).hexdigest()
