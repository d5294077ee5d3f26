"""Resolves a model name to its family's TOML record and a load spec."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import msgspec

from vlmtui.domain.conversation import Modality
from vlmtui.domain.engine import (
    DEFAULT_BACKEND,
    REMOTE_BACKEND,
    TRANSFORMERS_BACKEND,
    BackendChoice,
    LoadSpec,
)
from vlmtui.errors import ErrorKind, VlmtuiError, require_text
from vlmtui.paths import bundled
from vlmtui.reading import is_folder, parse_toml, shown_name
from vlmtui.registry.architectures import engine_architectures, is_multimodal, is_of_transformers
from vlmtui.registry.hub_cache import read_config, snapshot_of
from vlmtui.registry.loader import Registry
from vlmtui.registry.remote_code import RemoteCode, remote_code_of
from vlmtui.registry.routes import choice_of, open_route, vllm_version
from vlmtui.registry.schema import OWN_CLASSES, Family
from vlmtui.registry.unlisted import UNLISTED, unlisted_family
from vlmtui.text import one_line

DEFAULT_MODEL = "shapes"
_BUNDLED = "bundled:"
Preset = Literal["vllm-example"]
EXAMPLE: Final = "vllm-example"
"""The preset with the engine arguments of vLLM's example scripts (`Family.example`)."""
_FOR_ANY_ENGINE = frozenset({"max_model_len", "limit_mm_per_prompt", "mm_processor_kwargs", "revision"})
"""vLLM's engine arguments that the Transformers backend also accepts in a record."""
REPOSITORY = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
"""Pattern of a repository id; use it with re.ASCII."""


class Model(msgspec.Struct, frozen=True):
    family: Family
    spec: LoadSpec

    @property
    def listed(self) -> bool:
        return self.family.family != UNLISTED


def resolve(
    registry: Registry, name: str, choice: BackendChoice | None = None, *, folders: bool = True, to_load: bool = True
) -> Model:
    """Return the model called `name`: a family, a repository id, or a local folder with a `config.json`.

    `choice`: the kind of engine to run it; None: the best in its family's record. `folders`: False for a name from
    another person's document, which must not name a local folder. `to_load`: False if only the model's files are read;
    an architecture that no engine knows is then no error. Matched in this order: family name, listed repository id, a
    family's title, facts of `config.json` (of the folder or the downloaded repository), longest matching name pattern.
    Raises VlmtuiError(MODEL_UNKNOWN) with suggestions, or with the candidates if several families match equally well.
    """
    if name in registry:
        return model_of(registry[name], choice=choice)
    for family in registry.values():
        if name in family.models:
            return model_of(family, name, choice=choice)
    folder = _folder(name) if folders else None
    if folder is not None:
        folder = folder.resolve()
        require_text(str(folder), f"Can't load {shown_name(folder)}: its path is not UTF-8.", hint="Rename it.")
        return _by_files(registry, str(folder), folder, choice, to_load=to_load)
    for family in registry.values():
        if name.casefold() == family.title.casefold():
            return model_of(family, choice=choice)
    if re.fullmatch(REPOSITORY, name, re.ASCII):
        return _by_files(registry, name, snapshot_of(name), choice, to_load=to_load)
    raise VlmtuiError(
        ErrorKind.MODEL_UNKNOWN,
        f"Unknown model: {name!r}.",
        hint=_suggestion(registry, name),
    )


def model_of(
    family: Family,
    model: str | None = None,
    *,
    limits: Mapping[Modality, int] | None = None,
    choice: BackendChoice | None = None,
) -> Model:
    """Return a model of a family, by default its first. `limits`: the maximum number of items of each modality;
    default: the family's maxima. `choice`: the kind of engine; None: the best in the record."""
    wanted = model or family.models[0]
    shipped = wanted.startswith(_BUNDLED)
    video = family.takes.get("video")
    route = open_route(family, choice)
    chosen = choice or (choice_of(route) if route is not None else BackendChoice())
    spec = LoadSpec(
        backend=chosen.backend,
        pinned=chosen.pinned,
        model=str(bundled(wanted.removeprefix(_BUNDLED))) if shipped else wanted,
        name=family.family if shipped else wanted,
        family=family.family or None,
        engine_args=engine_args_of(family, limits, choice),
        num_frames=(video.frames if video else None) or 8,
        loras=family.loras,
    )
    return Model(family, spec)


def with_trust(model: Model, code: RemoteCode | None = None) -> Model:
    """Return the model with permission to run exactly `code` (default: the model's current code). Raises VlmtuiError if
    that code cannot be identified."""
    code = code or remote_code_of(model.spec.model)
    spec = msgspec.structs.replace(
        model.spec,
        trust_remote_code=True,
        revision=code.revision,
        code_revision=code.repository_revision if code.repository else code.revision,
        code_sha256=code.digest,
    )
    return msgspec.structs.replace(model, spec=spec)


def with_backend(model: Model, choice: BackendChoice) -> Model:
    """Return the model for another kind of engine, with that engine's arguments."""
    family, spec = model.family, model.spec
    if BackendChoice.of(spec) == choice:
        return model
    arguments = engine_args_of(family, None, choice) if model.listed else {}
    return Model(
        family,
        msgspec.structs.replace(spec, backend=choice.backend, pinned=choice.pinned, engine_args=arguments),
    )


def with_preset(model: Model, preset: Preset | None) -> Model:
    """Return the model with the engine arguments of a preset; None: unchanged. Arguments that the user typed have to be
    added afterwards (`with_engine_args`). Families whose record has no table for the preset keep their arguments."""
    if preset is None or not model.listed:
        return model
    arguments = engine_args_of(model.family, None, BackendChoice.of(model.spec), preset)
    return msgspec.structs.replace(model, spec=msgspec.structs.replace(model.spec, engine_args=arguments))


def engine_args_of(
    family: Family,
    limits: Mapping[Modality, int] | None = None,
    choice: BackendChoice | None = None,
    preset: Preset | None = None,
) -> dict[str, object]:
    """Return the engine arguments for up to `limits` items of each modality; default: the family's maxima. `choice`:
    the kind of engine.

    Arguments for several images or for video override the general ones, those of the preset override both; the
    arguments of the route that runs on this machine come last.
    """
    wanted = {modality: takes.max_items for modality, takes in family.takes.items()} if limits is None else limits
    arguments = dict(family.engine_args)
    if wanted.get("image", 0) > 1:
        arguments |= family.engine_args_several
    if wanted.get("video", 0):
        arguments |= family.engine_args_video
    if preset == EXAMPLE:
        arguments |= family.example
        if wanted.get("image", 0) > 1:
            arguments |= family.example_several
    route = open_route(family, choice)
    if route is not None and route.engine == "transformers":
        arguments = {name: value for name, value in arguments.items() if name in _FOR_ANY_ENGINE}
    if route is not None:
        arguments |= route.engine_args
        if route.model_class:
            arguments["model_class_overrides"] = {route.architecture: OWN_CLASSES + route.model_class}
        overrides = arguments.get("hf_overrides")
        if route.hf_overrides:
            arguments["hf_overrides"] = {**(overrides if isinstance(overrides, dict) else {}), **route.hf_overrides}
    # vLLM does not limit a modality that is not named.
    none: dict[Modality, int] = {"image": 0, "video": 0, **dict.fromkeys(family.takes, 0)}
    arguments["limit_mm_per_prompt"] = none | dict(wanted)
    return arguments


def family_of_config(registry: Registry, config: Mapping[str, object], name: str) -> Family | None:
    """Return the family that matches a `config.json`, or None. If several match equally well, raises VlmtuiError with
    their names."""
    architectures = config.get("architectures")
    names = {one for one in architectures if isinstance(one, str)} if isinstance(architectures, list) else set[str]()
    fitting = [
        family
        for family in registry.values()
        if all(_at(config, path) == value for path, value in family.config.items())
    ]
    # Some models have the model_type of a relative, so it only counts if no architecture matches.
    candidates = [family for family in fitting if names & set(family.architectures)]
    candidates = candidates or [family for family in fitting if config.get("model_type") in family.model_types]
    most = max((len(family.config) for family in candidates), default=0)
    return _only(_best([family for family in candidates if len(family.config) == most], name), name)


def family_of_name(registry: Registry, name: str) -> Family | None:
    """Return the family whose pattern matches the name best, or None. If several match equally well, raises
    VlmtuiError."""
    fitting = [family for family in registry.values() if _fit(family, name)]
    return _only(_best(fitting, name), name)


def family_of_spec(registry: Registry, spec: LoadSpec) -> Family:
    """Return the record of a loaded model's family, or what is known of a model without one."""
    if (family := registry.get(spec.family or "")) is not None:
        return family
    if spec.backend != REMOTE_BACKEND:
        with suppress(VlmtuiError):
            return resolve(registry, spec.name).family
    return unlisted_family(spec.name)


def _unlisted_model(family: Family, name: str, choice: BackendChoice | None) -> Model:
    """Return a model without a record of its family. `choice`: the kind of engine; None: vLLM, or Transformers if only
    that has the architecture."""
    only_transformers = any(is_of_transformers(one) and not is_multimodal(one) for one in family.architectures)
    chosen = choice or BackendChoice(TRANSFORMERS_BACKEND if only_transformers else DEFAULT_BACKEND)
    return Model(family, LoadSpec(model=name, name=name, backend=chosen.backend, pinned=chosen.pinned))


def _folder(name: str) -> Path | None:
    try:
        folder = Path(name).expanduser()
        return folder if name and is_folder(folder) else None
    except RuntimeError:
        return None


def _by_files(
    registry: Registry, name: str, folder: Path | None, choice: BackendChoice | None, *, to_load: bool
) -> Model:
    """Return the model of a repository or folder `name` whose files are in `folder` (None: not downloaded)."""
    config = read_config(folder) if folder is not None else None
    family = family_of_config(registry, config, name) if config is not None else None
    if family is None and not (config is not None and any(map(is_multimodal, _architectures(config)))):
        family = family_of_name(registry, name.rpartition("/")[2])
    if family is not None:
        return model_of(family, name, choice=choice)
    if config is None:
        return _unlisted_model(unlisted_family(name), name, choice)
    named = _architectures(config) or ([] if to_load else [""])
    for architecture in named:
        if is_multimodal(architecture) or is_of_transformers(architecture) or choice is not None or not to_load:
            found = unlisted_family(name, architecture, config=config, folder=folder)
            return _unlisted_model(found, name, choice)
    raise _unsupported(name, _architectures(config))


def _architectures(config: Mapping[str, object]) -> list[str]:
    found = config.get("architectures")
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _unsupported(name: str, architectures: Sequence[str]) -> VlmtuiError:
    """Return the error for a model that neither a record nor the engine knows; without an engine, the one that vlmtui
    would install."""
    if not architectures:
        message = "Unknown model: its config.json names no architecture."
        hint = "`vlmtui models new FAMILY` creates a record to fill in."
        return VlmtuiError(ErrorKind.MODEL_UNKNOWN, message, detail=name, hint=hint)
    engine, installed = engine_architectures(), vllm_version() is not None
    named = one_line(", ".join(architectures))
    message = (
        f"Unknown architecture {named}: {'the installed ' if installed else ''}vLLM {engine.vllm} has no class of that "
        "name for images, videos or audio, and neither has Transformers."
    )
    last = next((engine.removed[one] for one in architectures if one in engine.removed), "")
    plugin = next((engine.plugin[one] for one in architectures if one in engine.plugin), "")
    if last:
        hint = f"vLLM {last} had it: `--backend vllm=={last}`."
    elif plugin:
        hint = f"A plugin of vLLM has it: {plugin}."
    else:
        hint = (
            "A newer vLLM may have it: `vlmtui engines install VERSION`, then `--backend vllm==VERSION`. "
            "`--backend vllm` tries it with this one."
        )
    return VlmtuiError(ErrorKind.MODEL_UNKNOWN, message, detail=name, hint=hint)


def _at(config: Mapping[str, object], path: str) -> object:
    found: object = config
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _fit(family: Family, name: str) -> int:
    """Return the length of the longest matching pattern, or 0."""
    folded = name.casefold()
    return max((len(one) for one in family.patterns if fnmatch.fnmatchcase(folded, one.casefold())), default=0)


def _best(families: Iterable[Family], name: str) -> list[Family]:
    """Return the families whose pattern matches the name best; all of them if none matches."""
    found = list(families)
    short = name.rstrip("/").rpartition("/")[2]
    fits = {family.family: _fit(family, short) for family in found}
    best = max(fits.values(), default=0)
    return [family for family in found if fits[family.family] == best]


def _only(families: list[Family], name: str) -> Family | None:
    if len(families) > 1:
        raise VlmtuiError(
            ErrorKind.MODEL_UNKNOWN,
            f"{name!r} matches several families: {', '.join(family.family for family in families)}.",
            hint="Add a record that lists it under `models` to your families folder.",
        )
    return families[0] if families else None


def _suggestion(registry: Registry, name: str) -> str:
    import difflib

    known = {one.casefold(): one for family in registry.values() for one in (family.family, *family.models)}
    close = difflib.get_close_matches(name.casefold(), known, n=3)
    if close:
        return f"Did you mean {' or '.join(known[one] for one in close)}? `vlmtui models` lists all of them."
    return "`vlmtui models` lists known models; a repository id (owner/name) or a local model folder works, too."


def with_engine_args(model: Model, given: Sequence[str]) -> Model:
    """Return the model with additional engine arguments. A value is TOML (`4096`, `true`, `{ fps = 1 }`), or else plain
    text. Raises VlmtuiError(BAD_USAGE) if there is no `=`."""
    if not given:
        return model
    typed = dict(_parsed(text) for text in given)
    spec = msgspec.structs.replace(
        model.spec,
        engine_args=model.spec.engine_args | typed,
        typed=tuple(sorted({*model.spec.typed, *typed})),
    )
    return msgspec.structs.replace(model, spec=spec)


def _parsed(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not name.isidentifier():
        message = f"{text!r} is not an engine argument."
        raise VlmtuiError(ErrorKind.BAD_USAGE, message, hint="Write NAME=VALUE, for example max_model_len=4096.")
    try:
        return name, parse_toml(f"value = {value}".encode(errors="replace"))["value"]
    except ValueError:
        return name, value.strip()
