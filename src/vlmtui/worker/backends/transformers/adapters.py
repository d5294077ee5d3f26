"""LoRA adapters in Transformers, through peft: a model's own, those that requests name, and where their weights go."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from vlmtui.domain.adapter_choice import adapter_for, adapters_of
from vlmtui.domain.engine import LoadSpec, LoraAdapter
from vlmtui.domain.generation import GenerateRequest, ScoreRequest
from vlmtui.domain.prompt import attachments_of
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.worker.backends.transformers.devices import input_device

_PREFIX = "base_model.model."
_MARK = ".lora_"


class PlacedWeight(msgspec.Struct, frozen=True):
    """A weight of an adapter."""

    key: str
    """Its name in the file."""
    source: str
    """The name of the module that it changes, in the model that the adapter was trained on."""
    module: str
    """The name of the same module in this model."""
    part: str
    """What it is of that module's adapter: `lora_A.weight`."""

    def parameter(self, adapter: str) -> str:
        """The name of its parameter in the model once peft has put in the adapter of this name."""
        kind, _, rest = self.part.partition(".")
        return ".".join(filter(None, (self.module, kind, adapter, rest)))


def adapter_of(parameter: str) -> str:
    """Return the name of the adapter that a parameter of the model belongs to; empty: it is the model's own."""
    return ".".join(parameter.partition(_MARK)[2].split(".")[1:2])


class AdapterPlaces:
    """The modules of a model that an adapter may change. Made before the first adapter is put in."""

    def __init__(self, model: Any) -> None:
        self._modules = frozenset(_modules(model))
        self._renamings = _renamings(model)
        self._decoder = _decoder_prefix(model)

    def place(self, keys: Collection[str]) -> tuple[list[PlacedWeight], list[str]]:
        """Return where each weight belongs, and the names of those that belong nowhere."""
        found: list[PlacedWeight] = []
        strange: list[str] = []
        for key in keys:
            source, mark, part = key.removeprefix(_PREFIX).partition(_MARK)
            module = self._module(source) if mark else None
            if module is None:
                strange.append(key)
            else:
                found.append(PlacedWeight(key, source, module, f"lora_{part}"))
        return found, strange

    def _module(self, source: str) -> str | None:
        """Return the module of this name; else the one that the model's own checkpoint calls so; else the only one
        whose name ends alike. Transformers has renamed modules: `model.layers` is `model.language_model.layers` now."""
        if source in self._modules:
            return source
        if (renamed := self._renamed(source)) in self._modules:
            return renamed
        return only_ending_alike(source, self._modules, self._decoder)

    def _renamed(self, source: str) -> str:
        name = f"{source}.weight"
        for renaming in self._renamings:
            name, _ = renaming.rename_source_key(name)
        return str(name).removesuffix(".weight")


def only_ending_alike(source: str, modules: Collection[str], decoder: str) -> str | None:
    """Return the module that has the same name from its layer's number on, and no other number before that: in the
    decoder if several have; None: none, or still several."""
    parts = source.split(".")
    first = next((place for place, part in enumerate(parts) if part.isdecimal()), None)
    tail = parts if first is None else parts[max(first - 1, 0) :]
    found = [one for one in modules if _ends_with(one.split("."), tail)]
    inside = [one for one in found if one.startswith(decoder)]
    left = found if len(found) == 1 else inside
    return left[0] if len(left) == 1 else None


def _ends_with(parts: Sequence[str], tail: Sequence[str]) -> bool:
    head = parts[: len(parts) - len(tail)]
    return list(parts[len(head) :]) == list(tail) and not any(part.isdecimal() for part in head)


def _modules(model: Any) -> list[str]:
    """Return the names of the modules with weights of their own and no modules in them: those that LoRA can change."""
    found: Mapping[str, Any] = dict(model.named_modules())
    return [name for name, one in found.items() if getattr(one, "weight", None) is not None and not [*one.children()]]


def _renamings(model: Any) -> list[Any]:
    """Return how Transformers renames the weights of this model's checkpoints; nothing before version 5."""
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightRenaming
    except ImportError:
        return []
    return [one for one in get_model_conversion_mapping(model) or () if isinstance(one, WeightRenaming)]


def _decoder_prefix(model: Any) -> str:
    """Return the beginning of the names of the language model's modules."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    names = (name for name, one in model.named_modules() if one is decoder and name)
    return f"{next(names, '')}."


_CONFIG = "adapter_config.json"
_FILES = ("adapter_model.safetensors", "adapter_model.bin")
_KEPT_MAX = 8
"""Most adapters of requests that are kept in the model; then the one that was used longest ago is taken out."""
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError, EOFError, pickle.UnpicklingError)
"""What peft and torch raise for files that are no adapter."""
_FURTHER = ("modules_to_save", "trainable_token_indices", "target_parameters", "alora_invocation_tokens")
_CHANGING = ("pissa", "olora", "corda", "lora_ga")
"""Ways to begin an adapter (`init_lora_weights`) that also change the model's own weights."""


class AdapterSwitch:
    """Puts the right adapter into the model before each answer. For one thread at a time."""

    def __init__(self, model: Any, spec: LoadSpec, revision: str | None) -> None:
        """Load the model's own adapters, downloading them if they are missing. Raises VlmtuiError. Blocking."""
        self._model = model
        self._spec = spec
        self._places: AdapterPlaces | None = None
        self._named: dict[tuple[str, int], str] = {}
        """The adapters of requests by folder and time of change, the newest used last."""
        self._tried = 0
        self._is_changed = False
        for adapter in adapters_of(spec):
            self._load(_own_folder(spec, adapter, revision), adapter.name)
        self._switch("")

    def use(self, request: GenerateRequest | ScoreRequest) -> None:
        """Have the model compute with the adapter that the request names, or else with its own that fits the request's
        media. Raises VlmtuiError if the folder has none that fits the model. Blocking."""
        if request.adapter:
            self._switch(self._of_folder(Path(request.adapter)))
            return
        own = adapter_for(self._spec, (one.modality for one in attachments_of(request.prompt)))
        self._switch("" if own is None else own.name)

    def _switch(self, name: str) -> None:
        if name:
            self._model.set_adapter(name)
            self._model.enable_adapters()
        elif self._is_changed:
            self._model.disable_adapters()

    def _of_folder(self, folder: Path) -> str:
        """Return the name of a folder's adapter, loading it if it is new or was written again."""
        file = _weights_file(folder)
        key = str(folder), file.stat().st_mtime_ns
        name = self._named.pop(key, "")
        if not name:
            self._tried += 1
            name = f"of-request-{self._tried}"
            self._load(folder, name)
            outdated = [other for other in self._named if other[0] == key[0]]
            for other in outdated or [*self._named][: max(len(self._named) - _KEPT_MAX + 1, 0)]:
                self._take_out(self._named.pop(other))
        self._named[key] = name
        return name

    def _load(self, folder: Path, name: str) -> None:
        """Put a folder's adapter into the model. Raises VlmtuiError unless each of its weights has a place there; the
        model then computes as before."""
        if importlib.util.find_spec("peft") is None:
            raise VlmtuiError(
                ErrorKind.UNSUPPORTED,
                f"The LoRA adapter {folder.name!r} needs the package peft, which is not installed.",
                hint="Install it with the engine: pip install peft",
            )
        if self._places is None:
            self._places = AdapterPlaces(self._model)
        config, weights = _read(folder)
        placed, strange = self._places.place(weights)
        if strange or not placed:
            raise _misfit(
                folder, f"{len(strange):,} of its {len(weights):,} weights have no place: {min(strange, default='')}"
            )
        _aim(config, placed, weights)
        self._is_changed = True
        with ExitStack() as undoing:
            undoing.callback(self._take_out, name)
            try:
                self._model.add_adapter(config, name)
            except ValueError as error:  # peft knows no LoRA for a module of this kind
                raise _misfit(folder, str(error)) from error
            self._copy(folder, name, {one.parameter(name): weights[one.key] for one in placed})
            undoing.pop_all()
        self._model.eval()

    def _take_out(self, name: str) -> None:
        if name in getattr(self._model, "peft_config", {}):
            self._model.delete_adapter(name)

    def _copy(self, folder: Path, name: str, weights: Mapping[str, Any]) -> None:
        import torch

        there = {key: one for key, one in self._model.named_parameters() if adapter_of(key) == name}
        if missing := there.keys() - weights.keys():
            raise _misfit(folder, f"{len(missing):,} of its weights are missing: {min(missing)}")
        if strange := weights.keys() - there.keys():
            raise _misfit(folder, f"{len(strange):,} of its weights have no place: {min(strange)}")
        for key, weight in weights.items():
            if weight.shape != there[key].shape:
                shapes = f"{tuple(weight.shape)} instead of {tuple(there[key].shape)}"
                raise _misfit(folder, f"{key} has the shape {shapes}.")
        with torch.no_grad():
            for key, weight in weights.items():
                if there[key].is_meta:  # peft puts it beside a weight that lies on the disk, where nothing is kept
                    module, _, leaf = key.rpartition(".")
                    kept = torch.nn.Parameter(weight.to(input_device(self._model), there[key].dtype), False)
                    setattr(self._model.get_submodule(module), leaf, kept)
                else:
                    there[key].copy_(weight)
                    there[key].requires_grad_(False)


def _own_folder(spec: LoadSpec, adapter: LoraAdapter, revision: str | None) -> Path:
    folder = Path(spec.model)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        wanted = f"{adapter.path}/*" if adapter.path else "adapter_*"
        folder = Path(snapshot_download(spec.model, revision=revision, allow_patterns=[wanted]))
    return folder / adapter.path


def _weights_file(folder: Path) -> Path:
    file = next((folder / name for name in _FILES if (folder / name).is_file()), None)
    if file is None or not (folder / _CONFIG).is_file():
        raise bad_input(
            f"The folder {folder.name!r} has no LoRA adapter.",
            detail=f"{folder}: {_CONFIG} and {_FILES[0]} are needed.",
        )
    return file


def _read(folder: Path) -> tuple[Any, dict[str, Any]]:
    """Return peft's config and the weights of an adapter. Raises VlmtuiError."""
    import torch
    from peft import PeftConfig
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = _weights_file(folder)
    try:
        config = PeftConfig.from_pretrained(str(folder))
        weights = load_file(file) if file.suffix == ".safetensors" else torch.load(file, "cpu", weights_only=True)
    except (*_UNREADABLE, SafetensorError) as error:
        raise bad_input(
            f"Can't read the LoRA adapter {folder.name!r}.", detail=f"{type(error).__name__}: {error}"
        ) from error
    if found := _further(config):
        raise VlmtuiError(
            ErrorKind.UNSUPPORTED,
            f"The adapter {folder.name!r} has more than LoRA matrices.",
            detail=f"{_CONFIG}: {', '.join(found)}",
            hint="Merge it into the model with peft (merge_and_unload), and load the result.",
        )
    return config, weights


def _further(config: Any) -> list[str]:
    """Return what an adapter's config names besides LoRA matrices."""
    kind = str(getattr(config.peft_type, "value", config.peft_type))
    found = [] if kind == "LORA" else [f"peft_type = {kind}"]
    found += [f"{name} = {value}" for name in _FURTHER if (value := getattr(config, name, None))]
    begun = str(getattr(config, "init_lora_weights", True))
    return [*found, f"init_lora_weights = {begun}"] if begun.startswith(_CHANGING) else found


def _aim(config: Any, placed: list[PlacedWeight], weights: Mapping[str, Any]) -> None:
    """Have peft change exactly the modules that the adapter has weights for, with the ranks of these weights."""
    import re

    from peft.utils.other import get_pattern_key

    ranks, alphas = {}, {}
    for one in placed:
        name = re.escape(one.module)
        alphas[name] = config.alpha_pattern.get(get_pattern_key(config.alpha_pattern, one.source), config.lora_alpha)
        if one.part in ("lora_A.weight", "lora_embedding_A"):
            ranks[name] = weights[one.key].shape[0]
    config.target_modules = sorted({one.module for one in placed})
    config.rank_pattern, config.alpha_pattern = ranks, alphas
    config.layers_to_transform = config.layers_pattern = config.exclude_modules = None
    config.init_lora_weights = True
    config.inference_mode = True


def _misfit(folder: Path, why: str) -> VlmtuiError:
    return VlmtuiError(
        ErrorKind.BAD_INPUT,
        f"The LoRA adapter {folder.name!r} does not fit this model.",
        detail=why,
        hint="Was it trained for another model?",
    )
