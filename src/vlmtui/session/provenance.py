"""How an answer was generated (model, engine, sampling, prompt), as it is stored."""

from __future__ import annotations

import hashlib

import msgspec

from vlmtui.domain.engine import REMOTE_BACKEND, EngineInfo, LoadSpec
from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.prompt import attachments_of
from vlmtui.domain.sampling import Sampling
from vlmtui.registry.match import Model
from vlmtui.registry.schema import Family
from vlmtui.session.generation import Answer, PromptMode
from vlmtui.session.settings import ChatSettings
from vlmtui.store.records import GenerationRecord, StoredModel


class Generation(msgspec.Struct, frozen=True):
    """A request with its answer, and how it was generated."""

    request: GenerateRequest
    answer: Answer
    model: Model
    info: EngineInfo | None = None
    """The facts of the engine."""
    mode: PromptMode = "chat"
    sampling: Sampling | None = None
    """As set, if it is not the conversation's; without the family's stop tokens."""

    def record(self, settings: ChatSettings) -> GenerationRecord:
        """Return everything but the prompt's text, which the engine reports. `settings` are the conversation's."""
        model, info, prompt = self.model, self.info, self.request.prompt
        return GenerationRecord(
            model=model.spec.model,
            revision=info.revision if info else model.spec.revision,
            family=model.spec.family,
            record_sha256=record_sha256(model.family),
            engine=info.engine if info else "",
            engine_version=info.engine_version if info else "",
            mode=self.mode,
            sampling=self.sampling or settings.sampling,
            seed=self.request.sampling.seed,
            attachments=tuple(item.sha256 for item in attachments_of(prompt)),
            engine_args=dict(info.engine_args) if info else dict(model.spec.engine_args),
            system_prompt=settings.system_prompt,
            request_id=self.request.request_id,
            thinking=model.family.thinking.tags if model.family.thinking else None,
            made_by=stored_model(model.spec),
            adapter=self.request.adapter,
        )


def stored_model(spec: LoadSpec) -> StoredModel:
    """Return what is stored of a spec: names, and the address of a server."""
    return StoredModel(
        name=spec.name,
        model=spec.model,
        family=spec.family,
        revision=spec.revision,
        backend=spec.backend,
        pinned=spec.pinned,
        server=str(spec.engine_args.get("url", "")) if spec.backend == REMOTE_BACKEND else "",
    )


def is_of_engine(record: GenerationRecord, info: EngineInfo) -> bool:
    """Whether the engine is loaded as the one that gave the recorded answer was."""
    return (
        not record.imported
        and record.made_by == stored_model(info.spec)
        and (record.engine, record.engine_version, record.revision) == (info.engine, info.engine_version, info.revision)
        and record.engine_args == info.engine_args
    )


def record_sha256(family: Family) -> str:
    """Return the hex digest of a family's record."""
    return hashlib.sha256(msgspec.json.encode(family, order="deterministic")).hexdigest()
