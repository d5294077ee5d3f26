"""Golden prompts: what a model's prompt was, as a small JSON file to be reviewed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.conversation import Media, Role, Turn, all_attachments
from vlmtui.domain.generation import MediaSpan
from vlmtui.errors import bad_input
from vlmtui.inspection.stages import CheckedSide
from vlmtui.reading import decode_json, read_whole, shown_name
from vlmtui.text import quoted

FORMAT = 1
"""The newest format that is read and written."""
_BYTES_MAX = 20_000_000
_RUN_MIN = 4
"""Equal token ids in a row from which they are written as `ID×COUNT`."""
_IDS_MAX = 4_000_000
"""Most token ids of a prompt."""


By: TypeAlias = Literal["processor", "engine"]


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
    by: By
    """`processor`: the model's tokenizer and processor in Transformers; `engine`: vLLM."""
    conversation: tuple[GoldenTurn, ...]
    prompt: tuple[str, ...]
    """The prompt's text, a line each, with its line breaks. By the engine: with expanded placeholders."""
    token_ids: tuple[int | str, ...]
    """`ID×COUNT` for equal ones in a row."""
    media: tuple[GoldenMedium, ...] = ()


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
        if len(found) + int(count) > _IDS_MAX:
            raise bad_input(f"The golden prompt has more than {_IDS_MAX:,} tokens.")
        found += [int(token)] * int(count)
    return found


def golden_of(
    turns: Sequence[Turn],
    files: Sequence[str],
    side: CheckedSide,
    *,
    model: str,
    case: str,
    mode: Literal["chat", "raw"],
    by: By,
) -> Golden:
    """Return the golden file of a prompt. `files`: the conversation's attachments, as the file names them."""
    number = -1
    conversation = []
    for turn in turns:
        parts = []
        for part in turn.parts:
            number += isinstance(part, Media)
            parts.append(GoldenPart(media=number) if isinstance(part, Media) else GoldenPart(text=part.text))
        conversation.append(GoldenTurn(turn.role, tuple(parts)))
    media = []
    numbers: dict[str, int] = {}
    for attachment, file in zip(all_attachments(turns), files, strict=True):
        index = numbers[attachment.modality] = numbers.get(attachment.modality, -1) + 1
        place = (attachment.modality, index)
        span = next((one for one in side.media if (one.modality, one.index) == place), None)
        media.append(
            GoldenMedium(
                modality=attachment.modality,
                file=file,
                sha256=attachment.sha256,
                tokens=span.tokens if span is not None else 0,
                resized=span.resized if span is not None else None,
                grid=span.grid if span is not None else (),
            )
        )
    return Golden(
        model=model,
        case=case,
        mode=mode,
        by=by,
        conversation=tuple(conversation),
        prompt=text_lines(side.text),
        token_ids=folded_ids(side.token_ids),
        media=tuple(media),
    )


def recorded_side(golden: Golden) -> CheckedSide:
    """Return what is recorded, to be compared with a prompt that is made now. Raises VlmtuiError for token ids that are
    none."""
    numbers: dict[str, int] = {}
    media = []
    for one in golden.media:
        index = numbers[one.modality] = numbers.get(one.modality, -1) + 1
        span = MediaSpan(modality=one.modality, index=index, offset=0, length=0, tokens=one.tokens)
        media.append(msgspec.structs.replace(span, resized=one.resized, grid=one.grid))
    ids = tuple(unfolded(golden.token_ids))
    return CheckedSide(text="".join(golden.prompt), token_ids=ids, media=tuple(media))
