"""Looks at the files of a model's folder before a load: those that hold something else, and those that are missing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Literal

import msgspec

from vlmtui.domain.engine import REMOTE_BACKEND, LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.reading import opened, read_object, shown_name, stand_in
from vlmtui.registry.hub_cache import model_folder
from vlmtui.registry.size_limits import wrong_sizes
from vlmtui.text import one_line

FilePart = Literal["config", "tokenizer", "template", "weights", "other"]
_FILES_MAX = 10_000
_JSON_BYTES_MAX = 100_000_000
_FILE_BYTES_MAX = 10**15
_HEAD_BYTES, _TAIL_BYTES = 1024, 64
_HEADER_BYTES_MAX = 100_000_000
"""The limit of the library safetensors."""
_TEMPLATES = frozenset({"chat_template.jinja", "chat_template.json"})
_TOKENIZER = frozenset({"tokenizer_config.json", "tokenizer.json", "special_tokens_map.json", "added_tokens.json"})
_CONFIG = re.compile(r"(?:generation_)?config\.json|.*processor_config\.json|params\.json")
_VOCABULARY = re.compile(
    r"tokenizer\.json|tekken\.json|vocab\..+|merges\.txt|.+\.(?:model|tiktoken|spm|bpe)|bpe\.codes"
)
"""Names of files with a tokenizer's vocabulary."""
_LIKE_VOCABULARY = re.compile(
    r"(?!.*config\.json|special_tokens|added_tokens|.*\.py$).*(?:vocab|tok|dict|bpe|spm)", re.I
)
"""Names that such a file may have in a tokenizer's class that is not known here."""
_WEIGHTS: Mapping[str, tuple[str, ...]] = {
    "model.safetensors.index.json": (".safetensors",),
    "pytorch_model.bin.index.json": (".bin", ".pt", ".pth"),
}
"""Suffixes of weight files, by the name of their index. Engines load the first kind that the folder has."""
_NO_WEIGHTS = re.compile(r"(?:training_args|optimizer|scheduler|scaler|rng_state|adapter_model).*")
_OTHER = (".json", ".jinja", ".txt")
_UNFINISHED = (".incomplete", ".part", ".partial", ".crdownload", ".download", ".aria2")
"""Suffixes of unfinished downloads: of huggingface_hub, browsers, aria2."""
_FROM_FILES = ("auto", "safetensors", "hf", "bitsandbytes", "fastsafetensors")
"""Values of the engine argument `load_format` that load the files of an index, or all of a kind."""
_REPLACED: Mapping[str, FilePart] = {"tokenizer": "tokenizer", "chat_template": "template"}
"""Engine arguments that name a file to load instead of the folder's."""
_NAMED_MAX = 3
_AGAIN = "Download it again: `hf download OWNER/NAME --local-dir FOLDER`."


class FileFault(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a model's folder that is missing, or whose content does not fit its name."""

    name: str
    message: str
    """What is wrong, in one sentence."""
    mend: str = _AGAIN
    part: FilePart
    is_needed: bool = True
    """False if engines load the model without this file."""


def files_error(spec: LoadSpec) -> VlmtuiError | None:
    """Return an error (WEIGHTS_MISSING) if files that the engine needs are damaged or missing in the model's folder;
    None also if the model is not on this machine."""
    folder = model_folder(spec.model) if spec.backend != REMOTE_BACKEND else None
    if folder is None:
        return None
    arguments = spec.engine_args
    unused = [part for name, part in _REPLACED.items() if name in arguments]
    if arguments.get("load_format", "auto") not in _FROM_FILES:
        unused.append("weights")
    return error_of([one for one in file_faults(folder) if one.is_needed and one.part not in unused], folder)


def error_of(faults: Sequence[FileFault], folder: Path) -> VlmtuiError | None:
    """Return the faults of a folder's files as one error; None without faults."""
    if not faults:
        return None
    message = " ".join(one.message for one in faults[:_NAMED_MAX])
    if len(faults) > _NAMED_MAX:
        message += f" In all, {len(faults)} files are damaged or missing."
    detail = "\n".join([str(folder), *(one.message for one in faults[_NAMED_MAX:])])
    return VlmtuiError(ErrorKind.WEIGHTS_MISSING, message, detail=detail, hint=faults[0].mend)


def file_faults(folder: Path, *, may_lack_weights: bool = False) -> list[FileFault]:
    """Return the faults of the files directly in a model's folder. Reads the beginning and the end of each.

    `may_lack_weights`: a folder without any weights is no fault. In the hub's cache, missing files are no faults:
    engines download them.
    """
    try:
        with os.scandir(folder) as entries:
            files = {entry.name for entry, _ in zip(entries, range(_FILES_MAX), strict=False)}
    except OSError:
        return []
    is_cached = folder.parent.name == "snapshots"
    loaded = _loaded_weights(folder, files)
    found = [
        fault
        for name in sorted(files)
        if not (is_cached and not (folder / name).exists()) and (fault := _content_fault(folder / name, files, loaded))
    ]
    if not is_cached:
        found += _unfinished(folder, files, is_whole=bool(loaded))
        found += _missing_vocabulary(folder, files)
        found += () if may_lack_weights and not loaded else _missing_weights(folder, files, loaded)
    return found


def require_adapter(folder: Path) -> None:
    """Raise VlmtuiError if the weights of a LoRA adapter are damaged, or are no regular file. Engines load adapters
    during other requests."""
    fault = ""
    for path in (folder / "adapter_config.json", folder / "adapter_model.safetensors", folder / "adapter_model.bin"):
        if path.exists():
            with opened(path, bytes_max=_FILE_BYTES_MAX):
                fault = fault or (_header_fault(path) if path.suffix == ".safetensors" else "")
    if fault:
        raise bad_input(f"Can't load the LoRA adapter {shown_name(folder)!r}.", detail=fault)


def _part_of(name: str) -> FilePart | None:
    """Return the part of the model that a file belongs to; None for files that no engine reads."""
    if name in _TEMPLATES:
        return "template"
    if name in _TOKENIZER or _VOCABULARY.fullmatch(name):
        return "tokenizer"
    if name in _WEIGHTS or _is_weights(name, [one for suffixes in _WEIGHTS.values() for one in suffixes]):
        return "weights"
    return "config" if _CONFIG.fullmatch(name) else "other" if name.endswith(_OTHER) else None


def _is_weights(name: str, suffixes: Sequence[str]) -> bool:
    return name.endswith(tuple(suffixes)) and not _NO_WEIGHTS.fullmatch(name)


def _loaded_weights(folder: Path, files: Set[str]) -> set[str]:
    """Return the names of the weight files that an engine loads, and of their index."""
    for index, suffixes in _WEIGHTS.items():
        if present := {name for name in files if _is_weights(name, suffixes)}:
            return (present & _named_weights(folder / index) or present) | ({index} & files)
    return set()


def _named_weights(index: Path) -> set[str]:
    """Return the names of the files in an index of weights; empty if there is no valid index."""
    found = _json(index).get("weight_map")
    return {one for one in found.values() if isinstance(one, str)} if isinstance(found, dict) else set()


def _json(path: Path) -> Mapping[str, object]:
    return read_object(path, bytes_max=_JSON_BYTES_MAX)


def _content_fault(path: Path, files: Set[str], loaded: Set[str]) -> FileFault | None:
    name, part = path.name, _part_of(path.name)
    if part is None:
        return None
    is_needed = part not in ("weights", "other") or name in loaded
    if "tokenizer.json" in files and name != "tokenizer.json" and _VOCABULARY.fullmatch(name):
        is_needed = False
    try:
        with opened(path, bytes_max=_FILE_BYTES_MAX, may_be_empty=part == "other") as file:
            head = file.read(_HEAD_BYTES)
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            tail = file.read()
    except VlmtuiError as error:
        return FileFault(name=name, message=error.message, mend=error.hint or _AGAIN, part=part, is_needed=is_needed)
    is_json = name.endswith(".json") and part != "other"
    said, mend = stand_in(head) or (_json_fault(head, tail) if is_json else "", "")
    message = f"{shown_name(path)} is {said}." if said else ""
    if not message and name.endswith(".safetensors"):
        message = _header_fault(path)
    if not message and part == "config" and (wrong := next(wrong_sizes(_json(path)), "")):
        message = f"{shown_name(path)} has a number that no model needs: {one_line(wrong)}."
    if not message:
        return None
    return FileFault(name=name, message=message, mend=mend or _AGAIN, part=part, is_needed=is_needed)


class _Tensor(msgspec.Struct):
    data_offsets: tuple[int, int]


def _header_fault(path: Path) -> str:
    """Return what is wrong with the header of a safetensors file; "" if nothing is. Engines allocate
    the sizes in it."""
    size = path.stat().st_size
    with opened(path, bytes_max=_FILE_BYTES_MAX) as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, _HEADER_BYTES_MAX):
            most = f"the file has {size:,}" if length > size - 8 else f"the limit is {_HEADER_BYTES_MAX:,}"
            return f"{shown_name(path)} is damaged or cut off: its header says {length:,} bytes; {most}."
        header = file.read(length)
    try:
        tensors = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        tensors.pop("__metadata__", None)
        ends = [msgspec.json.decode(one, type=_Tensor).data_offsets[1] for one in tensors.values()]
    except (msgspec.DecodeError, RecursionError):
        return f"{shown_name(path)} is damaged: its header is not JSON that lists tensors."
    if (end := 8 + length + max(ends, default=0)) > size:
        return f"{shown_name(path)} is cut off: its tensors end at byte {end:,}; the file has {size:,}."
    return ""


def _json_fault(head: bytes, tail: bytes) -> str:
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return "not JSON"
    return "" if tail.rstrip()[-1:] in (b"}", b"]") else "cut off: it does not end like JSON"


def _unfinished(folder: Path, files: Set[str], *, is_whole: bool) -> Iterator[FileFault]:
    """Yield the unfinished downloads. aria2 keeps a control file beside the download until it is complete."""
    for name in sorted(files):
        of = name.removesuffix(Path(name).suffix)
        if name.endswith(_UNFINISHED) and (part := _part_of(of)) and (of not in files or name.endswith(".aria2")):
            message = f"{shown_name(folder / name)} is an unfinished download."
            yield FileFault(name=name, message=message, part=part)
    waiting = folder / ".cache" / "huggingface" / "download"
    if not is_whole and any(waiting.rglob("*.incomplete")):
        message = "The download into the folder is unfinished: .cache/huggingface/download has .incomplete files."
        yield FileFault(name=".cache", message=message, part="weights")


def _missing_vocabulary(folder: Path, files: Set[str]) -> Iterator[FileFault]:
    if "tokenizer_config.json" not in files:
        return
    config = _json(folder / "tokenizer_config.json")
    if "auto_map" not in config and not any(_VOCABULARY.fullmatch(one) or _LIKE_VOCABULARY.match(one) for one in files):
        yield FileFault(name="tokenizer.json", message="tokenizer.json is missing.", part="tokenizer")


def _missing_weights(folder: Path, files: Set[str], loaded: Set[str]) -> Iterator[FileFault]:
    """Yield the weight files that an index names and the folder lacks, unless other weights are loaded."""
    for index in _WEIGHTS:
        named = _named_weights(folder / index)
        missing = sorted(named - files)
        if missing and loaded - {index} <= named:
            shown = ", ".join(shown_name(Path(one)) for one in missing[:_NAMED_MAX])
            more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
            verb = "are" if len(missing) > 1 else "is"
            message = f"{shown}{more} {verb} missing: {index} names {len(named)} files."
            yield FileFault(name=missing[0], message=message, part="weights")
            return
