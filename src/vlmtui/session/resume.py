"""Continues a stored conversation: reads it, and finds its model.

The conversation may be somebody else's. So only the sampling and the fields of `StoredModel` are taken from it to load
an engine. Everything else comes from the families' TOML records, `config.toml`, the command line and the user. See
SECURITY.md."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vlmtui.config.settings import EngineSettings
from vlmtui.domain.conversation import attachments_of
from vlmtui.domain.dials import no_dials
from vlmtui.domain.engine import PINNED_BACKEND, REMOTE_BACKEND, BackendChoice, EngineInfo, LoadSpec
from vlmtui.domain.generation import Finished, GenerateRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import bad_input
from vlmtui.registry.hub_cache import snapshot_of
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import REPOSITORY, Model, model_of, resolve
from vlmtui.registry.schema import Family
from vlmtui.session.exchange import Branch, exchanges_of
from vlmtui.session.generation import Answer, PromptMode
from vlmtui.session.settings import ChatSettings
from vlmtui.store.errors import StoreError
from vlmtui.store.records import ConversationId, GenerationRecord, StoredDraft, StoredModel, StoredTurn
from vlmtui.text import one_line

if TYPE_CHECKING:
    from vlmtui.store.store import Store

_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}")
_SHOWN_MAX = 300
_CHOOSE = "Choose a model in the list; the conversation goes on with it."
_CHECKED_WITHIN_S = 2.0
"""For how many seconds structured answers are checked again; a schema may be made to cost."""
WINDOW = 40
"""Turns to read in full detail."""


class Generation(msgspec.Struct, frozen=True):
    """A request with its answer, and how it was generated."""

    request: GenerateRequest
    answer: Answer
    model: Model
    info: EngineInfo | None = None
    mode: PromptMode = "chat"
    sampling: Sampling | None = None
    """The sampling as set by the user, without the family's stop tokens; None: the conversation's."""

    def record(self, settings: ChatSettings) -> GenerationRecord:
        """Return the record of this generation to store, without the prompt's text. `settings`: the conversation's
        settings."""
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
    """Return the fields of a spec that are stored with an answer: names, and a server's address."""
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
    """Return whether the recorded answer came from the same engine as the one with `info`, loaded in the same way."""
    return (
        not record.imported
        and record.made_by == stored_model(info.spec)
        and (record.engine, record.engine_version, record.revision) == (info.engine, info.engine_version, info.revision)
        and record.engine_args == info.engine_args
    )


def record_sha256(family: Family) -> str:
    import hashlib  # it would delay the first paint

    return hashlib.sha256(msgspec.json.encode(family, order="deterministic")).hexdigest()


class ResumePoint(msgspec.Struct, frozen=True):
    """A conversation to continue, and the model that answered last in it."""

    conversation: ConversationId
    model: str = ""
    """The model's name as the user wrote it; may be empty."""
    record: GenerationRecord | None = None
    """How the last answer was made; None: unknown."""
    is_imported: bool = False
    """True if the record, or without one the conversation, comes from somebody else's document."""

    @property
    def names_a_model(self) -> bool:
        """True if the stored conversation names a model."""
        return bool(self.model) or (self.record is not None and self.record.made_by is not None)


def resume_point(store: Store, conversation: ConversationId) -> ResumePoint:
    """Return a stored conversation as a `ResumePoint`. Raises VlmtuiError if the conversation does not exist."""
    found = store.conversation(conversation)
    records = [turn.generation for turn in store.turns(conversation, limit=4) if turn.generation is not None]
    record = records[-1] if records else None
    return ResumePoint(conversation, found.model, record, found.imported if record is None else record.imported)


def resumed_model(registry: Registry, servers: Mapping[str, EngineSettings], point: ResumePoint) -> Model:
    """Return the model that answered last, with this machine's own load options. Contacts no server, downloads nothing.

    servers: the servers in `config.toml`, by name. Raises VlmtuiError if the model or its server is not known here."""
    stored = point.record.made_by if point.record is not None else None
    if stored is None:
        return _model_here(registry, point.model, is_imported=point.is_imported)
    if stored.backend == REMOTE_BACKEND:
        from vlmtui.engine.remote_models import known_remote_model

        return known_remote_model(registry, servers, stored.server, model=stored.model, family=stored.family)
    choice = BackendChoice(stored.backend, stored.pinned if stored.backend == PINNED_BACKEND else None)
    if stored.name in registry:  # a bundled model has its family's name
        return model_of(registry[stored.name], choice=choice)
    model = _model_here(registry, stored.model, choice, is_imported=point.is_imported)
    if (family := registry.get(stored.family or "")) is not None:
        model = model_of(family, model.spec.model, choice=choice)
    if stored.revision is None or not _REVISION.fullmatch(stored.revision):
        return model
    return msgspec.structs.replace(model, spec=msgspec.structs.replace(model.spec, revision=stored.revision))


def stored_sampling(sampling: Sampling) -> Sampling:
    """Return a stored sampling without the entries of `extra` that must not be taken from somebody's document."""
    left_out = no_dials(sampling.extra)
    if not left_out:
        return sampling
    kept = {name: value for name, value in sampling.extra.items() if name not in left_out}
    return msgspec.structs.replace(sampling, extra=kept)


def not_used(record: GenerationRecord) -> str:
    """Describe how an imported answer was generated, and which of its settings are not used on this machine; empty for
    other answers."""
    made_by = record.made_by
    if not record.imported:
        return ""
    name = made_by.name if made_by is not None else record.model
    facts = [f"{record.engine} {record.engine_version}".strip(), made_by.server if made_by is not None else ""]
    own = [f"adapter {record.adapter}"] if record.adapter else []
    own += no_dials(record.sampling.extra)
    own += [f"{key}={value}" for key, value in record.engine_args.items()]
    where = " at ".join(filter(None, facts))
    shown = one_line(", ".join(own))[:_SHOWN_MAX]
    made = f"Imported. Made with {one_line(name)}" + (f" on {one_line(where)}" if where else "")
    return f"{made}; not used here: {shown}." if shown else f"{made}."


def _model_here(registry: Registry, name: str, choice: BackendChoice | None = None, *, is_imported: bool) -> Model:
    """Return a model by its name. `is_imported`: the name comes from another machine, so it never means a local folder,
    and nothing is downloaded for it. Raises VlmtuiError."""
    if not is_imported:
        return resolve(registry, name, choice)
    is_elsewhere = Path(name).is_absolute() or (re.fullmatch(REPOSITORY, name, re.ASCII) and snapshot_of(name) is None)
    if is_elsewhere and name not in registry:
        message = f"This conversation was made with {one_line(name)}, which is not on this machine."
        raise bad_input(message, hint=_CHOOSE)
    return resolve(registry, name, choice, folders=False)


class LoadedConversation(msgspec.Struct, frozen=True):
    """A conversation to continue."""

    model: str
    branch: Branch
    draft: StoredDraft
    settings: ChatSettings | None
    """The settings of its newest answer; None: unknown."""


def load_conversation(store: Store, *, conversation: ConversationId) -> LoadedConversation:
    """Read the active branch, the draft and the settings. Marks a running answer whose writer has died as interrupted,
    if the store can be written. Raises VlmtuiError if the conversation does not exist."""
    from vlmtui.session.structured import check_structure

    found = store.conversation(conversation)
    newest = store.turns(conversation, limit=WINDOW)
    if any(turn.state == "running" for turn in newest) and not store.database.is_read_only:
        with suppress(StoreError):
            store.mark_interrupted()
            newest = store.turns(conversation, limit=WINDOW)
    above = store.above(newest[0].id) if newest else []
    if newest and newest[0].role == "assistant" and above:
        # Keep a message together with its answer.
        newest = [above.pop(), *newest]
    older = list(exchanges_of(above))
    shown = list(exchanges_of(newest, older[-1] if older else None))
    until = time.monotonic() + _CHECKED_WITHIN_S
    for exchange in shown:
        answer, record = exchange.answer, exchange.record
        if record is not None and isinstance(answer.outcome, Finished) and time.monotonic() < until:
            answer.structure = check_structure(record.sampling, answer.parts(answer.text).answer)
    return LoadedConversation(
        model=found.model,
        branch=Branch([*older, *shown], older=len(older)),
        draft=store.draft(conversation),
        settings=_settings([*above, *newest]),
    )


def _settings(turns: Sequence[StoredTurn]) -> ChatSettings | None:
    """Return the settings of the newest answer; without one, as in an imported document, those of the system turn; None
    if there is neither."""
    for turn in reversed(turns):
        if turn.generation is not None and turn.generation.mode == "chat":
            made = turn.generation
            adapter = "" if made.imported else made.adapter
            return ChatSettings(made.system_prompt, stored_sampling(made.sampling), made.family, adapter=adapter)
        if turn.role == "system":
            return ChatSettings(turn.text, Sampling())
    return None
