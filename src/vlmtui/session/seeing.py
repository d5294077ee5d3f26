"""The images that a model sees, and heat maps of the parts on which its answer depends (occlusion)."""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.capabilities import lack, require_capability
from vlmtui.domain.conversation import Attachment, Prompt, attachments_of, with_attachments
from vlmtui.domain.generation import SeenMedium, View
from vlmtui.engine.interface import Engine
from vlmtui.errors import bad_input
from vlmtui.paths import private_dir
from vlmtui.session.fan_out import MOST
from vlmtui.session.generation import render
from vlmtui.session.lanes import Lane, Lanes, scores_of, scoring_lane
from vlmtui.session.prompt_report import PromptReport, answer_tokens

if TYPE_CHECKING:
    from PIL.Image import Image

GRIDS = (4, 6, 8, 12)
"""The choices for the number of cells along the longer side."""
WINDOW = 2
"""Cells per side of a window, the part of the image that is grey in a prompt."""
_HOT, _COLD = (255, 60, 0), (0, 110, 255)
_STRONGEST = 0.75
"""Opacity of the colour in the hottest cell."""
_DIM = 0.55
"""Brightness of the image, reduced so that its own colours are not mistaken for heat."""
_KEPT_S = 3600.0
"""Seconds after which the next view deletes an earlier view's images."""


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
        """The prompts to score and their tokens, as a line for display."""
        tokens = "" if self.prompt_tokens is None else f" of {self.prompt_tokens + len(self.ids):,} tokens each"
        rows, columns = self.grid
        what = f"{rows} × {columns} cells, {WINDOW} × {WINDOW} grey at a time"
        return f"{what}: {self.requests:,} prompts{tokens}; nothing is generated."

    def words(self) -> list[tuple[str, range]]:
        """Return the answer's words, each with the range of its tokens. A token that begins with a space begins a
        word."""
        found: list[tuple[str, range]] = []
        for at, text in enumerate(self.texts):
            if found and text and not text[0].isspace():
                word, tokens = found[-1]
                found[-1] = word + text, range(tokens.start, at + 1)
            else:
                found.append((text, range(at, at + 1)))
        return [(word.strip(), tokens) for word, tokens in found]

    def box(self, window: tuple[int, int]) -> tuple[int, int, int, int]:
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


class OcclusionMap(msgspec.Struct, frozen=True, kw_only=True):
    """How much each window matters for each token of the answer."""

    plan: OcclusionPlan
    drops: tuple[tuple[float, ...], ...]
    """By window: the drop of each token's log-probability if the window is grey, in nats; negative: a rise."""

    def sums(self, tokens: range | None = None) -> list[float]:
        """Return for each window the sum of its `drops` over these tokens, by default all tokens."""
        chosen = tokens or range(len(self.plan.ids))
        return [sum(drop[at] for at in chosen if at < len(drop)) for drop in self.drops]

    def heat(self, tokens: range | None = None) -> list[list[float]]:
        """Return a number for each cell, row by row: the mean of the `sums` of all windows that cover the cell."""
        rows, columns = self.plan.grid
        covering: list[list[list[float]]] = [[[] for _ in range(columns)] for _ in range(rows)]
        for (row, column), drop in zip(self.plan.windows, self.sums(tokens), strict=True):
            for down in range(row, min(row + WINDOW, rows)):
                for across in range(column, min(column + WINDOW, columns)):
                    covering[down][across].append(drop)
        return [[sum(cell) / len(cell) for cell in cells] for cells in covering]

    def part(self, window: int | None = None, tokens: range | None = None) -> tuple[tuple[int, int, int, int], float]:
        """Return the box of a window, in pixels, and its `sums` value, in nats. `window` None: the window with the
        largest value."""
        sums = self.sums(tokens)
        at = sums.index(max(sums)) if window is None else window
        return self.plan.box(self.plan.windows[at]), sums[at]

    def as_json(self) -> dict[str, object]:
        """Return the windows' boxes in pixels, and each token's drop in nats."""
        boxes = [self.plan.box(window) for window in self.plan.windows]
        return {
            "image": {"name": self.plan.image.name, "width": self.plan.image.width, "height": self.plan.image.height},
            "tokens": [{"id": id, "text": text} for id, text in zip(self.plan.ids, self.plan.texts, strict=True)],
            "windows": [{"xyxy": box, "drop_nats": drop} for box, drop in zip(boxes, self.drops, strict=True)],
        }


def occlusion_plan(report: PromptReport, prompt: Prompt, engine: Engine) -> OcclusionPlan:
    """Return the plan for a report's answer and the last image of its prompt. Raises VlmtuiError."""
    if why := lack(engine.info, "scores"):
        raise bad_input(why)
    images = [item for item in attachments_of(prompt) if item.modality == "image"]
    if not images:
        raise bad_input("This answer's prompt has no image.")
    if not report.answer_ids:
        raise bad_input("The tokens of this answer are unknown, so it cannot be scored.", hint="Answer again first.")
    return OcclusionPlan(
        prompt=prompt,
        adapter=report.request.adapter if report.request else report.recipe.adapter if report.recipe else "",
        image=images[-1],
        ids=report.answer_ids,
        texts=tuple(token.text for token in answer_tokens(report)),
        prompt_tokens=len(report.prompt.token_ids) if report.prompt is not None else None,
    )


async def occlusion_map(
    engine: Engine, plan: OcclusionPlan, folder: Path, on_progress: Callable[[int], object] = lambda done: None
) -> OcclusionMap:
    """Score the answer under every prompt of the plan, `MOST` prompts at a time. Raises VlmtuiError.

    folder: for temporary images; gets mode 0700. on_progress: called with the number of prompts scored so far."""
    ended = 0

    def count(lane: Lane) -> None:
        nonlocal ended
        if not lane.is_running:
            ended += 1
            on_progress(ended)

    windows = [None, *plan.windows]
    found: list[list[float]] = []
    with tempfile.TemporaryDirectory(dir=private_dir(folder), ignore_cleanup_errors=True) as store:
        for at in range(0, len(windows), MOST):
            prompts = await asyncio.to_thread(_masked_prompts, plan, windows[at : at + MOST], Path(store))
            lanes = Lanes([scoring_lane(engine, prompt, plan.ids, adapter=plan.adapter) for prompt in prompts])
            found += await scores_of(lanes, count)
    whole, *masked = found
    drops = [tuple(before - after for before, after in zip(whole, one, strict=False)) for one in masked]
    return OcclusionMap(plan=plan, drops=tuple(drops))


def _masked_prompts(plan: OcclusionPlan, windows: Sequence[tuple[int, int] | None], store: Path) -> list[Prompt]:
    """Return a prompt for each window: the plan's prompt with that window grey; for the window None, the unchanged
    prompt."""
    from vlmtui.media.changed_images import occluded_image  # Pillow takes a while to import

    def masked(window: tuple[int, int]) -> Prompt:
        grey = occluded_image(plan.image, plan.box(window), store)
        # an equal image elsewhere in the prompt stays
        return with_attachments(plan.prompt, lambda item: grey if item is plan.image else item)

    return [plan.prompt if window is None else masked(window) for window in windows]


def draw_heat(picture: Image, heat: Sequence[Sequence[float]], hottest: tuple[int, int, int, int] | None) -> Image:
    """Return an RGB image, grey, with red where the answer depends on it and blue where it makes the answer less
    likely.

    heat: rows of cells; the largest magnitude gets the strongest colour. hottest: the part to outline: left, top,
    right, bottom in pixels."""
    import numpy as np
    from PIL import Image, ImageDraw

    grey = np.asarray(picture.convert("L"), np.float32)[..., None].repeat(3, axis=2) * _DIM
    cells = np.nan_to_num(np.asarray(heat, np.float32))
    most = float(np.abs(cells).max()) or 1.0
    rows = np.arange(picture.height) * cells.shape[0] // picture.height
    columns = np.arange(picture.width) * cells.shape[1] // picture.width
    each = (cells / most)[rows][:, columns][..., None]
    colour = np.where(each >= 0, np.array(_HOT, np.float32), np.array(_COLD, np.float32))
    share = np.abs(each) * _STRONGEST
    drawn = Image.fromarray((grey * (1 - share) + colour * share).astype(np.uint8))
    if hottest is not None:
        left, top, right, bottom = hottest
        box = (left, top, max(left, right - 1), max(top, bottom - 1))
        ImageDraw.Draw(drawn).rectangle(box, outline="white", width=max(1, max(picture.size) // 150))
    return drawn


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
