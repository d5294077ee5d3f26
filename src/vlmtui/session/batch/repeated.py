"""Items that are made and not read: one question over many pictures, and vLLM's examples of offline inference."""

from __future__ import annotations

import glob
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from vlmtui.domain.attachment import Modality
from vlmtui.errors import bad_input
from vlmtui.media.paths import looks_like_media
from vlmtui.media.web_address import is_url
from vlmtui.session.batch.item import BatchItem, MediaSource
from vlmtui.session.batch.parsing import question_messages
from vlmtui.text import one_line

QUESTIONS: dict[Modality, tuple[str, ...]] = {
    "image": (
        "What is the content of this image?",
        "Describe the content of this image in detail.",
        "What's in the image?",
        "Where is this image taken?",
    ),
    "video": ("Why is this video funny?",),
}
"""The questions of vLLM's example `vision_language.py`."""


def items_over_files(patterns: Sequence[tuple[Modality, str]], prompts: Sequence[str]) -> Iterator[BatchItem]:
    """Yield an item for each file of the patterns and each prompt. Its id is the file's name as the pattern gives it,
    with `#2` behind it for the second prompt."""
    number = 0
    for modality, pattern in patterns:
        found = False
        for name in _files(pattern):
            found = True
            for count, prompt in enumerate(prompts, start=1):
                number += 1
                place = name if is_url(name) else os.path.abspath(name)  # noqa: PTH100  (links must stay)
                source = MediaSource(modality=modality, place=place)
                yield BatchItem(
                    line=number,
                    id=_id_of(name) if count == 1 else f"{_id_of(name)}#{count}",
                    messages=question_messages(prompt, (source,)),
                )
        if not found:
            raise bad_input(f"There is no {modality} in {one_line(pattern)}.")


def repeated_items(
    count: int,
    source: MediaSource,
    questions: Sequence[str],
    *,
    repeat_probability: float | None = None,
    seed: int | None = None,
    sampling_seed: int | None = None,
) -> Iterator[BatchItem]:
    """Yield `count` items over one medium, the questions in turn (`--num-prompts` of vLLM's example).

    With `repeat_probability`, an item has the picture of the one before with that probability, and otherwise one whose
    first pixel is changed to (number // 65536, number // 256, number % 256). The same `seed` makes the same choices, so
    that a batch can go on. `sampling_seed`: of the first item, counted up, as equal items would get equal answers."""
    choose = random.Random(seed if seed is not None else 0)
    width = len(str(count - 1))
    for number in range(count):
        if repeat_probability is not None and choose.random() >= repeat_probability:
            source = MediaSource(modality=source.modality, place=source.place, pixel=_pixel(number))
        yield BatchItem(
            line=number + 1,
            id=f"prompt-{number:0{width}}",
            messages=question_messages(questions[number % len(questions)], (source,)),
            sampling={} if sampling_seed is None else {"seed": sampling_seed + number},
        )


def _id_of(name: str) -> str:
    """Return a name as text: bytes that are not UTF-8 become `\\xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _pixel(number: int) -> tuple[int, int, int]:
    return number // 65536 % 256, number // 256 % 256, number % 256


def _files(pattern: str) -> Iterator[str]:
    """Yield the file of that name, or the media files of a folder or that match, by name; a web address is itself."""
    path = Path(os.path.expanduser(pattern))  # noqa: PTH111  (Path's fails on ~nobody)
    if is_url(pattern) or path.is_file():
        yield pattern if is_url(pattern) else str(path)
        return
    wanted = str(path / "*") if path.is_dir() else str(path)
    for name in sorted(glob.iglob(wanted, recursive=True)):  # noqa: PTH207  (a pattern may be absolute)
        if looks_like_media(Path(name)):
            yield name
