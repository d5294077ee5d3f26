"""From what a user calls a model to the engine to start and the record to use."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.paths import bundled
from vlmtui.registry.loader import Registry
from vlmtui.registry.schema import Family

DEFAULT_MODEL = "shapes"
_BUNDLED = "bundled:"


@dataclass(frozen=True, slots=True)
class Model:
    """A model that can be asked for: its record and how its engine is started."""

    family: Family
    spec: LoadSpec


def resolve(registry: Registry, name: str) -> Model:
    """The model called `name`: a family, a listed repository id, or a local folder with a `config.json`.

    Raises VlmtuiError(MODEL_UNKNOWN) naming what is known.
    """
    if name in registry:
        return model_of(registry[name])
    for family in registry.values():
        if name in family.models:
            return model_of(family, name)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return model_of(_family_of_folder(registry, folder), str(folder.resolve()))
    raise VlmtuiError(
        ErrorKind.MODEL_UNKNOWN,
        f"There is no model called {name!r}.",
        hint=f"Known: {', '.join(registry)}; or give a local model folder.",
    )


def model_of(family: Family, model: str | None = None) -> Model:
    """A family's model; its default one where none is named."""
    wanted = model or family.models[0]
    shipped = wanted.startswith(_BUNDLED)
    video = family.takes.get("video")
    spec = LoadSpec(
        model=str(bundled(wanted.removeprefix(_BUNDLED))) if shipped else wanted,
        name=family.family if shipped else wanted,
        family=family.family,
        engine_args={
            **family.engine_args,
            "limit_mm_per_prompt": {modality: takes.max_items for modality, takes in family.takes.items()},
        },
        num_frames=(video.frames if video else None) or 8,
    )
    return Model(family, spec)


def _family_of_folder(registry: Registry, folder: Path) -> Family:
    config = folder / "config.json"
    try:
        architectures = json.loads(config.read_bytes()).get("architectures") or []
    except (OSError, ValueError, AttributeError) as error:
        message = f"The folder {str(folder)!r} holds no readable config.json, so it is no model."
        raise bad_input(message, detail=str(error)) from error
    for family in registry.values():
        if set(architectures) & set(family.architectures):
            return family
    raise VlmtuiError(
        ErrorKind.MODEL_UNKNOWN,
        f"No family is known for the architecture {', '.join(map(str, architectures)) or '(none named)'}.",
        detail=str(config),
    )
