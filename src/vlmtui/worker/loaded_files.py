"""The files from which an engine answers: their digest at its load, and which of them have changed since."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui.domain.engine import FOLDER_GONE, REMOTE_BACKEND, LoadSpec, LoraAdapter
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.reading import is_file, is_folder
from vlmtui.registry.hub_cache import model_folder

_Signature = tuple[int, int, int, int]
"""Inode, size, and times of change of content and inode (ns): equal if nobody has written to the file."""
_READ = re.compile(r".+\.(json|jinja|model|tiktoken|safetensors|bin|pt|pth|gguf)|.*(vocab|merges|dict).*\.txt")
_OF_TRAINING = re.compile(r"(trainer_state|training_args|optimizer|scheduler|scaler|rng_state).*|.*_results\.json")
"""Files that a training run leaves beside a model, and that no engine reads."""
_TEMPLATES = "additional_chat_templates"
_ARGUMENTS = (
    "chat_template", "default_mm_loras", "generation_config", "hf_config_path", "lora_modules",
    "mm_encoder_fp8_scale_path", "model_weights", "spec_model", "speculative_config", "tokenizer",
)  # fmt: skip
"""Engine arguments that can name further files or folders to load."""
_WHOLE_MAX = 64 * 2**20
"""The most bytes of a file that is read whole. Larger ones are sampled, since the load reads them anyway."""
_SAMPLE = 1024
_SAMPLES = 1024
_READERS = 8


class _Known(msgspec.Struct, frozen=True):
    """A file's digest, and its signature when it was read."""

    signature: _Signature
    digest: str


_UNREAD = _Known((0, 0, 0, 0), "")


class LoadedFiles:
    """The files of an engine. Make it before the load, call `loaded` after it, then `changed` at any time.

    A file with an unchanged signature is not read again. If the signature has changed, the content decides: a small
    file's whole content, of large files samples.
    """

    def __init__(self, spec: LoadSpec) -> None:
        """Read the files. Blocking."""
        self._spec = spec
        self._is_local = spec.backend != REMOTE_BACKEND and is_folder(Path(spec.model))
        self._known: dict[Path, _Known] = {}
        self._folder = self._folder_at(spec.revision)
        self._digests = self._read(self._folder)

    def loaded(self, revision: str | None) -> str:
        """Note that the load has ended, with this commit if the model is from the hub. Return the digest of the files;
        "" if there are none here. Blocking. Raises VlmtuiError if a file has changed during the load."""
        before, then = self._digests, self._folder
        self._folder = self._folder_at(revision or self._spec.revision)
        self._digests = self._read(self._folder)
        if self._is_local or then == self._folder:
            written = _differences(before, self._digests, with_new=self._is_local)
            if written:
                raise VlmtuiError(
                    ErrorKind.MODEL_CHANGED,
                    f"The files of {self._spec.name} changed while it was loading: {', '.join(written)}.",
                    hint="Load it again once they are complete.",
                )
        told = "".join(f"{name}\0{digest}\0" for name, digest in sorted(self._digests.items()))
        return hashlib.blake2b(told.encode(), digest_size=16).hexdigest() if told else ""

    def changed(self) -> tuple[str, ...]:
        """Return the names of the files that a load would now find changed, new or removed. Blocking."""
        folder = self._folder_at(self._spec.revision)
        if folder is None:  # a download that was deleted says nothing about the model
            return (FOLDER_GONE,) if self._is_local else ()
        with_new = self._is_local or folder != self._folder
        return tuple(_differences(self._digests, self._read(folder), with_new=with_new))

    def _folder_at(self, revision: str | None) -> Path | None:
        """Return the folder from which a load would read now, by the local cache alone; None: none is known."""
        return None if self._spec.backend == REMOTE_BACKEND else model_folder(self._spec.model, revision)

    def _read(self, folder: Path | None) -> dict[str, str]:
        """Return the digest of each file by its name, without those that can't be read."""
        paths = dict(self._paths(folder)) if folder is not None else {}
        unread = [path for path in set(paths.values()) if not self._is_known(path)]
        if unread:
            with ThreadPoolExecutor(_READERS) as pool:
                self._known.update(zip(unread, pool.map(_read_file, unread), strict=True))
        return {name: known.digest for name, path in paths.items() if (known := self._known[path]).digest}

    def _is_known(self, path: Path) -> bool:
        known = self._known.get(path)
        try:
            return known is not None and known.signature == _signature(path.stat())
        except OSError:
            return False

    def _paths(self, folder: Path) -> Iterator[tuple[str, Path]]:
        yield from _inside(folder)
        for part in dict.fromkeys((_TEMPLATES, *(one.path for one in self._spec.loras if one.path))):
            yield from _inside(folder / part, f"{part}/")
        for name in _ARGUMENTS:
            for text in _texts(self._spec.engine_args.get(name)):
                path = Path(text.rpartition("=")[2])  # `NAME=FOLDER` of an adapter
                if path.is_absolute():
                    yield from _inside(path, f"{name}: ")
                    yield f"{name}: {path.name}", path


def _read_file(path: Path) -> _Known:
    """Return a file's signature and digest; the digest "" if it is no readable file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return _UNREAD
    try:
        found = os.fstat(descriptor)
        is_regular = stat.S_ISREG(found.st_mode)
        return _Known(_signature(found), _content_digest(descriptor, found.st_size)) if is_regular else _UNREAD
    except OSError:
        return _UNREAD
    finally:
        os.close(descriptor)


def own_adapter_folder(spec: LoadSpec, adapter: LoraAdapter, revision: str | None) -> Path:
    """Return the folder of an adapter that belongs to the model. Downloads its files if they are missing. Blocking."""
    folder = Path(spec.model)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        wanted = f"{adapter.path}/*" if adapter.path else "adapter_*"
        folder = Path(snapshot_download(spec.model, revision=revision, allow_patterns=[wanted]))
    return folder / adapter.path


def folder_signature(folder: Path) -> tuple[tuple[str, _Signature], ...]:
    """Return a value that changes if a file that engines read is written, added or removed in the folder. Blocking."""
    found = []
    for name, path in _inside(folder):
        with suppress(OSError):  # it was just removed
            found.append((name, _signature(path.stat())))
    return tuple(sorted(found))


def _signature(found: os.stat_result) -> _Signature:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _inside(folder: Path, prefix: str = "") -> Iterator[tuple[str, Path]]:
    """Yield the files in a folder that an engine may read, each with its name."""
    try:
        found = list(folder.iterdir())
    except (OSError, ValueError):
        return
    for path in found:
        name = path.name.lower()
        is_read = _READ.fullmatch(name) and not _OF_TRAINING.fullmatch(name) and not name.startswith(".")
        if is_read and is_file(path):
            yield prefix + path.name, path


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(one)


def _differences(before: Mapping[str, str], now: Mapping[str, str], *, with_new: bool) -> list[str]:
    changed = [name if name in now else f"{name} (removed)" for name in before if now.get(name) != before[name]]
    return sorted(changed + [f"{name} (new)" for name in now if with_new and name not in before])


def _content_digest(descriptor: int, size: int) -> str:
    digest = hashlib.blake2b(f"{size}\0".encode(), digest_size=16)
    for start, length in _places(size):
        digest.update(os.pread(descriptor, length, start))
    return digest.hexdigest()


def _places(size: int) -> Iterator[tuple[int, int]]:
    """Yield the (offset, bytes) to read of a file: all of it, or samples at equal distances."""
    if size <= _WHOLE_MAX:
        yield from ((start, 2**20) for start in range(0, size, 2**20))
    else:
        yield from ((start, _SAMPLE) for start in (*range(0, size, size // _SAMPLES), size - _SAMPLE))
