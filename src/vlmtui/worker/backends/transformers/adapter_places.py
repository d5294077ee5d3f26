"""Where the weights of a LoRA adapter belong in a model: by their names in the adapter's file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

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
