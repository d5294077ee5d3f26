"""Finds models in the Hugging Face cache and in local folders, without importing huggingface_hub."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.reading import is_file, is_folder, read_json, read_object, read_whole

_CONFIG_BYTES_MAX = 10_000_000
_INDEX_BYTES_MAX = 100_000_000


class CachedModel(msgspec.Struct, frozen=True):
    name: str
    """`owner/name`."""
    folder: Path
    """The newest snapshot."""
    weights_bytes: int
    """Total bytes of the weight files present."""
    complete: bool
    """True if all weight files listed in the index are present."""


def hub_cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder in which huggingface_hub stores its downloads, from the same environment variables."""
    given = os.environ if environment is None else environment
    if found := given.get("HF_HUB_CACHE") or given.get("HUGGINGFACE_HUB_CACHE"):
        return Path(found).expanduser()
    home = given.get("HF_HOME") or str(Path(given.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return Path(home).expanduser() / "hub"


def snapshot_of(name: str, cache: Path | None = None, *, revision: str | None = None) -> Path | None:
    """Return the snapshot folder of a downloaded repository: that of `revision` (a commit, branch or tag), or None if
    it is missing. Without a revision that of `main`, else the newest, else None."""
    root = (cache or hub_cache_folder()) / f"models--{name.replace('/', '--')}"
    try:
        snapshots = [path for path in (root / "snapshots").iterdir() if path.is_dir()]
    except (OSError, ValueError):  # it is not there, or no folder can have this name
        return None
    for commit in (revision or "main", _commit_of(root, revision or "main")):
        if (wanted := root / "snapshots" / commit) in snapshots:
            return wanted
    return None if revision else max(snapshots, key=_changed, default=None)


def model_folder(model: str, revision: str | None = None) -> Path | None:
    """Return the folder with a model's files: a local folder, or the snapshot of a downloaded repository; else None."""
    return Path(model) if is_folder(Path(model)) else snapshot_of(model, revision=revision)


def _commit_of(root: Path, revision: str) -> str:
    """Return the commit cached for a branch or tag; the revision itself if there is none."""
    try:
        return read_whole(root / "refs" / revision, bytes_max=200).decode().strip()
    except (VlmtuiError, UnicodeDecodeError):
        return revision


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def downloaded_models(cache: Path | None = None) -> list[CachedModel]:
    """Return every cached model that has a `config.json`, sorted by name. Reads a few small files of each; unreadable
    folders are skipped."""
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
    """Read the folder's `config.json`. Raises VlmtuiError(BAD_INPUT) if the folder has none that is valid."""
    message = f"{str(folder)!r} is not a model folder: it has no readable config.json."
    try:
        config = read_json(folder / "config.json", bytes_max=_CONFIG_BYTES_MAX)
    except VlmtuiError as error:
        if is_file(folder / "config.json"):
            message += f" {error.message}"
        raise bad_input(message, detail=error.detail, hint=error.hint) from error
    if not isinstance(config, dict):
        raise bad_input(message, detail="config.json is not a JSON object")
    return config


def language_value(config: Mapping[str, object], name: str) -> object:
    """Return a value of the language model's config, which most models nest in a sub-config."""
    for inner in ("text_config", "llm_config", "language_config"):
        nested = config.get(inner)
        if isinstance(nested, Mapping) and nested.get(name) is not None:
            return nested[name]
    return config.get(name)


def weights_bytes(folder: Path) -> int:
    """Return the total bytes of a folder's weight files; 0 if a file is missing."""
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
    index = read_object(folder / "model.safetensors.index.json", bytes_max=_INDEX_BYTES_MAX)
    named = index.get("weight_map")
    if not isinstance(named, dict):
        return bool(sizes)
    return all(one in sizes for one in named.values() if isinstance(one, str))
