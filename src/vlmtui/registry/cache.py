"""Models that are on this machine already: the Hugging Face cache, and local folders. Files only, no hub library."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from vlmtui.errors import bad_input


class Downloaded(msgspec.Struct, frozen=True):
    """A repository of the cache."""

    name: str
    """`owner/name`."""
    folder: Path
    """The newest snapshot."""
    weights_bytes: int
    """Bytes of the weight files that are there."""
    complete: bool
    """Whether all weight files of the index are there."""


def hub_cache(environment: Mapping[str, str] | None = None) -> Path:
    """Where the hub library keeps its downloads, by its own rules."""
    given = os.environ if environment is None else environment
    if found := given.get("HF_HUB_CACHE") or given.get("HUGGINGFACE_HUB_CACHE"):
        return Path(found).expanduser()
    home = given.get("HF_HOME") or str(Path(given.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return Path(home).expanduser() / "hub"


def snapshot_of(name: str, cache: Path | None = None) -> Path | None:
    """The folder of a downloaded repository: the snapshot of `main`, or the newest; None where there is none."""
    root = (cache or hub_cache()) / f"models--{name.replace('/', '--')}"
    try:
        snapshots = [path for path in (root / "snapshots").iterdir() if path.is_dir()]
    except OSError:
        return None
    try:
        main = root / "snapshots" / (root / "refs" / "main").read_text().strip()
        if main.is_dir():
            return main
    except (OSError, UnicodeDecodeError):
        pass
    return max(snapshots, key=lambda path: path.stat().st_mtime, default=None)


def downloaded(cache: Path | None = None) -> list[Downloaded]:
    """Every model of the cache that has a `config.json`, by name. Reads a few small files of each."""
    root = cache or hub_cache()
    try:
        folders = sorted(path for path in root.iterdir() if path.name.startswith("models--"))
    except OSError:
        return []
    found: list[Downloaded] = []
    for folder in folders:
        name = folder.name.removeprefix("models--").replace("--", "/", 1)
        snapshot = snapshot_of(name, root)
        if snapshot is not None and (snapshot / "config.json").is_file():
            sizes = dict(_weights(snapshot))
            found.append(Downloaded(name, snapshot, sum(sizes.values()), _is_complete(snapshot, sizes)))
    return found


def read_config(folder: Path) -> dict[str, object]:
    """The folder's `config.json`. Raises VlmtuiError(BAD_INPUT) where it is no model."""
    message = f"The folder {str(folder)!r} holds no readable config.json, so it is no model."
    import json  # the first paint needs none

    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise bad_input(message, detail=str(error)) from error
    if not isinstance(config, dict):
        raise bad_input(message, detail="config.json is no object")
    return config


def weights_bytes(folder: Path) -> int:
    """Bytes of a model folder's weight files; 0 where they are not all there."""
    try:
        sizes = dict(_weights(folder))
    except OSError:
        return 0
    return sum(sizes.values()) if _is_complete(folder, sizes) else 0


def _weights(folder: Path) -> Iterator[tuple[str, int]]:
    for path in folder.iterdir():
        if path.suffix in (".safetensors", ".bin", ".pt") and path.exists():
            yield path.name, path.stat().st_size


def _is_complete(folder: Path, sizes: Mapping[str, int]) -> bool:
    import json

    try:
        index = json.loads((folder / "model.safetensors.index.json").read_bytes())
        return set(index["weight_map"].values()) <= set(sizes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return bool(sizes)
