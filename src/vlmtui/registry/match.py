"""Resolve the name of a model to its family's record and the engine to start."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.engine import LoadSpec, LoraAdapter
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import bundled
from vlmtui.reading import is_folder
from vlmtui.registry.hub_cache import read_config, snapshot_of
from vlmtui.registry.loader import Registry
from vlmtui.registry.remote_code import RemoteCode, remote_code_of
from vlmtui.registry.routes import is_multimodal, open_route
from vlmtui.registry.schema import Family, RawTemplate, Takes

DEFAULT_MODEL = "shapes"
UNLISTED = ""
"""The name of the record that stands for a model of no listed family."""
_BUNDLED = "bundled:"
_REPOSITORY = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"

Case = Literal["single", "several", "video"]


class Model(msgspec.Struct, frozen=True):
    """A model that can be asked for: its record and how its engine is started."""

    family: Family
    spec: LoadSpec

    @property
    def listed(self) -> bool:
        """Whether its family is in the registry."""
        return self.family.family != UNLISTED


def resolve(registry: Registry, name: str) -> Model:
    """The model called `name`: a family, a repository id, or a local folder with a `config.json`.

    Looked for in this order: a family's name, a listed repository id, the facts of `config.json` (of the folder, or of
    the repository where it is downloaded), the longest pattern of the name. Raises VlmtuiError(MODEL_UNKNOWN) naming
    what is known, or the candidates where several families match equally well.
    """
    if name in registry:
        return model_of(registry[name])
    for family in registry.values():
        if name in family.models:
            return model_of(family, name)
    folder = _folder(name)
    if folder is not None:
        return _of_folder(registry, folder.resolve())
    if re.fullmatch(_REPOSITORY, name, re.ASCII):
        return _of_repository(registry, name, snapshot_of(name))
    raise VlmtuiError(
        ErrorKind.MODEL_UNKNOWN,
        f"There is no model called {name!r}.",
        hint=_suggestion(registry, name),
    )


def model_of(family: Family, model: str | None = None, *, limits: Mapping[Modality, int] | None = None) -> Model:
    """A family's model; its default one where none is named. `limits`: the most items of each modality that its engine
    is to take; the family's own maxima where not given."""
    wanted = model or family.models[0]
    shipped = wanted.startswith(_BUNDLED)
    video = family.takes.get("video")
    spec = LoadSpec(
        model=str(bundled(wanted.removeprefix(_BUNDLED))) if shipped else wanted,
        name=family.family if shipped else wanted,
        family=family.family or None,
        engine_args=engine_args_of(family, limits),
        num_frames=(video.frames if video else None) or 8,
        lora=None
        if family.lora is None
        else LoraAdapter(name=family.lora.name, id=family.lora.id, path=family.lora.path),
    )
    return Model(family, spec)


def with_trust(model: Model, code: RemoteCode | None = None) -> Model:
    """The model with leave to run the code that it brings: `code`, or what there is now, and no other. Raises
    VlmtuiError where it cannot be told what that is."""
    code = code or remote_code_of(model.spec.model)
    spec = msgspec.structs.replace(
        model.spec,
        trust_remote_code=True,
        revision=code.revision,
        code_revision=code.repository_revision if code.repository else code.revision,
        code_sha256=code.digest,
    )
    return msgspec.structs.replace(model, spec=spec)


def engine_args_of(family: Family, limits: Mapping[Modality, int] | None = None) -> dict[str, object]:
    """The engine arguments for conversations of up to `limits` items; up to the family's maxima where not given.

    Those of the case (several images, video) replace the general ones, and the open route adds its own.
    """
    wanted = {modality: takes.max_items for modality, takes in family.takes.items()} if limits is None else limits
    arguments = dict(family.engine_args)
    if wanted.get("image", 0) > 1:
        arguments |= family.engine_args_several
    if wanted.get("video", 0):
        arguments |= family.engine_args_video
    route = open_route(family)
    if route is not None:
        arguments |= route.engine_args
        overrides = arguments.get("hf_overrides")
        if route.hf_overrides:
            arguments["hf_overrides"] = {**(overrides if isinstance(overrides, dict) else {}), **route.hf_overrides}
    # A modality that is not named would be taken without a limit.
    none: dict[Modality, int] = {"image": 0, "video": 0}
    arguments["limit_mm_per_prompt"] = none | dict(wanted)
    return arguments


def family_of_config(registry: Registry, config: Mapping[str, object], name: str) -> Family | None:
    """The family of a `config.json`; None where none claims it. Raises VlmtuiError naming the candidates of a draw."""
    architectures = config.get("architectures")
    names = {one for one in architectures if isinstance(one, str)} if isinstance(architectures, list) else set[str]()
    fitting = [
        family
        for family in registry.values()
        if all(_at(config, path) == value for path, value in family.config.items())
    ]
    # Some models carry the type of a relative, so it only counts where no architecture does.
    candidates = [family for family in fitting if names & set(family.architectures)]
    candidates = candidates or [family for family in fitting if config.get("model_type") in family.model_types]
    most = max((len(family.config) for family in candidates), default=0)
    return _only(_best([family for family in candidates if len(family.config) == most], name), name)


def family_of_name(registry: Registry, name: str) -> Family | None:
    """The family whose pattern fits the name best; None where none fits. Raises VlmtuiError for a draw."""
    fitting = [family for family in registry.values() if _fit(family, name)]
    return _only(_best(fitting, name), name)


def unlisted_model(name: str, spec_model: str, architecture: str) -> Model:
    """A model that no family claims, with what every model has: its own chat template, in both modes."""
    family = Family(
        family=UNLISTED,
        title=name,
        models=(spec_model,),
        architectures=(architecture,) if architecture else (),
        takes={"image": Takes(placeholder="", max_items=8), "video": Takes(placeholder="", max_items=1, frames=8)},
        raw=RawTemplate(by="processor", parts=True),
        note="Not in the registry: its own chat template is used, and nothing is known of its limits.",
    )
    return Model(family, LoadSpec(model=spec_model, name=name))


def _folder(name: str) -> Path | None:
    """The folder of that name, where there is one."""
    try:
        folder = Path(name).expanduser()
        return folder if name and is_folder(folder) else None
    except RuntimeError:
        return None


def _of_folder(registry: Registry, folder: Path) -> Model:
    config = read_config(folder)
    family = family_of_config(registry, config, folder.name) or family_of_name(registry, folder.name)
    if family is not None:
        return model_of(family, str(folder))
    return _unlisted_or_refused(str(folder), config)


def _of_repository(registry: Registry, name: str, downloaded: Path | None) -> Model:
    config = read_config(downloaded) if downloaded is not None else None
    family = family_of_config(registry, config, name) if config is not None else None
    family = family or family_of_name(registry, name.rpartition("/")[2])
    if family is not None:
        return model_of(family, name)
    if config is not None:
        return _unlisted_or_refused(name, config)
    return unlisted_model(name, name, "")


def _unlisted_or_refused(name: str, config: Mapping[str, object]) -> Model:
    architectures = config.get("architectures")
    found = [one for one in architectures if isinstance(one, str)] if isinstance(architectures, list) else []
    for architecture in found:
        if is_multimodal(architecture):
            return unlisted_model(name, name, architecture)
    raise VlmtuiError(
        ErrorKind.MODEL_UNKNOWN,
        f"No family is known for the architecture {', '.join(found) or '(none named)'}, and vLLM serves no "
        "vision-language model of that name.",
        detail=name,
        hint="`vlmtui models new FAMILY` writes the skeleton of a record of your own.",
    )


def _at(config: Mapping[str, object], path: str) -> object:
    found: object = config
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _fit(family: Family, name: str) -> int:
    """How long the longest pattern is that fits; 0 where none does."""
    folded = name.casefold()
    return max((len(one) for one in family.patterns if fnmatch.fnmatchcase(folded, one.casefold())), default=0)


def _best(families: Iterable[Family], name: str) -> list[Family]:
    """Of several, those whose pattern fits the name best; all of them where none fits."""
    found = list(families)
    short = name.rstrip("/").rpartition("/")[2]
    fits = {family.family: _fit(family, short) for family in found}
    best = max(fits.values(), default=0)
    return [family for family in found if fits[family.family] == best]


def _only(families: list[Family], name: str) -> Family | None:
    if len(families) > 1:
        raise VlmtuiError(
            ErrorKind.MODEL_UNKNOWN,
            f"{name!r} may be of several families: {', '.join(family.family for family in families)}.",
            hint="Add a record that lists it under `models` to the folder of your own families.",
        )
    return families[0] if families else None


def _suggestion(registry: Registry, name: str) -> str:
    import difflib

    known = {one.casefold(): one for family in registry.values() for one in (family.family, *family.models)}
    close = difflib.get_close_matches(name.casefold(), known, n=3)
    if close:
        return f"Did you mean {' or '.join(known[one] for one in close)}? `vlmtui models` lists all of them."
    return "`vlmtui models` lists what is known; a repository id (owner/name) or a local model folder will do, too."
