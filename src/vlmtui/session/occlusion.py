"""Which part of a picture carries an answer: the answer is scored with one part after another greyed out.

The parts are windows of 2 × 2 cells of a grid, each moved by one cell: a part must be as large as what is looked for,
or enough of that stays to be seen. A cell's heat is the mean of the windows that cover it.

What is measured is how much less likely the answer's tokens become, in nats (natural logarithm of the ratio). This is
the occlusion sensitivity of Zeiler and Fergus, "Visualizing and Understanding Convolutional Networks", 2014.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.capabilities import lack
from vlmtui.domain.conversation import Media, Part, Turn
from vlmtui.domain.prompt import ChatPrompt, Prompt, attachments_of
from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.paths import private_dir
from vlmtui.session.likelihood import score_answer
from vlmtui.session.prompt_report import PromptReport, answer_tokens

GRIDS = (4, 6, 8, 12)
"""Cells along the longer side that can be chosen."""
WINDOW = 2
"""Cells per side that are grey at a time."""
_AT_ONCE = 4
"""Requests under way at the same time."""


class OcclusionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be measured, and what it costs."""

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
        """Row and column of each window's first cell, row by row."""
        rows, columns = self.grid
        return [(row, column) for row in range(max(1, rows - 1)) for column in range(max(1, columns - 1))]

    @property
    def requests(self) -> int:
        """Number of prompts that will be scored: one with the whole picture, and one a window."""
        return 1 + len(self.windows)

    @property
    def cost(self) -> str:
        """One line for people."""
        tokens = "" if self.prompt_tokens is None else f" of {self.prompt_tokens + len(self.ids):,} tokens each"
        rows, columns = self.grid
        what = f"{rows} × {columns} cells, {WINDOW} × {WINDOW} grey at a time"
        return f"{what}: {self.requests:,} prompts{tokens}; nothing is generated."

    def words(self) -> list[tuple[str, range]]:
        """Return the answer's words, each with its tokens. A token that begins with a space begins a word."""
        found: list[tuple[str, range]] = []
        for at, text in enumerate(self.texts):
            if found and text and not text[0].isspace():
                word, tokens = found[-1]
                found[-1] = word + text, range(tokens.start, at + 1)
            else:
                found.append((text, range(at, at + 1)))
        return [(word.strip(), tokens) for word, tokens in found]

    def box(self, window: tuple[int, int]) -> tuple[int, int, int, int]:
        """Return left, top, right and bottom of a window in pixels of the picture."""
        rows, columns = self.grid
        wide, high = self.image.width, self.image.height
        row, column = window
        right, bottom = min(column + WINDOW, columns), min(row + WINDOW, rows)
        return column * wide // columns, row * high // rows, right * wide // columns, bottom * high // rows

    def window_at(self, x: float, y: float) -> int:
        """Return the index of the window whose middle is nearest to a place of the picture, in pixels."""

        def away(at: int) -> float:
            left, top, right, bottom = self.box(self.windows[at])
            return math.hypot((left + right) / 2 - x, (top + bottom) / 2 - y)

        return min(range(len(self.windows)), key=away)


class OcclusionMap(msgspec.Struct, frozen=True, kw_only=True):
    """How much each window matters for each token of the answer."""

    plan: OcclusionPlan
    drops: tuple[tuple[float, ...], ...]
    """For each window: how many nats less likely each token is without it; negative: more likely."""

    def sums(self, tokens: range | None = None) -> list[float]:
        """Return each window's drop over some tokens, by default the whole answer."""
        chosen = tokens or range(len(self.plan.ids))
        return [sum(drop[at] for at in chosen if at < len(drop)) for drop in self.drops]

    def heat(self, tokens: range | None = None) -> list[list[float]]:
        """Return rows of cells, each the mean of the windows that cover it."""
        rows, columns = self.plan.grid
        covering: list[list[list[float]]] = [[[] for _ in range(columns)] for _ in range(rows)]
        for (row, column), drop in zip(self.plan.windows, self.sums(tokens), strict=True):
            for down in range(row, min(row + WINDOW, rows)):
                for across in range(column, min(column + WINDOW, columns)):
                    covering[down][across].append(drop)
        return [[sum(cell) / len(cell) for cell in cells] for cells in covering]

    def hottest(self, tokens: range | None = None) -> tuple[tuple[int, int, int, int], float]:
        """Return the box of the window that matters most, in pixels, and its drop in nats."""
        sums = self.sums(tokens)
        return self.part(sums.index(max(sums)), tokens)

    def part(self, window: int, tokens: range | None = None) -> tuple[tuple[int, int, int, int], float]:
        """Return the box of a window, in pixels, and its drop in nats."""
        return self.plan.box(self.plan.windows[window]), self.sums(tokens)[window]

    def as_json(self) -> dict[str, object]:
        """Return all numbers: the windows' boxes in pixels, and each token's drop in nats."""
        boxes = [self.plan.box(window) for window in self.plan.windows]
        return {
            "image": {"name": self.plan.image.name, "width": self.plan.image.width, "height": self.plan.image.height},
            "tokens": [{"id": id, "text": text} for id, text in zip(self.plan.ids, self.plan.texts, strict=True)],
            "windows": [{"xyxy": box, "drop_nats": drop} for box, drop in zip(boxes, self.drops, strict=True)],
        }


def first_error(errors: BaseExceptionGroup[BaseException]) -> VlmtuiError:
    """Return the first error of a measurement that failed. Raises the group if it has none of ours."""
    ours = errors.subgroup(VlmtuiError)
    if ours is None:
        raise errors
    error: BaseException = ours
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, VlmtuiError)
    return error


def occlusion_plan(report: PromptReport, prompt: Prompt, engine: Engine) -> OcclusionPlan:
    """Return the plan for a report's answer and the last image of its prompt.

    Raises VlmtuiError if there is no image or no answer with known tokens, or the engine cannot score.
    """
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
    """Score the answer under every prompt of the plan. `folder` is private; what is written there is deleted again.
    `on_progress` gets the number of prompts scored. Raises VlmtuiError; cancelling the task ends all requests."""
    from vlmtui.media.changed_images import occluded_image  # Pillow takes a while to import

    places = asyncio.Semaphore(_AT_ONCE)
    done = 0

    async def scored(box: tuple[int, int, int, int] | None, store: Path) -> list[float]:
        nonlocal done
        async with places:
            prompt = plan.prompt
            if box is not None:
                grey = await asyncio.to_thread(occluded_image, plan.image, box, store)
                prompt = with_image(prompt, plan.image, grey)
            found = [one.logprob for one in await score_answer(engine, prompt, plan.ids, adapter=plan.adapter)]
        done += 1
        on_progress(done)
        return found

    boxes = [None, *(plan.box(window) for window in plan.windows)]
    with tempfile.TemporaryDirectory(dir=private_dir(folder), ignore_cleanup_errors=True) as store:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(scored(box, Path(store))) for box in boxes]
    whole, *windows = [task.result() for task in tasks]
    return OcclusionMap(plan=plan, drops=tuple(_drops(whole, window) for window in windows))


def with_image(prompt: Prompt, old: Attachment, new: Attachment) -> Prompt:
    """Return the prompt with an attachment exchanged."""
    if not isinstance(prompt, ChatPrompt):
        attachments = tuple(new if item is old else item for item in prompt.attachments)
        return msgspec.structs.replace(prompt, attachments=attachments)

    def changed(part: Part) -> Part:
        return Media(new) if isinstance(part, Media) and part.attachment is old else part

    turns = tuple(Turn(turn.role, tuple(changed(part) for part in turn.parts)) for turn in prompt.turns)
    return msgspec.structs.replace(prompt, turns=turns)


def _drops(whole: Sequence[float], window: Sequence[float]) -> tuple[float, ...]:
    return tuple(before - after for before, after in zip(whole, window, strict=False))
