"""Models that servers serve: which family they are of, and the spec to reach them."""

from __future__ import annotations

import asyncio

from vlmtui.domain.attachment import Modality
from vlmtui.domain.engine import REMOTE_BACKEND, LoadSpec
from vlmtui.errors import VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, family_of_name, resolve, unlisted_model
from vlmtui.registry.schema import Family


def find_remote_model(registry: Registry, url: str, *, key_env: str | None = None, name: str | None = None) -> Model:
    """Ask the server at `url`, and return one of its models. Blocks. Raises VlmtuiError.

    name: that of the model, as the server calls it, or a family for the server's only model. key_env: the environment
    variable with the server's key.
    """
    return asyncio.run(served_model(registry, url, key_env=key_env, name=name))


async def served_model(registry: Registry, url: str, *, key_env: str | None, name: str | None) -> Model:
    """Ask the server at `url`, and return one of its models. Raises VlmtuiError."""
    from vlmtui.worker.backends.remote.address import server_address
    from vlmtui.worker.backends.remote.http_api import ServerApi
    from vlmtui.worker.backends.remote.options import server_options
    from vlmtui.worker.backends.remote.probe import probe

    arguments: dict[str, object] = {"url": url, **({"api_key_env": key_env} if key_env else {})}
    address = server_address(url)
    api = ServerApi(address, server_options(arguments))
    try:
        facts = await probe(api)
    finally:
        await api.close()
    is_family = name in registry and name not in {model.id for model in facts.models}
    served = facts.model(None if is_family else name)
    family = registry[name] if is_family and name else _family_of(registry, served.root, served.id)
    limits: dict[Modality, int] = {modality: takes.max_items for modality, takes in family.takes.items()}
    video = family.takes.get("video")
    spec = LoadSpec(
        model=served.id,
        name=f"{served.id} at {address.shown}",
        backend=REMOTE_BACKEND,
        family=family.family or None,
        engine_args={**arguments, "model": served.id, "limit_mm_per_prompt": limits},
        num_frames=(video.frames if video else None) or 8,
    )
    return Model(family, spec)


def _family_of(registry: Registry, *names: str) -> Family:
    """Return the family that one of these names tells, as those of models here do."""
    for name in filter(None, names):
        try:
            return resolve(registry, name).family
        except VlmtuiError:
            if (family := family_of_name(registry, name.rstrip("/").rpartition("/")[2])) is not None:
                return family
    return unlisted_model(names[-1], names[-1], "").family
