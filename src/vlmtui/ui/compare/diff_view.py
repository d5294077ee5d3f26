"""The differences of two prompts and of their answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from vlmtui.inspection.answer_diff import AnswerDiff, AnswerSpan
from vlmtui.inspection.prompt_diff import PromptDiff, PromptSpan
from vlmtui.inspection.tokens import Piece
from vlmtui.session.difference import Difference, TokenAt
from vlmtui.text import one_line, visible
from vlmtui.ui.compare.divergence_line import LEFT, RIGHT, shown_token
from vlmtui.ui.keys import error_text, with_keys
from vlmtui.ui.widgets.line_widget import Lines, LineWidget

_NAMES = {"chat": "the chat template", "raw": "the raw prompt"}
_COLUMN = 15
_CONTEXT = 6
"""Equal tokens shown next to a difference; an image counts as one."""
_WORDS = 400
"""Characters of an equal part of the answers up to which it is shown completely."""
_SPANS_MAX = 200


class DiffRow(msgspec.Struct, frozen=True):
    """A line of the difference. Text that does not fit wraps next to its label."""

    content: Content
    label: Content = Content()

    @property
    def plain(self) -> str:
        return self.label.plain + self.content.plain

    def lines(self, width: int) -> Lines:
        """Return the row wrapped to `width`; without a label column if that would take half of it."""
        indent = self.label.cell_length
        if not indent or indent * 2 > width:
            return Content.assemble(self.label, self.content).wrap(width)
        first, *more = self.content.wrap(width - indent) or [Content()]
        return [Content.assemble(self.label, first), *(Content.assemble(" " * indent, line) for line in more)]


class DiffText(LineWidget):
    """The lines of the difference."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Sequence[DiffRow] = ()

    def show(self, rows: Sequence[DiffRow]) -> None:
        self.rows = rows
        self.lay_out_again()

    def lines_of(self, width: int) -> Lines:
        return [line for row in self.rows for line in row.lines(max(width, 1))]


class DiffView(VerticalScroll):
    """The differences of the prompts, then of the answers."""

    DEFAULT_CSS = "DiffView { padding: 0 1; scrollbar-size-vertical: 1; }"

    def compose(self) -> ComposeResult:
        yield DiffText()

    @property
    def shown(self) -> str:
        """The text shown, without colours."""
        return "\n".join(row.plain for row in self.query_one(DiffText).rows)

    def show(self, difference: Difference) -> None:
        self.query_one(DiffText).show(difference_rows(self.app, difference))

    def tell(self, text: str) -> None:
        """Show why there is no difference."""
        self.query_one(DiffText).show([DiffRow(Content.styled(visible(text), "$muted"))])


def difference_rows(app: App[Any], difference: Difference) -> list[DiffRow]:
    """Return the difference as coloured lines."""
    if difference.problem is not None:
        problem = error_text(app, difference.problem)
        return [DiffRow(Content.assemble(("Can't compare them. ", "bold $text-warning"), problem))]
    rows = [*_prompts(difference.prompts), DiffRow(Content()), *_answers(app, difference)]
    if difference.is_stale:
        text = "This is the prompt that was sent; you edited it since. {comparison.send} sends the edited one."
        note = with_keys(app, text)
        rows = [DiffRow(Content.styled(note, "$text-warning")), DiffRow(Content()), *rows]
    return rows


def _prompts(found: PromptDiff | None) -> Iterator[DiffRow]:
    if found is None:
        yield _heading("Prompts")
        yield _muted("Compared once both prompts are rendered.")
        return
    if found.identical:
        yield _verdict("Prompts", "identical", good=True)
        count = sum(len(piece.ids) for span in found.spans for piece in span.left)
        yield _muted(f"All {count:,} tokens are identical.")
        return
    first = found.first_divergence
    place = f", in {found.first_turn} of the chat template" if found.first_turn else ""
    yield _verdict("Prompts", "different" if first is None else f"different from token {first:,} on{place}", good=False)
    for finding in found.findings:
        yield DiffRow(Content(one_line(finding)), Content.styled("• ", "bold $text-warning"))
    yield DiffRow(Content())
    yield from _spans(found.spans)


def _spans(spans: Sequence[PromptSpan]) -> Iterator[DiffRow]:
    shown = 0
    for number, span in enumerate(spans):
        if span.operation == "equal":
            yield _equal(span.left, is_first=number == 0, is_last=number == len(spans) - 1)
            continue
        if shown == _SPANS_MAX:
            yield _muted("… more differences follow.")
            return
        shown += 1
        if span.left:
            yield _tokens("− chat template", span.left, LEFT)
        if span.right:
            yield _tokens("+ raw prompt", span.right, RIGHT)


def _equal(pieces: Sequence[Piece], *, is_first: bool, is_last: bool) -> DiffRow:
    """Return the ends of an equal part next to differences; tokens between them are counted."""
    head = 0 if is_first else _CONTEXT
    tail = 0 if is_last else _CONTEXT
    if len(pieces) <= head + tail + 1:
        return _tokens("", pieces, "$muted")
    hidden = sum(len(piece.ids) for piece in pieces[head : len(pieces) - tail])
    parts: list[Content] = [_joined(pieces[:head], "$muted")] if head else []
    parts.append(Content.styled(f" ⋯ {hidden:,} equal token{'' if hidden == 1 else 's'} ⋯ ", "$faint"))
    if tail:
        parts.append(_joined(pieces[-tail:], "$muted"))
    return DiffRow(Content.assemble(*parts), _label(""))


def _tokens(label: str, pieces: Sequence[Piece], colour: str) -> DiffRow:
    return DiffRow(_joined(pieces, colour), _label(label, colour))


def _label(text: str, colour: str = "$muted") -> Content:
    return Content.styled(f"{text:{_COLUMN}} ", f"bold {colour}")


def _joined(pieces: Sequence[Piece], colour: str) -> Content:
    """Return the tokens in a row, with alternating backgrounds."""
    parts: list[tuple[str, str]] = []
    for number, piece in enumerate(pieces):
        ground = "$panel" if number % 2 else "$surface"
        text = f"[{one_line(piece.label)}]" if piece.kind == "media" else shown_token(piece.text)
        bold = "" if piece.kind == "text" else "bold "
        parts.append((text, f"{bold}{colour} on {ground}"))
    return Content.assemble(*parts)


def _answers(app: App[Any], difference: Difference) -> Iterator[DiffRow]:
    found = difference.answers
    for mode in difference.failed:
        yield DiffRow(Content.styled(f"The answer to {_NAMES[mode]} is incomplete.", "$text-warning"))
    if found is None:
        yield _heading("Answers")
        yield _muted("Compared once both answers are complete.")
        return
    if found.identical:
        yield _verdict("Answers", "identical", good=True)
        if found.first_divergence is not None:
            yield _muted(f"The text is identical; the tokens differ from token {found.first_divergence:,} on.")
    else:
        at = found.first_divergence
        yield _verdict("Answers", "different" if at is None else f"different from token {at:,} on", good=False)
        legend = Content.assemble(("chat only", f"strike {LEFT}"), "  ", ("raw only", f"underline {RIGHT}"))
        yield DiffRow(legend)
        yield DiffRow(Content())
        yield DiffRow(_words(found))
    yield from _divergence(app, difference)


def _words(found: AnswerDiff) -> Content:
    parts: list[Content] = []
    for span in found.spans:
        match span.operation:
            case "equal":
                parts.append(Content(visible(_shortened(span.left))))
            case _:
                parts += _changed(span)
    return Content.assemble(*parts)


def _changed(span: AnswerSpan) -> Iterator[Content]:
    for text, style in ((span.left, f"strike {LEFT}"), (span.right, f"underline {RIGHT}")):
        if text:
            shown = visible(text) if text.strip() else shown_token(text).replace("↵", "↵\n")
            yield Content.styled(shown, style)


def _shortened(text: str) -> str:
    if len(text) <= _WORDS:
        return text
    half = _WORDS // 2
    return f"{text[:half]} ⋯ {len(text) - 2 * half:,} equal characters ⋯ {text[-half:]}"


def _divergence(app: App[Any], difference: Difference) -> Iterator[DiffRow]:
    found = difference.divergence
    if found is None:
        return
    yield DiffRow(Content())
    yield _heading(f"First differing token: {found.index:,}")
    for label, colour, token in (("chat template", LEFT, found.left), ("raw prompt", RIGHT, found.right)):
        yield DiffRow(Content.assemble(*_token(token)), _label(label, colour))
        if token is not None and token.top:
            likely = "  ".join(f"{shown_token(text)} {math.exp(logprob):.1%}" for text, logprob in token.top)
            yield DiffRow(Content(likely), Content.styled(f"{'likeliest':>{_COLUMN}} ", "$muted"))
    if not any(token is not None and token.logprob is not None for token in (found.left, found.right)):
        if difference.is_stored:
            yield _muted("This comparison was stored without log-probabilities.")
        else:
            hint = "Turn on log-probabilities ({comparison.logprobs}) and send again to compare them here."
            yield _muted(with_keys(app, hint))


def _token(token: TokenAt | None) -> Iterator[str | tuple[str, str]]:
    if token is None:
        yield ("end of the answer", "$muted")
        return
    yield (shown_token(token.text), "bold on $panel")
    if token.logprob is not None:
        yield (f"  log-probability {token.logprob:.3f} ({math.exp(token.logprob):.1%})", "$muted")


def _heading(text: str) -> DiffRow:
    return DiffRow(Content.styled(text, "bold $accent"))


def _muted(text: str) -> DiffRow:
    return DiffRow(Content.styled(text, "$muted"))


def _verdict(what: str, verdict: str, *, good: bool) -> DiffRow:
    shown = (verdict, f"bold {'$text-success' if good else '$text-warning'}")
    return DiffRow(Content.assemble((f"{what}: ", "bold $accent"), shown))
