"""Golden prompts: what a model's prompt was, as a small JSON file to be reviewed, and what has moved since."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Literal

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.conversation import Role
from vlmtui.domain.generation import MediaSpan
from vlmtui.errors import bad_input
from vlmtui.inspection.sequence_diff import common_start
from vlmtui.reading import decode_json, read_whole, shown_name
from vlmtui.text import quoted

FORMAT = 1
"""The newest format that is read and written."""
_BYTES_MAX = 20_000_000
_RUN_MIN = 4
"""Equal token ids in a row from which they are written as `ID×COUNT`."""
_SHOWN = 5
"""Token ids shown of a difference."""


class Aspect(StrEnum):
    """What moved."""

    TEXT = "text"
    IDS = "ids"
    COUNTS = "counts"
    """Tokens of an image or a video."""
    SIZES = "sizes"
    """Resized width and height, or the grid of patches or tiles."""


class GoldenPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a message: a text, or the number of an item in `media`."""

    text: str | None = None
    media: int | None = None


class GoldenTurn(msgspec.Struct, frozen=True):
    """One message."""

    role: Role
    parts: tuple[GoldenPart, ...]


class GoldenMedium(msgspec.Struct, frozen=True, kw_only=True):
    """A picture or video, and what became of it."""

    modality: Modality
    file: str
    """`bundled:NAME`, or a path relative to the golden file."""
    sha256: str
    tokens: int
    resized: tuple[int, int] | None = None
    """Width and height in pixels."""
    grid: tuple[int, ...] = ()


class Golden(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt of one model."""

    format: int = FORMAT
    model: str
    """A family, a repository, or a folder relative to the golden file (`./…`, `../…`)."""
    case: str
    mode: Literal["chat", "raw"]
    by: Literal["processor", "engine"]
    """`processor`: the model's tokenizer and processor in Transformers; `engine`: vLLM."""
    conversation: tuple[GoldenTurn, ...]
    prompt: tuple[str, ...]
    """The prompt's text, a line each, with its line breaks. By the engine: with expanded placeholders."""
    token_ids: tuple[int | str, ...]
    """`ID×COUNT` for equal ones in a row."""
    media: tuple[GoldenMedium, ...] = ()

    @property
    def title(self) -> str:
        """`qwen2_vl · image · chat`."""
        return f"{self.model} · {self.case} · {self.mode}"


class GoldenChange(msgspec.Struct, frozen=True):
    """Something that is not as it was recorded."""

    aspect: Aspect
    message: str
    """One sentence; quotes prompts: hostile."""


def folded_ids(ids: Sequence[int]) -> tuple[int | str, ...]:
    """Fold runs of equal ids."""
    found: list[int | str] = []
    at = 0
    while at < len(ids):
        end = at
        while end < len(ids) and ids[end] == ids[at]:
            end += 1
        run = end - at
        found += [f"{ids[at]}×{run}"] if run >= _RUN_MIN else [ids[at]] * run
        at = end
    return tuple(found)


def text_lines(text: str) -> tuple[str, ...]:
    """Split at line feeds only, which stay."""
    parts = text.split("\n")
    return (
        (*(f"{part}\n" for part in parts[:-1]), *parts[-1:]) if parts[-1] else tuple(f"{part}\n" for part in parts[:-1])
    )


def encode_golden(golden: Golden) -> bytes:
    """Return the file's content: JSON with a line a token run of the conversation, text line and medium."""
    built = msgspec.to_builtins(golden)
    lines = []
    for name, value in built.items():
        if isinstance(value, list | tuple) and value and name != "token_ids":
            inner = ",\n".join(f"    {msgspec.json.encode(one).decode()}" for one in value)
            lines.append(f'  "{name}": [\n{inner}\n  ]')
        else:
            lines.append(f'  "{name}": {msgspec.json.encode(value).decode()}')
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


class _Version(msgspec.Struct):
    format: int


def read_golden(path: Path) -> Golden:
    """Read a golden file. Raises VlmtuiError naming a file that is none, or of a newer format."""
    data = read_whole(path, bytes_max=_BYTES_MAX)
    name = shown_name(path)
    try:
        version = decode_json(data, _Version).format
    except ValueError as error:
        raise bad_input(f"{name} is not a golden prompt.", detail=str(error)) from error
    if version > FORMAT:
        message = f"{name} has format {version}; this version of vlmtui reads format {FORMAT}."
        raise bad_input(message, hint="Update vlmtui, or record it again.")
    try:
        return decode_json(data, Golden)
    except ValueError as error:
        raise bad_input(f"{name} is not a golden prompt.", detail=str(error)) from error


def moved_since(then: Golden, now: Golden) -> Iterator[GoldenChange]:
    """Yield what moved: text, ids, counts and sizes, each at most once an item."""
    before, after = "".join(then.prompt), "".join(now.prompt)
    if before != after:
        at = common_start(before, after)
        line = before.count("\n", 0, at) + 1
        here, there = quoted(before[at : at + 30]), quoted(after[at : at + 30])
        yield GoldenChange(Aspect.TEXT, f"line {line}: {here} is now {there}")
    ids, new_ids = unfolded(then.token_ids), unfolded(now.token_ids)
    if ids != new_ids:
        at = common_start(ids, new_ids)
        here, there = (", ".join(map(str, one[at : at + _SHOWN])) or "the end" for one in (ids, new_ids))
        yield GoldenChange(Aspect.IDS, f"token {at} of {len(ids):,} (now {len(new_ids):,}): {here} is now {there}")
    if len(then.media) != len(now.media):
        yield GoldenChange(Aspect.COUNTS, f"{len(then.media)} images and videos are now {len(now.media)}")
    for number, (old, new) in enumerate(zip(then.media, now.media, strict=False), 1):
        label = f"{old.modality} {number} ({old.file})"
        if old.tokens != new.tokens:
            yield GoldenChange(Aspect.COUNTS, f"{label}: {old.tokens:,} tokens are now {new.tokens:,}")
        if (old.resized, old.grid) != (new.resized, new.grid):
            yield GoldenChange(Aspect.SIZES, f"{label}: {_size(old)} is now {_size(new)}")


def unfolded(ids: Sequence[int | str]) -> list[int]:
    """Undo `folded_ids`. Raises VlmtuiError for an entry that is none."""
    found: list[int] = []
    for one in ids:
        if isinstance(one, int):
            found.append(one)
            continue
        token, _, count = one.partition("×")
        if not (token.isascii() and token.isdigit() and count.isascii() and count.isdigit() and len(count) < 8):
            raise bad_input(f"The golden prompt has an invalid run of tokens: {quoted(one)}.")
        found += [int(token)] * int(count)
    return found


def medium_of(span: MediaSpan, file: str, sha256: str) -> GoldenMedium:
    """Return what became of an item."""
    return GoldenMedium(
        modality=span.modality, file=file, sha256=sha256, tokens=span.tokens, resized=span.resized, grid=span.grid
    )


def _size(medium: GoldenMedium) -> str:
    grid = f"grid {'×'.join(map(str, medium.grid))}" if medium.grid else ""
    size = "{} × {} pixels".format(*medium.resized) if medium.resized is not None else ""
    return ", ".join(filter(None, (size, grid))) or "an unknown size"
