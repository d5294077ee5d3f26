"""Going on with a stored conversation: which model it was led with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.engine import LoadSpec
from vlmtui.reading import is_folder
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.store.records import ConversationId

if TYPE_CHECKING:
    from vlmtui.store.store import Store


class ResumePoint(msgspec.Struct, frozen=True):
    """A conversation to go on with, and the model that was asked last in it."""

    conversation: ConversationId
    model: str
    """What the user called it; may be empty."""
    spec: LoadSpec | None


def resume_point(store: Store, conversation: ConversationId) -> ResumePoint:
    """Read what is needed to go on with a conversation. Raises VlmtuiError where there is none of that id."""
    found = store.conversation(conversation)
    records = [turn.generation for turn in store.turns(conversation, limit=4) if turn.generation is not None]
    return ResumePoint(conversation, found.model, records[-1].spec if records else None)


def stored_model(registry: Registry, spec: LoadSpec | None, name: str) -> Model:
    """The model that a conversation was led with, as it was loaded then; what it may do on this machine is decided
    anew. Raises VlmtuiError where it is not known any more."""
    path = Path(spec.model if spec else "")
    is_gone = path.is_absolute() and not is_folder(path)
    if spec is None or spec.family is None or spec.family not in registry or is_gone:
        return resolve(registry, name)
    return Model(registry[spec.family], msgspec.structs.replace(spec, trust_remote_code=False))


def running_model(registry: Registry, spec: LoadSpec) -> Model:
    """The model of an engine that runs. Raises VlmtuiError where its family is not known any more."""
    return Model(stored_model(registry, spec, spec.name).family, spec)
