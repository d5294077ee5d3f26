"""Find the models on this machine, in the Hugging Face cache and in local folders, without the hub's library."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.reading import read_json, read_whole

_CONFIG_BYTES_MAX = 10_000_000
_INDEX_BYTES_MAX = 100_000_000


class CachedModel(msgspec.Struct, frozen=True):
    """A repository of the cache."""

    name: str
    """`owner/name`."""
    folder: Path
    """The newest snapshot."""
    weights_bytes: int
    """Bytes of the weight files that are there."""
    complete: bool
    """Whether all weight files of the index are there."""


def hub_cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where the hub library keeps its downloads, by its own rules."""
    given = os.environ if environment is None else environment
    if found := given.get("HF_HUB_CACHE") or given.get("HUGGINGFACE_HUB_CACHE"):
        return Path(found).expanduser()
    home = given.get("HF_HOME") or str(Path(given.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return Path(home).expanduser() / "hub"


def snapshot_of(name: str, cache: Path | None = None) -> Path | None:
    """The folder of a downloaded repository: the snapshot of `main`, or the newest; None where there is none."""
    root = (cache or hub_cache_folder()) / f"models--{name.replace('/', '--')}"
    try:
        snapshots = [path for path in (root / "snapshots").iterdir() if path.is_dir()]
    except OSError:
        return None
    main = root / "snapshots" / _main_commit(root)
    if main in snapshots:
        return main
    return max(snapshots, key=_changed, default=None)


def _main_commit(root: Path) -> str:
    """The commit that the cache has for `main`; `main` where it has none."""
    try:
        return read_whole(root / "refs" / "main", bytes_max=200).decode().strip()
    except (VlmtuiError, UnicodeDecodeError):
        return "main"


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def downloaded_models(cache: Path | None = None) -> list[CachedModel]:
    """Every model of the cache that has a `config.json`, by name. Reads a few small files of each; a folder that cannot
    be read is left out."""
    root = cache or hub_cache_folder()
    try:
        folders = sorted(path for path in root.iterdir() if path.name.startswith("models--"))
    except OSError:
        return []
    found: list[CachedModel] = []
    for folder in folders:
        name = folder.name.removeprefix("models--").replace("--", "/", 1)
        snapshot = snapshot_of(name, root)
        if snapshot is None or not (snapshot / "config.json").is_file():
            continue
        with suppress(OSError):
            sizes = dict(_weights(snapshot))
            found.append(CachedModel(name, snapshot, sum(sizes.values()), _is_complete(snapshot, sizes)))
    return found


def read_config(folder: Path) -> dict[str, object]:
    """The folder's `config.json`. Raises VlmtuiError(BAD_INPUT) where it is no model."""
    message = f"The folder {str(folder)!r} holds no readable config.json, so it is no model."
    try:
        config = read_json(folder / "config.json", bytes_max=_CONFIG_BYTES_MAX)
    except VlmtuiError as error:
        raise bad_input(message, detail=f"{error.message} {error.detail}".strip()) from error
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
    try:
        index = read_json(folder / "model.safetensors.index.json", bytes_max=_INDEX_BYTES_MAX)
    except VlmtuiError:
        return bool(sizes)
    named = index.get("weight_map") if isinstance(index, dict) else None
    return (
        all(one in sizes for one in named.values() if isinstance(one, str)) if isinstance(named, dict) else bool(sizes)
    )
