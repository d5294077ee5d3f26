"""Does an engine see its images? Images of difficult sizes and kinds, each with the tokens that it should take; and
questions about drawn images."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec
from PIL import Image

from vlmtui.domain.conversation import Attachment, user_turn
from vlmtui.domain.generation import Finished
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError
from vlmtui.media.images import stage_image
from vlmtui.registry.schema import Family
from vlmtui.session.check.sides import text_of
from vlmtui.session.generation import Answer, broken_off, make_request, whole_answer

ASKED = "What is in this image?"
_SIZES = ((448, 448), (1, 1), (1, 2000), (2000, 1), (23, 3), (3000, 200), (8000, 8000))
"""Width and height of the images. The first is the one that the others' counts are compared with."""
_SMALL = (300, 200)
_ORIENTATION = 0x0112
_TURNED = 6
"""The EXIF orientation of an image whose right side is its top."""


class SightOutcome(StrEnum):
    """The outcome of sending an image."""

    RIGHT = "right"
    """It took the tokens that it should."""
    WRONG = "wrong count"
    UNKNOWN = "not counted"
    """It was answered; how many tokens it should take, or took, is unknown."""
    REFUSED = "refused"
    ENDED = "ended the engine"


class SentImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image that was sent, and its tokens."""

    name: str
    """Its size, or its kind: `23×3`, `CMYK`."""
    outcome: SightOutcome
    expected: int | None = None
    """The tokens that it should take, by the model's own processor or the family's record; None: unknown."""
    told: int | None = None
    """The tokens that the engine counted for it. If the engine tells the number of all tokens alone: those that the
    image added to the prompt, less the tokens around it if these are known."""
    message: str = ""
    """Why it failed. Hostile text."""


def draw_images(folder: Path, media: Path) -> dict[str, Attachment]:
    """Draw the images into `folder`, store them in `media`, and return them by name. Blocking."""
    found = {}
    for width, height in _SIZES:
        # Blocks of noise: a large image of one colour would be refused as a decompression bomb.
        blocks = (max(1, width // 8), max(1, height // 8))
        noise = Image.frombytes("RGB", blocks, random.Random(1).randbytes(3 * blocks[0] * blocks[1]))
        path = folder / f"{width}x{height}.jpg"
        noise.resize((width, height), Image.Resampling.NEAREST).save(path, quality=60)
        found[f"{width}×{height}"] = stage_image(path, media)
    base = Image.linear_gradient("L").resize(_SMALL)
    exif = Image.Exif()
    exif[_ORIENTATION] = _TURNED
    base.convert("RGBA").save(folder / "transparent.png")
    base.save(folder / "grey.png")
    base.convert("RGB").save(folder / "turned.jpg", exif=exif)
    base.convert("CMYK").save(folder / "cmyk.jpg")
    for name in ("transparent.png", "grey.png", "turned.jpg", "cmyk.jpg"):
        found[name] = stage_image(folder / name, media)
    return found


async def send_images(
    engine: Engine,
    family: Family,
    images: Mapping[str, Attachment],
    expected: Mapping[str, int],
    sampling: Sampling,
    around: int | None,
) -> list[SentImage]:
    """Ask about each image, and compare its tokens with those expected. Stops after an image that ended the engine.

    `expected`: the tokens of each image, by name, without those around it; names may be missing. `around`: the tokens
    around each image. If they are unknown, and the engine tells the number of all tokens alone, the first image tells
    them, and only the others are judged."""
    text_tokens = (await _asked(engine, family, [], sampling)).usage.prompt_tokens
    found: list[SentImage] = []
    for name, image in images.items():
        wanted = expected.get(name)
        try:
            answer = await _asked(engine, family, [image], sampling)
        except VlmtuiError as error:
            ended = not await _is_alive(engine, family, sampling)
            outcome = SightOutcome.ENDED if ended else SightOutcome.REFUSED
            found.append(SentImage(name=name, outcome=outcome, expected=wanted, message=text_of(error)))
            if ended:
                break
            continue
        spans = answer.prompt.media if answer.prompt is not None else ()
        is_judged, told = wanted is not None, None
        if spans:
            told = sum(span.tokens for span in spans)
        elif answer.usage.prompt_tokens and text_tokens:
            told = answer.usage.prompt_tokens - text_tokens
            if around is None and wanted is not None and told >= wanted:
                around, is_judged = told - wanted, False
            told -= around or 0
        outcome = (
            SightOutcome.UNKNOWN
            if told is None or not is_judged
            else SightOutcome.RIGHT
            if told == wanted
            else SightOutcome.WRONG
        )
        found.append(SentImage(name=name, outcome=outcome, expected=wanted, told=told))
    return found


async def _is_alive(engine: Engine, family: Family, sampling: Sampling) -> bool:
    """Return whether the engine still answers a question without an image."""
    try:
        await _asked(engine, family, [], sampling)
    except VlmtuiError:
        return False
    return True


async def _asked(engine: Engine, family: Family, images: Sequence[Attachment], sampling: Sampling) -> Answer:
    """Return an answer of one token. Raises VlmtuiError."""
    sampling = msgspec.structs.replace(sampling, temperature=0.0, max_tokens=1)
    request = make_request(family, [user_turn(ASKED, images)], sampling)
    answer = await whole_answer(engine, request)
    if not isinstance(answer.outcome, Finished):
        raise (answer.failure or broken_off("").failure).error()
    return answer
