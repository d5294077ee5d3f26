"""Which part of a picture carries an answer: the answer is scored with one cell after another greyed out.

What is measured is how much less likely the answer's tokens become, in nats (natural logarithm of the ratio). This is
the occlusion sensitivity of Zeiler and Fergus, "Visualizing and Understanding Convolutional Networks", 2014.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.capabilities import lack
from vlmtui.domain.conversation import Media, Part, Turn
from vlmtui.domain.prompt import ChatPrompt, Prompt, attachments_of
from vlmtui.engine.interface import Engine
from vlmtui.errors import bad_input
from vlmtui.media.changed_images import occluded_image
from vlmtui.paths import private_dir
from vlmtui.session.likelihood import score_answer
from vlmtui.session.prompt_report import PromptReport, answer_tokens

GRIDS = (4, 6, 8, 12)
"""Cells along the longer side that can be chosen."""
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
    longer: int = 8

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns; cells are as square as possible."""
        wide, high = self.image.width, self.image.height
        shorter = max(1, round(self.longer * min(wide, high) / max(wide, high)))
        return (shorter, self.longer) if wide >= high else (self.longer, shorter)

    @property
    def requests(self) -> int:
        """Number of prompts that will be scored: one with the whole picture, and one a cell."""
        return 1 + self.grid[0] * self.grid[1]

    @property
    def cost(self) -> str:
        """One line for people."""
        tokens = "" if self.prompt_tokens is None else f" of {self.prompt_tokens + len(self.ids):,} tokens each"
        rows, columns = self.grid
        return f"{rows} × {columns} cells: {self.requests:,} prompts{tokens}; nothing is generated."

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

    def box(self, row: int, column: int) -> tuple[int, int, int, int]:
        """Return left, top, right and bottom of a cell in pixels of the picture."""
        rows, columns = self.grid
        wide, high = self.image.width, self.image.height
        return (
            column * wide // columns,
            row * high // rows,
            (column + 1) * wide // columns,
            (row + 1) * high // rows,
        )


class OcclusionMap(msgspec.Struct, frozen=True, kw_only=True):
    """How much each cell matters for each token of the answer."""

    plan: OcclusionPlan
    drops: tuple[tuple[float, ...], ...]
    """For each cell, row by row: how many nats less likely each token is without it; negative: more likely."""

    def heat(self, tokens: range | None = None) -> list[list[float]]:
        """Return rows of the cells' drops over some tokens, by default the whole answer."""
        rows, columns = self.plan.grid
        chosen = tokens or range(len(self.plan.ids))
        sums = [sum(drop[at] for at in chosen if at < len(drop)) for drop in self.drops]
        return [sums[row * columns : (row + 1) * columns] for row in range(rows)]

    def hottest(self, tokens: range | None = None) -> tuple[int, int]:
        """Return row and column of the cell that matters most."""
        heat = self.heat(tokens)
        return max(
            ((row, column) for row, cells in enumerate(heat) for column in range(len(cells))),
            key=lambda cell: heat[cell[0]][cell[1]],
        )


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
    rows, columns = plan.grid
    places = asyncio.Semaphore(_AT_ONCE)
    done = 0

    async def scored(box: tuple[int, int, int, int] | None, store: Path) -> list[float]:
        nonlocal done
        async with places:
            prompt = plan.prompt
            if box is not None:
                grey = await asyncio.to_thread(occluded_image, plan.image, box, store)
                prompt = with_image(prompt, plan.image, grey)
            found = [one.logprob for one in await score_answer(engine, prompt, plan.ids)]
        done += 1
        on_progress(done)
        return found

    boxes = [None, *(plan.box(row, column) for row in range(rows) for column in range(columns))]
    with tempfile.TemporaryDirectory(dir=private_dir(folder), ignore_cleanup_errors=True) as store:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(scored(box, Path(store))) for box in boxes]
    whole, *cells = [task.result() for task in tasks]
    return OcclusionMap(plan=plan, drops=tuple(_drops(whole, cell) for cell in cells))


def with_image(prompt: Prompt, old: Attachment, new: Attachment) -> Prompt:
    """Return the prompt with an attachment exchanged."""
    if not isinstance(prompt, ChatPrompt):
        attachments = tuple(new if item is old else item for item in prompt.attachments)
        return msgspec.structs.replace(prompt, attachments=attachments)

    def changed(part: Part) -> Part:
        return Media(new) if isinstance(part, Media) and part.attachment is old else part

    turns = tuple(Turn(turn.role, tuple(changed(part) for part in turn.parts)) for turn in prompt.turns)
    return msgspec.structs.replace(prompt, turns=turns)


def _drops(whole: Sequence[float], cell: Sequence[float]) -> tuple[float, ...]:
    return tuple(before - after for before, after in zip(whole, cell, strict=False))
