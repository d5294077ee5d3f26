"""The images that a model sees, the patches behind their tokens, and how likely an answer is without an image, or
without a part of it (occlusion)."""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from vlmtui.domain.capabilities import lack, require_capability
from vlmtui.domain.conversation import (
    Attachment,
    ChatPrompt,
    Prompt,
    Turn,
    attachments_of,
    with_attachments,
    with_changed_media,
)
from vlmtui.domain.generation import MediaSpan, SeenMedium, View
from vlmtui.engine.interface import Engine
from vlmtui.errors import bad_input
from vlmtui.paths import private_dir
from vlmtui.session.fan_out import MOST, WITHOUT, PictureChange, image_verdict
from vlmtui.session.generation import render
from vlmtui.session.lanes import Lane, Lanes, LaneScore, scores_of, scoring_lane
from vlmtui.session.prompt_report import PromptReport, answer_tokens
from vlmtui.text import one_line, token_place

if TYPE_CHECKING:
    from PIL.Image import Image

GRIDS = (4, 6, 8, 12)
"""The choices for the number of cells along the longer side."""
WINDOW = 2
"""Cells per side of a window, the part of the image that is grey in a prompt."""
HOT = 255, 60, 0
"""The colour of parts without which the answer is less likely."""
COLD = 0, 110, 255
"""The colour of parts without which the answer is more likely."""
_STRONGEST = 0.75
"""Opacity of the colour in the hottest cell."""
_DIM = 0.55
"""Brightness of the image, reduced so that its own colours are not mistaken for heat."""
_KEPT_S = 3600.0
"""Seconds after which the next view deletes an earlier view's images."""
Box = tuple[int, int, int, int]
"""Left, top, right and bottom of a part of an image, in pixels."""


RoomMode = Literal["file", "sent", "seen", "heat", "boxes", "blind"]
"""A way to look at an image."""


class RoomImage(NamedTuple):
    """An image, video or sound that the image room shows."""

    attachment: Attachment
    number: int | None = None
    """Its number in the prompt; None: the prompt does not contain it."""
    report: Callable[[], Awaitable[PromptReport]] | None = None
    """Returns the prompt and the answer that the room is about, or raises VlmtuiError. Images of one prompt have the
    same function. None: the image was not sent."""


class OcclusionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The prompts to score: the unchanged prompt, and for each window (`WINDOW` × `WINDOW` cells of the image) a prompt
    in which that window is grey."""

    prompt: Prompt
    image: Attachment
    ids: tuple[int, ...]
    """The answer's tokens."""
    texts: tuple[str, ...]
    """Each token's text. Hostile."""
    prompt_tokens: int | None
    """None: unknown."""
    special: frozenset[int] = frozenset()
    """The ids of special tokens."""
    adapter: str = ""
    """The folder of the LoRA adapter that answered."""
    longer: int = 6
    """Cells along the longer side."""

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns; cells are as square as possible."""
        wide, high = self.image.width, self.image.height
        shorter = max(1, round(self.longer * min(wide, high) / max(wide, high)))
        return (shorter, self.longer) if wide >= high else (self.longer, shorter)

    @property
    def windows(self) -> list[tuple[int, int]]:
        """Row and column of each window's top left cell, row by row."""
        rows, columns = self.grid
        return [(row, column) for row in range(max(1, rows - 1)) for column in range(max(1, columns - 1))]

    @property
    def requests(self) -> int:
        """Number of prompts to score."""
        return 1 + len(self.windows)

    @property
    def cost(self) -> str:
        """The number of prompts to score and of their tokens: `16 prompts of 74 tokens`."""
        tokens = "" if self.prompt_tokens is None else f" of {self.prompt_tokens + len(self.ids):,} tokens"
        return f"{self.requests:,} prompts{tokens}"

    def words(self) -> list[tuple[str, range]]:
        """Return the answer's words, each with the range of its tokens. A token that begins with a space begins a
        word, and a special token is a word."""
        found: list[tuple[str, range]] = []
        for at, text in enumerate(self.texts):
            is_apart = not self.special.isdisjoint(self.ids[max(0, at - 1) : at + 1])
            if found and text and not text[0].isspace() and not is_apart:
                word, tokens = found[-1]
                found[-1] = word + text, range(tokens.start, at + 1)
            else:
                found.append((text, range(at, at + 1)))
        return [(word.strip(), tokens) for word, tokens in found]

    def box(self, window: tuple[int, int]) -> Box:
        """Return left, top, right and bottom of a window in pixels of the image."""
        rows, columns = self.grid
        wide, high = self.image.width, self.image.height
        row, column = window
        right, bottom = min(column + WINDOW, columns), min(row + WINDOW, rows)
        return column * wide // columns, row * high // rows, right * wide // columns, bottom * high // rows

    def window_at(self, x: float, y: float) -> int:
        """Return the index of the window whose centre is nearest to a point of the image, in pixels."""

        def away(at: int) -> float:
            left, top, right, bottom = self.box(self.windows[at])
            return math.hypot((left + right) / 2 - x, (top + bottom) / 2 - y)

        return min(range(len(self.windows)), key=away)


class AnswerDrops(msgspec.Struct, frozen=True, kw_only=True):
    """How much less likely each token of an answer is with changed images."""

    plan: OcclusionPlan
    drops: tuple[tuple[float, ...], ...]
    """By changed image: the drop of each token's log-probability, in nats; negative: a rise."""

    def sums(self, tokens: range | None = None) -> list[float]:
        """Return for each image the sum of its `drops` over these tokens, by default all tokens."""
        chosen = tokens or range(len(self.plan.ids))
        return [sum(drop[at] for at in chosen if at < len(drop)) for drop in self.drops]

    def as_json(self) -> dict[str, object]:
        """Return the image's name and size, the answer's tokens, and each token's drop in nats."""
        image = self.plan.image
        return {
            "image": {"name": image.name, "width": image.width, "height": image.height},
            "tokens": [{"id": id, "text": text} for id, text in zip(self.plan.ids, self.plan.texts, strict=True)],
            "drops_nats": self.drops,
        }


class OcclusionMap(AnswerDrops, frozen=True, kw_only=True):
    """How much each window matters for each token of the answer. `drops`: by window."""

    def heat(self, tokens: range | None = None) -> list[list[float]]:
        """Return a number for each cell, row by row: the mean of the `sums` of all windows that cover the cell."""
        rows, columns = self.plan.grid
        covering: list[list[list[float]]] = [[[] for _ in range(columns)] for _ in range(rows)]
        for (row, column), drop in zip(self.plan.windows, self.sums(tokens), strict=True):
            for down in range(row, min(row + WINDOW, rows)):
                for across in range(column, min(column + WINDOW, columns)):
                    covering[down][across].append(drop)
        return [[sum(cell) / len(cell) for cell in cells] for cells in covering]

    def strongest(self, tokens: range | None = None) -> int:
        """Return the index of the window with the largest of the `sums`."""
        sums = self.sums(tokens)
        return sums.index(max(sums))

    def as_json(self) -> dict[str, object]:
        """Return the windows' boxes in pixels, too."""
        return {**super().as_json(), "windows_xyxy": [self.plan.box(window) for window in self.plan.windows]}


class BlindTest(AnswerDrops, frozen=True, kw_only=True):
    """How likely an answer is without its image, and with a changed one. `drops`: by change."""

    changes: tuple[PictureChange, ...]

    def verdict(self) -> str:
        """Say whether the answer depends on the image, by the change that says most."""
        change = next(change for change in WITHOUT if change in self.changes)
        drops = self.drops[self.changes.index(change)]
        at, score = drops.index(max(drops)), LaneScore(-math.fsum(drops), len(drops))
        return image_verdict(score, change, f", most at {token_place(at)}, “{one_line(self.plan.texts[at])}”")

    def as_json(self) -> dict[str, object]:
        """Return the changes and the verdict, too."""
        return {**super().as_json(), "changes": self.changes, "verdict": self.verdict()}


def occlusion_plan(report: PromptReport, prompt: Prompt, image: Attachment, engine: Engine) -> OcclusionPlan:
    """Return the plan for a report's answer and an image of its prompt. Raises VlmtuiError."""
    if why := lack(engine.info, "scores"):
        raise bad_input(why)
    if image.modality != "image":
        raise bad_input(f"Can't measure on {one_line(image.name)}: only images can be measured.")
    if not report.answer_ids:
        raise bad_input("The tokens of this answer are unknown, so it cannot be scored.", hint="Answer again first.")
    return OcclusionPlan(
        prompt=prompt,
        adapter=report.request.adapter if report.request else report.recipe.adapter if report.recipe else "",
        image=own_attachment(image, attachments_of(prompt)),
        ids=report.answer_ids,
        texts=tuple(token.text for token in answer_tokens(report)),
        prompt_tokens=len(report.prompt.token_ids) if report.prompt is not None else None,
        special=frozenset(token for token, entry in report.vocabulary.items() if entry.special),
    )


def own_attachment(image: Attachment, attachments: Sequence[Attachment]) -> Attachment:
    """Return the attachment of a prompt that is this image, or has its content. Raises VlmtuiError without one."""
    same = [item for item in attachments if (item.sha256, item.modality) == (image.sha256, image.modality)]
    if not same:
        raise bad_input(f"The prompt of this answer doesn't have {one_line(image.name)}.")
    return next((item for item in same if item is image), same[0])


async def occlusion_map(
    engine: Engine, plan: OcclusionPlan, folder: Path, on_progress: Callable[[int], object] = lambda done: None
) -> OcclusionMap:
    """Score the answer under every prompt of the plan. Raises VlmtuiError.

    folder: for temporary images; gets mode 0700. on_progress: called with the number of prompts scored so far."""
    from vlmtui.media.changed_images import occluded_image  # Pillow takes a while to import

    with tempfile.TemporaryDirectory(dir=private_dir(folder), ignore_cleanup_errors=True) as store:
        changes = [partial(occluded_image, plan.image, plan.box(window), Path(store)) for window in plan.windows]
        return OcclusionMap(plan=plan, drops=await _drops(engine, plan, changes, on_progress))


def changed_images(image: Attachment, other: Attachment | None, store: Path) -> dict[PictureChange, Attachment | None]:
    """Return the image of each change of a blind test; None: no image. Blocking. Raises VlmtuiError.

    other: an image to put in its place; None: there is none. store: for the images; gets mode 0700."""
    from vlmtui.media.changed_images import blurred_image, grey_image

    folder = private_dir(store.resolve())
    found = {PictureChange.NONE: None, PictureChange.GREY: grey_image(image, folder)}
    found[PictureChange.BLUR] = blurred_image(image, folder)
    return found if other is None else {**found, PictureChange.SWAP: other}


async def blind_test(
    engine: Engine,
    plan: OcclusionPlan,
    images: dict[PictureChange, Attachment | None],
    on_progress: Callable[[int], object] = lambda done: None,
) -> BlindTest:
    """Score the answer with each of these images in place of the plan's. `images`: from `changed_images`. Raises
    VlmtuiError."""
    changes = [partial(lambda image: image, image) for image in images.values()]
    return BlindTest(plan=plan, changes=tuple(images), drops=await _drops(engine, plan, changes, on_progress))


async def _drops(
    engine: Engine,
    plan: OcclusionPlan,
    changes: Sequence[Callable[[], Attachment | None]],
    on_progress: Callable[[int], object],
) -> tuple[tuple[float, ...], ...]:
    """Return each token's drop under the plan's prompt with each changed image, `MOST` prompts at a time.

    changes: make the images, in a thread; None: no image."""
    ended = 0

    def count(lane: Lane) -> None:
        nonlocal ended
        if not lane.is_running:
            ended += 1
            on_progress(ended)

    found: list[list[float]] = []
    for at in range(0, len(changes) + 1, MOST):
        prompts = [plan.prompt] if at == 0 else []
        few = changes[max(0, at - 1) : at + MOST - 1]
        prompts += await asyncio.to_thread(_changed_prompts, plan, few)
        lanes = Lanes([scoring_lane(engine, prompt, plan.ids, adapter=plan.adapter) for prompt in prompts])
        found += await scores_of(lanes, count)
    whole, *changed = found
    return tuple(tuple(before - after for before, after in zip(whole, one, strict=False)) for one in changed)


def _changed_prompts(plan: OcclusionPlan, changes: Sequence[Callable[[], Attachment | None]]) -> list[Prompt]:
    return [_with_image(plan.prompt, plan.image, change()) for change in changes]


def _with_image(prompt: Prompt, own: Attachment, image: Attachment | None) -> Prompt:
    """Return a prompt with another image in place of its own; None: without one. An equal image elsewhere stays."""
    if image is not None:
        return with_attachments(prompt, lambda item: image if item is own else item)
    if not isinstance(prompt, ChatPrompt):
        raise bad_input("Can't leave the image out of a raw prompt: its placeholder would stay.")
    kept = [with_changed_media(turn.parts, lambda item: None if item is own else item) for turn in prompt.turns]
    turns = tuple(Turn(turn.role, parts) for turn, parts in zip(prompt.turns, kept, strict=True))
    return msgspec.structs.replace(prompt, turns=turns)


def draw_heat(picture: Image, heat: Sequence[Sequence[float]]) -> Image:
    """Return an RGB image, grey, with red where the answer depends on it and blue where it makes the answer less
    likely. `heat`: rows of cells; the largest magnitude gets the strongest colour."""
    import numpy as np
    from PIL import Image

    grey = np.asarray(picture.convert("L"), np.float32)[..., None].repeat(3, axis=2) * _DIM
    cells = np.nan_to_num(np.asarray(heat, np.float32))
    most = float(np.abs(cells).max()) or 1.0
    rows = np.arange(picture.height) * cells.shape[0] // picture.height
    columns = np.arange(picture.width) * cells.shape[1] // picture.width
    each = (cells / most)[rows][:, columns][..., None]
    colour = np.where(each >= 0, np.array(HOT, np.float32), np.array(COLD, np.float32))
    share = np.abs(each) * _STRONGEST
    return Image.fromarray((grey * (1 - share) + colour * share).astype(np.uint8))


class PatchGrid(msgspec.Struct, frozen=True, kw_only=True):
    """An image's patches, each of which is one token of the prompt, row by row."""

    rows: int
    columns: int
    offset: int
    """The index of the first patch's token in the prompt."""
    stride: int
    """Tokens from a patch to the patch below it."""

    def token(self, row: int, column: int) -> int:
        """Return the index of a patch's token in the prompt."""
        return self.offset + row * self.stride + column

    def box(self, row: int, column: int, size: tuple[int, int]) -> Box:
        """Return a patch's part of an image of this size."""
        wide, high = size
        left, right = (at * wide // self.columns for at in (column, column + 1))
        return left, row * high // self.rows, right, (row + 1) * high // self.rows


def patch_grid(offset: int, length: int, *, tokens: int | None = None, grid: Sequence[int] = ()) -> PatchGrid | None:
    """Return the patches of an image with these tokens of the prompt; None: unknown.

    tokens: how many of them are patches, the others separate rows. grid: rows and columns as the processor counts them,
    before it merges neighbours, after the number of frames."""
    tokens = tokens or length
    rows = columns = math.isqrt(tokens)
    if len(grid) == 3 and grid[0] == 1:
        merged = math.isqrt(grid[1] * grid[2] // tokens) or 1
        rows, columns = grid[1] // merged, grid[2] // merged
    stride = columns if length == tokens else columns + 1
    if rows * columns != tokens or not rows * stride - 1 <= length <= rows * stride:
        return None
    return PatchGrid(rows=rows, columns=columns, offset=offset, stride=stride)


def grid_of_span(span: MediaSpan) -> PatchGrid | None:
    """Return the patches of a whole image; None: unknown, or the processor made tiles."""
    return patch_grid(span.offset, span.length, tokens=span.tokens, grid=span.grid)


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment, and the images that the model sees of it."""

    attachment: Attachment
    medium: SeenMedium


async def ask_model_view(engine: Engine, prompt: Prompt, folder: Path) -> list[ModelView]:
    """Ask the engine for the images that its model sees, written into `folder`, which gets mode 0700. Raises
    VlmtuiError."""
    attachments = [item for item in attachments_of(prompt) if item.modality != "audio"]
    if not attachments:
        raise bad_input("This prompt has no images or videos.")
    require_capability(engine.info, "model_view")
    view = private_dir(folder.resolve())
    await asyncio.to_thread(_remove_old, view)
    ready = await render(engine, prompt, view=View(folder=str(view)))
    found = []
    for attachment in attachments:
        same = [item for item in attachments if item.modality == attachment.modality]
        at = next(index for index, item in enumerate(same) if item is attachment)
        medium = next(
            (one for one in ready.seen if (one.modality, one.index) == (attachment.modality, at)),
            SeenMedium(modality=attachment.modality, index=at),
        )
        found.append(ModelView(attachment=attachment, medium=medium))
    return found


def _remove_old(folder: Path) -> None:
    """Delete images of earlier views."""
    for file in folder.glob("*.png"):
        with suppress(OSError):
            if file.stat().st_mtime < time.time() - _KEPT_S:
                file.unlink()
