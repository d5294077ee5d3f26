"""Finds the engine that a person names beside another: `transformers`, `vllm==0.23.0`, `here dtype=bfloat16`, a server,
or another model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from vlmtui.config.engines import EngineSettings
from vlmtui.domain.backend_choice import read_backend
from vlmtui.domain.engine import DEFAULT_BACKEND, TRANSFORMERS_BACKEND
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.registry.engine_values import with_engine_args
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve

HERE = "here"
"""The engine and model that are used without a name."""
EXAMPLES = (
    "Write here, vllm, transformers, vllm==X.Y.Z, a model, a server's address or its name in config.toml; engine "
    "arguments may follow: here dtype=bfloat16."
)
_ADDRESSES = ("http://", "https://", "unix:")
_BACKENDS = (DEFAULT_BACKEND, TRANSFORMERS_BACKEND)


def find_engine(
    name: str,
    base: Model | None,
    registry: Registry,
    servers: Mapping[str, EngineSettings],
    *,
    loaded: Sequence[tuple[str, Model]] = (),
    key_env: str | None = None,
) -> Model:
    """Return the model behind an engine's name. Blocks: a server is asked what it serves.

    base: what `here` is, and whose model a backend runs. loaded: what is loaded, by what it is called. key_env: the
    environment variable with a server's key. Raises VlmtuiError.
    """
    head, *arguments = name.split()
    if head in servers or head.startswith(_ADDRESSES):
        from vlmtui.engine.remote_models import find_remote_model  # the HTTP client takes a while to import

        if len(arguments) > 1 or "=" in "".join(arguments):
            raise bad_input(f"{head} is a server: it has its own engine arguments.", hint="Name one of its models.")
        return find_remote_model(registry, servers, head, key_env=key_env, name=next(iter(arguments), None))
    return with_engine_args(_local(head, base, registry, loaded), arguments)


def _local(head: str, base: Model | None, registry: Registry, loaded: Sequence[tuple[str, Model]]) -> Model:
    if head == HERE:
        return _based(base, head)
    if head in _BACKENDS or "==" in head:
        choice = read_backend(head)
        of = _based(base, head)
        found = resolve(registry, of.spec.name if of.spec.name in registry else of.spec.model, choice)
        return _with_permission(found, of)
    known = next((model for called, model in loaded if called == head), None)
    if known is not None:
        return known
    try:
        return resolve(registry, head)
    except VlmtuiError as error:
        message = error.message.replace("Unknown model", "Unknown engine or model")
        raise VlmtuiError(error.kind, message, detail=error.detail, hint=EXAMPLES) from error


def _based(base: Model | None, head: str) -> Model:
    if base is None:
        raise bad_input(f"{head} needs a model.", hint=EXAMPLES)
    return base


def _with_permission(model: Model, base: Model) -> Model:
    """Return the model with the permission to run its own code that the same model has elsewhere."""
    if not base.spec.trust_remote_code or model.spec.model != base.spec.model:
        return model
    names = ("trust_remote_code", "revision", "code_revision", "code_sha256")
    spec = msgspec.structs.replace(model.spec, **{name: getattr(base.spec, name) for name in names})
    return msgspec.structs.replace(model, spec=spec)
