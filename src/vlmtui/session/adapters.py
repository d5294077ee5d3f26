"""Finds and checks LoRA adapters in folders."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import msgspec

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.paths import bundled_model
from vlmtui.reading import is_file, is_folder, read_struct
from vlmtui.registry.match import Model
from vlmtui.text import one_line

NONE = "none"
"""The user's word for answering without an adapter."""
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values of `max_lora_rank` that vLLM accepts."""
BUNDLED = "bundled:"
"""The prefix of an adapter that ships with the bundled model: `bundled:boxes`."""
_ADAPTERS = "adapters"
_CONFIG = "adapter_config.json"
_CONFIG_BYTES_MAX = 1_000_000
_LISTED_MAX = 20
_SLOTS = 4
"""The least `max_loras` for vLLM: adapters in use at a time; on a CPU, all that it ever loads."""


class _Config(msgspec.Struct, frozen=True):
    """The fields of PEFT's `adapter_config.json` that matter here."""

    r: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    peft_type: str = "LORA"
    base_model_name_or_path: str | None = None


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRA adapter in a folder."""

    folder: str
    """Absolute."""
    rank: int
    base: str
    """The model that it was trained on, according to its config; empty: unknown. Hostile text."""

    @property
    def name(self) -> str:
        """The folder's name with visible control characters."""
        return one_line(Path(self.folder).name)

    @property
    def facts(self) -> str:
        """The adapter's facts for display: `rank 8, for Qwen/Qwen2-VL-2B`."""
        return f"rank {self.rank}" + (f", for {one_line(self.base)}" if self.base else "")


def find_adapter(text: str) -> Adapter:
    """Return the adapter in the folder `text`, or the bundled model's adapter for `bundled:NAME`. Blocking. Raises
    VlmtuiError if there is no adapter, if it is not a LoRA adapter, or if its rank is too high."""
    shipped = text.removeprefix(BUNDLED) if text.startswith(BUNDLED) else ""
    folder = bundled_model() / _ADAPTERS / Path(shipped).name if shipped else Path(text).expanduser().absolute()
    if not is_folder(folder):
        raise bad_input(f"There is no adapter {one_line(text)}.", hint=f"Give the folder that has {_CONFIG}.")
    if not is_file(folder / _CONFIG):
        found = list_adapters(folder)
        names = ", ".join(adapter.name for adapter in found) or "none"
        raise bad_input(f"{one_line(text)} is no adapter: it has no {_CONFIG}.", hint=f"Adapters in it: {names}.")
    config = read_struct(folder / _CONFIG, _Config, bytes_max=_CONFIG_BYTES_MAX)
    if config.peft_type.upper() != "LORA" or config.r > RANKS[-1]:
        what = f"a LoRA of rank {config.r:,}" if config.peft_type.upper() == "LORA" else one_line(config.peft_type)
        raise bad_input(f"{one_line(text)} is {what}: only LoRA adapters up to rank {RANKS[-1]} run.")
    return Adapter(folder=str(folder), rank=config.r, base=config.base_model_name_or_path or "")


def require_allowed(folder: str, allowed: str | None) -> None:
    """Raise VlmtuiError if an adapter's folder, which a document names, is neither bundled nor in `allowed`, the folder
    that the user gave with --adapter."""
    path = Path(folder).expanduser().resolve()
    if path.is_relative_to(bundled_model()):
        return
    if allowed is None or not path.is_relative_to(Path(allowed).expanduser().resolve()):
        message = f"Can't load the LoRA adapter {one_line(folder)}: a document must not choose local files."
        hint = f"If it is yours, add --adapter {shlex.quote(one_line(folder))}, or a folder above it."
        raise bad_input(message, hint=hint)


def list_adapters(folder: Path) -> list[Adapter]:
    """Return the adapters in a folder's subfolders, by name, at most 20; unreadable ones are left out. Blocking."""
    found: list[Adapter] = []
    try:
        inside = sorted(path for path in folder.iterdir() if is_file(path / _CONFIG))
    except OSError:
        return []
    for path in inside[:_LISTED_MAX]:
        try:
            found.append(find_adapter(str(path)))
        except VlmtuiError:
            continue
    return found


def adapters_near(adapter: str, model: str = "") -> list[Adapter]:
    """Return the adapters in the subfolders of these folders, each adapter once: the parent of the current adapter's
    folder (`adapter`), the working directory, its `adapters` and `loras`, and `adapters` in the folder `model`.
    Blocking."""
    here = Path.cwd()
    own = [Path(adapter).parent] if adapter else []
    beside = [Path(model) / _ADAPTERS] if Path(model).is_absolute() else []
    folders = [*own, here, here / _ADAPTERS, here / "loras", *beside]
    found = [adapter for folder in folders for adapter in list_adapters(folder)]
    return list({adapter.folder: adapter for adapter in found}.values())


def takes_adapter(spec: LoadSpec, adapter: Adapter) -> bool:
    """Return True if an engine loaded with `spec` accepts requests with this adapter."""
    if spec.backend == "transformers":
        return True
    rank = spec.engine_args.get("max_lora_rank", 16)  # vLLM's default
    return bool(spec.engine_args.get("enable_lora")) and isinstance(rank, int) and rank >= adapter.rank


def recorded_folder(folder: str) -> str:
    """Return an adapter's folder as a document records it: `~/…` in place of the home folder, since a document may be
    shared and the path contains the user's name."""
    path = Path(folder)
    return f"~/{path.relative_to(Path.home())}" if folder and path.is_relative_to(Path.home()) else folder


def with_adapters(model: Model, *adapters: Adapter) -> Model:
    """Return the model with the engine arguments that vLLM needs for these adapters. Arguments that the user typed
    stay."""
    highest = max(adapter.rank for adapter in adapters)
    rank = next(rank for rank in RANKS if rank >= highest)
    own = {"enable_lora": True, "max_lora_rank": rank, "max_loras": max(_SLOTS, len(adapters))}
    added = {name: value for name, value in own.items() if name not in model.spec.typed}
    spec = msgspec.structs.replace(model.spec, engine_args={**model.spec.engine_args, **added})
    return msgspec.structs.replace(model, spec=spec)
