"""Recorded cases: JSON files that record a model's prompt for a conversation, to detect later changes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count, groupby
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from vlmtui.domain.conversation import Attachment, Media, Modality, Role, Turn, all_attachments
from vlmtui.domain.generation import MediaSpan
from vlmtui.errors import bad_input
from vlmtui.inspection.stages import CheckedSide
from vlmtui.reading import decode_json, read_whole, shown_name
from vlmtui.text import quoted

_BYTES_MAX = 20_000_000
_RUN_MIN = 4
"""From this number on, equal token ids in a row are written as `ID×COUNT`."""
_IDS_MAX = 4_000_000
"""The most token ids of a prompt."""


By: TypeAlias = Literal["processor", "engine"]


class RecordedPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a message: a text, or the index of an item in `RecordedCase.media`."""

    text: str | None = None
    media: int | None = None


class RecordedTurn(msgspec.Struct, frozen=True):
    role: Role
    parts: tuple[RecordedPart, ...]


class RecordedMedium(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment, with its tokens and size in the prompt."""

    modality: Modality
    file: str
    """`bundled:NAME`, or a path relative to the recorded file."""
    sha256: str
    tokens: int
    resized: tuple[int, int] | None = None
    """Width and height in pixels after the processor's resizing."""
    grid: tuple[int, ...] = ()


class RecordedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A model's prompt for a conversation."""

    format: Literal[1] = 1
    model: str
    """A model family, a repository, or a folder relative to the recorded file (`./…`, `../…`)."""
    case: str
    mode: Literal["chat", "raw"]
    by: By
    """`processor`: the model's tokenizer and processor in Transformers; `engine`: vLLM."""
    conversation: tuple[RecordedTurn, ...]
    prompt: tuple[str, ...]
    """The lines of the prompt's text, with their line breaks. If `by` is `engine`, placeholders are expanded."""
    token_ids: tuple[int | str, ...]
    """The token ids; `ID×COUNT` for equal ids in a row."""
    media: tuple[RecordedMedium, ...] = ()
    variables: dict[str, object] = {}
    """The variables of the chat template that the prompt was made with."""


def folded_ids(ids: Sequence[int]) -> tuple[int | str, ...]:
    """Write runs of equal ids as `ID×COUNT`."""
    found: list[int | str] = []
    for token, equal in groupby(ids):
        run = len(list(equal))
        found += [f"{token}×{run}"] if run >= _RUN_MIN else [token] * run
    return tuple(found)


def text_lines(text: str) -> tuple[str, ...]:
    """Split into lines at line feeds only, and keep the line feeds."""
    return tuple(re.findall("[^\n]*\n|[^\n]+", text))


def encode_recorded(recorded: RecordedCase) -> bytes:
    """Return the file's content: JSON with one line for each turn, line of the prompt, and attachment."""
    built = msgspec.to_builtins(recorded)
    lines = []
    for name, value in built.items():
        if isinstance(value, list | tuple) and value and name != "token_ids":
            inner = ",\n".join(f"    {msgspec.json.encode(one).decode()}" for one in value)
            lines.append(f'  "{name}": [\n{inner}\n  ]')
        else:
            lines.append(f'  "{name}": {msgspec.json.encode(value).decode()}')
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def read_recorded(path: Path) -> RecordedCase:
    """Read a recorded file. Raises VlmtuiError for another kind of file or another version of the format."""
    try:
        return decode_json(read_whole(path, bytes_max=_BYTES_MAX), RecordedCase)
    except ValueError as error:
        raise bad_input(f"{shown_name(path)} is not a recorded prompt.", detail=str(error)) from error


def unfolded(ids: Sequence[int | str]) -> list[int]:
    """Undo `folded_ids`. Raises VlmtuiError for an invalid entry."""
    found: list[int] = []
    for one in ids:
        if isinstance(one, int):
            found.append(one)
            continue
        token, _, count = one.partition("×")
        if not (token.isascii() and token.isdigit() and count.isascii() and count.isdigit() and len(count) < 8):
            raise bad_input(f"The recorded prompt has an invalid run of tokens: {quoted(one)}.")
        if len(found) + int(count) > _IDS_MAX:
            raise bad_input(f"The recorded prompt has more than {_IDS_MAX:,} tokens.")
        found += [int(token)] * int(count)
    return found


def recorded_of(
    turns: Sequence[Turn],
    files: Sequence[str],
    side: CheckedSide,
    *,
    model: str,
    case: str,
    mode: Literal["chat", "raw"],
    by: By,
    variables: Mapping[str, object] = MappingProxyType({}),
) -> RecordedCase:
    """Return the recorded prompt of a conversation. `side`: the model's prompt. `files`: the path to record for each
    attachment (`RecordedMedium.file`). `variables`: those of the chat template."""
    attachments = all_attachments(turns)
    numbers = count()
    conversation = [
        RecordedTurn(
            turn.role,
            tuple(
                RecordedPart(media=next(numbers)) if isinstance(part, Media) else RecordedPart(text=part.text)
                for part in turn.parts
            ),
        )
        for turn in turns
    ]
    spans = {(one.modality, one.index): one for one in side.media}
    media = []
    for place, attachment, file in zip(_places(attachments), attachments, files, strict=True):
        medium = RecordedMedium(modality=attachment.modality, file=file, sha256=attachment.sha256, tokens=0)
        if (span := spans.get(place)) is not None:
            medium = msgspec.structs.replace(medium, tokens=span.tokens, resized=span.resized, grid=span.grid)
        media.append(medium)
    return RecordedCase(
        model=model,
        case=case,
        mode=mode,
        by=by,
        conversation=tuple(conversation),
        prompt=text_lines(side.text),
        token_ids=folded_ids(side.token_ids),
        media=tuple(media),
        variables=dict(variables),
    )


def recorded_side(recorded: RecordedCase) -> CheckedSide:
    """Return the recorded prompt for `compare_sides`. Raises VlmtuiError for invalid token ids."""
    media = tuple(
        MediaSpan(
            modality=one.modality,
            index=index,
            offset=0,
            length=0,
            tokens=one.tokens,
            resized=one.resized,
            grid=one.grid,
        )
        for (_, index), one in zip(_places(recorded.media), recorded.media, strict=True)
    )
    return CheckedSide(text="".join(recorded.prompt), token_ids=tuple(unfolded(recorded.token_ids)), media=media)


def _places(media: Sequence[Attachment | RecordedMedium]) -> list[tuple[Modality, int]]:
    """Return (modality, index among the items of this modality) for each item."""
    numbers: Counter[Modality] = Counter()
    found = []
    for one in media:
        found.append((one.modality, numbers[one.modality]))
        numbers[one.modality] += 1
    return found
