"""A comparison's prompts and answers as runs of text to be set, the differences marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from vlmtui.domain.attachment import Attachment
from vlmtui.inspection.answer_diff import answer_diff
from vlmtui.inspection.prompt_diff import PromptTokens, prompt_diff
from vlmtui.inspection.replay import Comparison, Side
from vlmtui.inspection.tokens import Piece, pieces_of

Style = Literal["text", "special", "media"]

_SPECIAL = re.compile(r"<\|[^\s<>|]{1,80}\|>|<｜[^\s<>｜]{1,80}｜>|</?s>|\[/?INST\]|<(?:start|end)_of_[a-z]+>")


@dataclass(frozen=True, slots=True)
class Run:
    """Text of one style. Hostile, as it was."""

    text: str
    style: Style = "text"
    differs: bool = False


def prompt_runs(comparison: Comparison) -> list[list[Run]]:
    """Every side's prompt: by tokens, images as one, where all sides have their token texts; else by words."""
    sides = comparison.sides
    if not all(side.prompt_token_texts for side in sides):
        return _by_words([side.prompt for side in sides])
    prompts = [_tokens(comparison, side) for side in sides]
    if len(prompts) == 1:
        one = prompts[0]
        return [_joined(_of_pieces(pieces_of(one.ids, one.texts, one.special_ids, one.media, one.attachments), False))]
    left: list[Run] = []
    right: list[Run] = []
    for span in prompt_diff(*prompts).spans:
        left += _of_pieces(span.left, span.operation != "equal")
        right += _of_pieces(span.right, span.operation != "equal")
    return [_joined(left), _joined(right)]


def answer_runs(comparison: Comparison) -> list[list[Run]]:
    """Every side's answer, by words."""
    return _by_words([side.answer for side in comparison.sides])


def _tokens(comparison: Comparison, side: Side) -> PromptTokens:
    return PromptTokens(
        ids=side.prompt_token_ids,
        texts=side.prompt_token_texts,
        special_ids=frozenset(comparison.special_token_ids),
        media=side.media,
        attachments=_attachments(comparison),
    )


def _attachments(comparison: Comparison) -> tuple[Attachment, ...]:
    """As much of the attachments as names and compares their tokens."""
    return tuple(
        Attachment(
            modality=item.modality, name=item.name, path="", sha256=item.sha256, width=0, height=0, size_bytes=0,
            format="",
        )
        for item in comparison.attachments
    )  # fmt: skip


def _of_pieces(pieces: Sequence[Piece], differs: bool) -> list[Run]:
    return [Run(piece.label if piece.kind == "media" else piece.text, piece.kind, differs) for piece in pieces]


def _by_words(texts: Sequence[str]) -> list[list[Run]]:
    if len(texts) != 2:
        return [_joined(list(_of_text(text, False))) for text in texts]
    spans = answer_diff(texts[0], texts[1]).spans
    return [
        _joined([run for span in spans for run in _of_text(getattr(span, side), span.operation != "equal")])
        for side in ("left", "right")
    ]


def _of_text(text: str, differs: bool) -> Iterator[Run]:
    position = 0
    for match in _SPECIAL.finditer(text):
        yield Run(text[position : match.start()], "text", differs)
        yield Run(match[0], "special", differs)
        position = match.end()
    yield Run(text[position:], "text", differs)


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Neighbours of one style as one, special tokens and images alone; without empty ones."""
    joined: list[Run] = []
    for run in runs:
        last = joined[-1] if joined else None
        if last and run.style == last.style == "text" and run.differs == last.differs:
            joined[-1] = Run(last.text + run.text, "text", run.differs)
        elif run.text:
            joined.append(run)
    return joined
