"""Rows of a CSV or TSV file as items, VLMEvalKit's tables among them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.session.batch.item import BatchItem, Expectation, MediaSource, unknown_field
from vlmtui.session.batch.parsing import LineReader, question_messages, read_sampling
from vlmtui.text import quoted

_NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "index", "custom_id"),
    "image": ("image", "image_path", "images", "path", "file"),
    "video": ("video", "videos"),
    "audio": ("audio", "audios"),
    "prompt": ("prompt", "question"),
    "system": ("system",),
    "raw": ("raw",),
    "expect": ("expect", "answer"),
}
"""What a column may be called, by what it is."""
_SAMPLING = ("temperature", "max_tokens", "seed")
_ENCODED_LEAST = 65
"""VLMEvalKit's tables: a shorter text in the column `image` names the row with the picture."""
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_OPTIONS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Columns(msgspec.Struct, frozen=True):
    """Which column is what. `given`: by what it is (`image`), the column's name."""

    given: Mapping[str, str] = msgspec.field(default_factory=dict)
    prompt: str = ""
    """The question, where there is no column with one. `{name}` stands for a column."""

    def require(self, header: Sequence[str]) -> None:
        """Raise VlmtuiError if a column that was named is not there, or none has a question."""
        for name in self.given.values():
            if name not in header:
                raise unknown_field(name, tuple(header))
        if not self.prompt and not any(self.find(what, header) for what in ("prompt", "raw")):
            names = quoted(", ".join(header))
            raise bad_input(f"No column has the question: {names}.", hint="Name it: --columns prompt=NAME.")

    def find(self, what: str, header: Sequence[str] | Mapping[str, str]) -> str | None:
        """Return the name of a column, or None."""
        if what in self.given:
            return self.given[what]
        return next((name for name in _NAMES[what] if name in header), None)


def parse_columns(text: str) -> dict[str, str]:
    """Parse `id=index,image=picture`. Raises VlmtuiError."""
    found: dict[str, str] = {}
    for piece in filter(None, text.split(",")):
        what, sign, name = piece.partition("=")
        if not sign or what.strip() not in _NAMES:
            raise bad_input(f"Can't read the column {quoted(piece)}.", hint=f"Write WHAT=NAME: {', '.join(_NAMES)}.")
        found[what.strip()] = name.strip()
    return found


def read_row(reader: LineReader, columns: Columns, row: Mapping[str, str], line: int) -> BatchItem:
    """Return a row as an item. Raises VlmtuiError without its line number."""
    cells = {what: row[name] for what in _NAMES if (name := columns.find(what, row)) and row[name] != ""}
    media = (*_pictures(reader, cells, row), *reader.media({name: cells.get(name) for name in ("video", "audio")}))
    sampling, _ = read_sampling({name: float(row[name]) for name in _SAMPLING if _is_number(row.get(name, ""))})
    raw = cells.get("raw")
    prompt = cells.get("prompt") or ""
    if columns.prompt:
        prompt = _filled(columns.prompt, row)
    if raw is None and not prompt:
        raise bad_input("The row has no question.")
    return BatchItem(
        line=line,
        id=cells.get("id") or str(line),
        messages=()
        if raw is not None
        else question_messages(_with_options(prompt, row), media, cells.get("system", "")),
        raw=raw,
        media=media if raw is not None else (),
        sampling=sampling,
        expect=Expectation(exact=cells["expect"]) if "expect" in cells else None,
    )


def _pictures(reader: LineReader, cells: Mapping[str, str], row: Mapping[str, str]) -> tuple[MediaSource, ...]:
    cell = cells.get("image")
    if cell is None:
        return ()
    values: Sequence[object] = [cell]
    if cell.startswith("["):
        try:
            values = msgspec.json.decode(cell.replace("'", '"'), type=list[str])
        except msgspec.DecodeError as error:
            raise bad_input("Can't read the list of pictures.", detail=str(error)) from error
    found = []
    for value in values:
        assert isinstance(value, str)
        if len(value) >= _ENCODED_LEAST and _BASE64.fullmatch(value):
            found.append(MediaSource(modality="image", encoded=value))
        elif value.isdigit() and "index" in row:
            if path := row.get("image_path"):
                found.append(reader.source(path, "image"))
                continue
            message = f"The picture is that of row {value}, which can't be looked up."
            raise VlmtuiError(bad_input("").kind, message, hint="Write the picture into each row.")
        else:
            found.append(reader.source(value, "image"))
    return tuple(found)


def _with_options(question: str, row: Mapping[str, str]) -> str:
    """Return a question with its hint and its options, as VLMEvalKit's multiple-choice prompt has them."""
    options = [(letter, row[letter]) for letter in _OPTIONS if row.get(letter)]
    if not options:
        return question
    hint = f"Hint: {row['hint']}\n" if row.get("hint") else ""
    listed = "".join(f"{letter}. {text}\n" for letter, text in options)
    return f"{hint}Question: {question}\nOptions:\n{listed}Please select the correct answer from the options above. \n"


def _filled(template: str, row: Mapping[str, str]) -> str:
    return re.sub(r"\{([^{}]+)\}", lambda match: row.get(match[1], match[0]), template)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
