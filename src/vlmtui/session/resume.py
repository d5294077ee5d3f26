"""Finds the model for continuing a stored conversation."""

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
    """A conversation to continue, and the model that answered last in it."""

    conversation: ConversationId
    model: str
    """The model as named by the user; may be empty."""
    spec: LoadSpec | None


def resume_point(store: Store, conversation: ConversationId) -> ResumePoint:
    """Read what is needed to continue a conversation. Raises VlmtuiError if it does not exist."""
    found = store.conversation(conversation)
    records = [turn.generation for turn in store.turns(conversation, limit=4) if turn.generation is not None]
    return ResumePoint(conversation, found.model, records[-1].spec if records else None)


def stored_model(registry: Registry, spec: LoadSpec | None, name: str) -> Model:
    """Return the conversation's model as it was loaded then; permissions are checked again. Raises VlmtuiError if it
    is not known any more."""
    path = Path(spec.model if spec else "")
    is_gone = path.is_absolute() and not is_folder(path)
    if spec is None or spec.family is None or spec.family not in registry or is_gone:
        return resolve(registry, name)
    return Model(registry[spec.family], msgspec.structs.replace(spec, trust_remote_code=False))


def running_model(registry: Registry, spec: LoadSpec) -> Model:
    """Return the model of a running engine. Raises VlmtuiError if its family is not known any more."""
    return Model(stored_model(registry, spec, spec.name).family, spec)
