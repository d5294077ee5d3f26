"""A comparison's prompts and answers as runs of styled text, with the differences marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Protocol, TypeVar

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.inspection.answer_diff import answer_diff
from vlmtui.inspection.build import tokens_of
from vlmtui.inspection.prompt_diff import prompt_diff
from vlmtui.inspection.replay import Comparison
from vlmtui.inspection.sequence_diff import Operation
from vlmtui.inspection.tokens import Piece

Style = Literal["text", "special", "media"]
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_SPECIAL = re.compile(r"<\|[^\s<>|]{1,80}\|>|<｜[^\s<>｜]{1,80}｜>|</?s>|\[/?INST\]|<(?:start|end)_of_[a-z]+>")


class Run(msgspec.Struct, frozen=True):
    """Text of one style. Hostile."""

    text: str
    style: Style = "text"
    differs: bool = False


class _Span(Protocol[T_co]):
    """A span of a prompt diff or an answer diff."""

    @property
    def operation(self) -> Operation: ...

    @property
    def left(self) -> T_co: ...

    @property
    def right(self) -> T_co: ...


def prompt_runs(comparison: Comparison) -> list[list[Run]]:
    """Return every side's prompt: by tokens, each image as one, if all sides have token texts; otherwise by words.

    Of two sides, both are marked where they differ; of more, each but the first where it differs from the first.
    """
    sides = comparison.sides
    if not all(side.prompt_token_texts for side in sides):
        return _by_words([side.prompt for side in sides])
    attachments = _attachments(comparison)
    return _compared_with_first(
        [tokens_of(side, attachments) for side in sides],
        lambda prompt: _joined(_of_pieces(prompt.pieces(), False)),
        lambda left, right: _marked(prompt_diff(left, right).spans, _of_pieces),
    )


def answer_runs(comparison: Comparison) -> list[list[Run]]:
    """Return every side's answer, by words; marked as in `prompt_runs`."""
    return _by_words([side.answer for side in comparison.sides])


def _compared_with_first(
    items: Sequence[T], alone: Callable[[T], list[Run]], marked: Callable[[T, T], tuple[list[Run], list[Run]]]
) -> list[list[Run]]:
    first, *others = items
    if len(others) == 1:
        return list(marked(first, others[0]))
    return [alone(first), *(marked(first, other)[1] for other in others)]


def _attachments(comparison: Comparison) -> tuple[Attachment, ...]:
    """Rebuild the attachments, with just what names and compares their tokens."""
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
    return _compared_with_first(
        texts,
        lambda text: _joined(list(_of_text(text, False))),
        lambda left, right: _marked(answer_diff(left, right).spans, _of_text),
    )


def _marked(spans: Sequence[_Span[T]], runs_of: Callable[[T, bool], Iterable[Run]]) -> tuple[list[Run], list[Run]]:
    """Return both sides of `spans` as runs."""
    return (
        _joined([run for span in spans for run in runs_of(span.left, span.operation != "equal")]),
        _joined([run for span in spans for run in runs_of(span.right, span.operation != "equal")]),
    )


def _of_text(text: str, differs: bool) -> Iterator[Run]:
    position = 0
    for match in _SPECIAL.finditer(text):
        yield Run(text[position : match.start()], "text", differs)
        yield Run(match[0], "special", differs)
        position = match.end()
    yield Run(text[position:], "text", differs)


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Merge neighbours of one style, keeping special tokens and images apart; drop empty runs."""
    joined: list[Run] = []
    for run in runs:
        last = joined[-1] if joined else None
        if last and run.style == last.style == "text" and run.differs == last.differs:
            joined[-1] = Run(last.text + run.text, "text", run.differs)
        elif run.text:
            joined.append(run)
    return joined
