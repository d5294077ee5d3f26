"""Where the items of `vlmtui batch` come from: a file, stdin, pictures, or one picture again and again."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import msgspec

from vlmtui.cli.output import note
from vlmtui.domain.attachment import Modality
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.paths import bundled
from vlmtui.reading import is_file, unreadable
from vlmtui.session.batch.answered import AnsweredIndex, name_of
from vlmtui.session.batch.item import BadItem, BatchItem, MediaSource
from vlmtui.session.batch.reading import BatchFormat, BatchReader, batch_format_of
from vlmtui.session.batch.repeated import QUESTIONS, items_over_files, repeated_items
from vlmtui.session.batch.tables import Columns, parse_columns
from vlmtui.text import one_line, quoted

_SAMPLES: dict[Modality, str] = {"image": "circle.png", "video": "moving-circle.mp4"}
_STRICT_SHOWN = 20


class CountedItems:
    """Items of which it is known how many there are; read them once."""

    def __init__(self, items: Iterator[BatchItem], size: int) -> None:
        self._items = items
        self.size = size
        self.read = 0

    def __iter__(self) -> Iterator[BatchItem]:
        for item in self._items:
            self.read += 1
            yield item


class ItemSource(msgspec.Struct, frozen=True):
    """The items, from the beginning; read them once. reader: of a file; counted: what tells how many were read."""

    items: Iterator[BatchItem | BadItem]
    reader: BatchReader | None = None
    counted: CountedItems | None = None

    def share(self) -> float | None:
        """Return the share of the input that was read, 0 to 1; None if its size is unknown."""
        found = self.reader or self.counted
        return found.read / found.size if found is not None and found.size else None


def open_items(arguments: argparse.Namespace, stack: ExitStack) -> ItemSource:
    """Return the items that the command line names. Files are closed with `stack`. Raises VlmtuiError."""
    if arguments.input is None:
        if arguments.num_prompts is None:
            return ItemSource(_of_files(arguments))
        counted = CountedItems(_repeated(arguments), arguments.num_prompts)
        return ItemSource(iter(counted), counted=counted)
    prompts = arguments.prompt or [""]
    kind = batch_format_of(arguments.input, BatchFormat(arguments.input_format) if arguments.input_format else None)
    columns = Columns(parse_columns(arguments.columns), prompts[0])
    file, size, base = _opened(arguments.input, stack, is_read_twice=arguments.strict)
    if arguments.strict:
        _require_sound(BatchReader(file, kind, base=base, columns=columns))
        file.seek(0)
    reader = BatchReader(file, kind, base=base, size=size, columns=columns)
    return ItemSource(iter(reader), reader)


def _opened(name: str, stack: ExitStack, *, is_read_twice: bool) -> tuple[BinaryIO, int, Path]:
    """Return the open file, its size (0: unknown), and the folder that file names in it start at."""
    if name == "-":
        if not is_read_twice:
            return sys.stdin.buffer, 0, Path.cwd()
        copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        shutil.copyfileobj(sys.stdin.buffer, copy)
        size = copy.tell()
        copy.seek(0)
        return copy, size, Path.cwd()
    path = Path(name)
    try:
        file = stack.enter_context(path.open("rb"))
        return file, os.fstat(file.fileno()).st_size if is_file(path) else 0, path.absolute().parent
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def _require_sound(reader: BatchReader) -> None:
    """Raise VlmtuiError if a line is no item, an id is there twice, or a file is missing."""
    problems = 0
    seen = AnsweredIndex()
    for item in reader:
        if isinstance(item, BadItem):
            message = item.failure.message
        elif (row := seen.meet(name_of(item.id, item.line), item.line)) is not None:
            message = f"Line {item.line}: The id {quoted(item.id)} is that of line {row.line}, too."
        else:
            message = next((f"Line {item.line}: {text}" for text in map(_missing, item.sources) if text), "")
        problems += bool(message)
        if message and problems <= _STRICT_SHOWN:
            note(message)
    seen.close()
    if problems:
        raise bad_input(f"{problems:,} lines are wrong, so nothing was run.", hint="Without --strict the others are.")


def _missing(source: MediaSource) -> str:
    from vlmtui.media.pages import sound_source, with_page
    from vlmtui.media.web_address import is_url

    if source.encoded or is_url(source.place):
        return ""
    path = with_page(sound_source(Path(source.place)) if source.modality == "audio" else Path(source.place))[0]
    return "" if is_file(path) else f"{one_line(path.name)} does not exist."


def _of_files(arguments: argparse.Namespace) -> Iterator[BatchItem | BadItem]:
    if not arguments.media:
        message = "IN is missing, and so is --image, --video or --audio."
        raise VlmtuiError(ErrorKind.BAD_USAGE, message, hint="See `vlmtui batch --help`.")
    if not arguments.prompt:
        raise VlmtuiError(ErrorKind.BAD_USAGE, "--prompt is missing: the question about each file.")
    return items_over_files(arguments.media, arguments.prompt)


def _repeated(arguments: argparse.Namespace) -> Iterator[BatchItem]:
    media = arguments.media or []
    if len(media) > 1 or any(modality not in _SAMPLES for modality, _ in media):
        raise VlmtuiError(ErrorKind.BAD_USAGE, "--num-prompts goes with one --image or --video.")
    modality: Modality = media[0][0] if media else arguments.modality or "image"
    if arguments.modality not in (None, modality):
        raise VlmtuiError(ErrorKind.BAD_USAGE, f"--modality {arguments.modality} goes with a {arguments.modality}.")
    if modality == "video" and arguments.image_repeat_prob is not None:
        raise VlmtuiError(ErrorKind.BAD_USAGE, "--image-repeat-prob goes with pictures.")
    place = media[0][1] if media else str(bundled("samples") / _SAMPLES[modality])
    questions = arguments.prompt or QUESTIONS[modality]
    if not arguments.use_different_prompt_per_request:
        questions = questions[:1]
    return repeated_items(
        arguments.num_prompts,
        MediaSource(modality=modality, place=os.path.abspath(place)),  # noqa: PTH100  (links must stay)
        questions,
        repeat_probability=arguments.image_repeat_prob,
        seed=arguments.seed,
        sampling_seed=arguments.seed,
    )
