"""An item on its way through a batch, and what became of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Finished, GenerateRequest
from vlmtui.session.answer_json import answer_json, tokens_json
from vlmtui.session.batch.item import BadItem, BatchItem
from vlmtui.session.batch.output import ResultLine
from vlmtui.session.batch.scoring import is_expected
from vlmtui.session.generation import Answer, PromptMode

INCLUDES = ("prompt", "token_ids", "logprobs", "media")
"""What a line may have besides."""


@dataclass(slots=True, eq=False)
class Work:
    """An item that is ready to be sent."""

    item: BatchItem
    key: str
    request: GenerateRequest
    attachments: tuple[Attachment, ...]
    tokens: int
    """Room that it takes among what is prepared ahead: tokens, and bytes."""
    size: int
    interruptions: int = 0
    """How often the engine died while it had this item, perhaps among others."""
    lone_deaths: int = 0
    """How often it died while it had this item alone."""
    failures: int = 0
    """How often it failed for a reason that may not come again."""


@dataclass(slots=True, eq=False)
class ItemResult:
    """What became of an item: an answer, or a failure."""

    item: BatchItem | BadItem
    key: str
    answer: Answer | None = None
    failure: Failure | None = None
    work: Work | None = None
    correct: bool | None = field(init=False, default=None)
    """Whether the answer is the expected one; None if nothing is expected."""

    ended: float = field(init=False, default_factory=time.time)

    def __post_init__(self) -> None:
        if isinstance(self.item, BatchItem) and self.item.expect is not None:
            said = self.answer.text if self.answer is not None and self.failure is None else None
            self.correct = said is not None and is_expected(said, self.item.expect)

    @property
    def id(self) -> str | None:
        return self.item.id


class LineWriter(msgspec.Struct, frozen=True):
    """Writes results as JSON. model: its name. include: some of `INCLUDES`."""

    model: str
    mode: PromptMode
    include: frozenset[str] = frozenset()

    def write(self, result: ItemResult) -> ResultLine:
        """Return the line of a result."""
        item, answer = result.item, result.answer
        value: dict[str, object] = {"id": result.id, "line": item.line, "key": result.key}
        if isinstance(item, BatchItem):
            value["question"] = item.question
            value["mode"] = "raw" if item.raw is not None else self.mode
        if answer is not None:
            value |= self._answer(answer)
        if result.work is not None and "media" in self.include:
            value["media"] = [_medium(one) for one in result.work.attachments]
        if isinstance(item, BatchItem) and item.expect is not None:
            value |= {"expect": msgspec.to_builtins(item.expect), "correct": result.correct}
        value["ended"] = round(result.ended, 3)
        value["error"] = None if result.failure is None else msgspec.to_builtins(result.failure)
        data = msgspec.json.encode(value)
        return ResultLine(result.id, item.line, result.key, result.failure is not None, data)

    def _answer(self, answer: Answer) -> dict[str, object]:
        found = answer_json(self.model, answer, 0.0)
        del found["prompt"]
        if "prompt" in self.include:
            found["prompt"] = answer.prompt.prompt if answer.prompt else None
        tokens = tokens_json(answer)
        if "token_ids" in self.include:
            found |= {name: value for name, value in tokens.items() if name != "logprobs"}
        if answer.logprobs:
            found["logprobs"] = tokens["logprobs"]
        return found


def has_answer(answer: Answer) -> bool:
    """Whether an answer is complete."""
    return isinstance(answer.outcome, Finished)


def _medium(attachment: Attachment) -> dict[str, object]:
    return {
        "modality": attachment.modality,
        "name": attachment.name,
        "source": attachment.source,
        "sha256": attachment.sha256,
        "width": attachment.width,
        "height": attachment.height,
        "notes": list(attachment.notes),
    }
