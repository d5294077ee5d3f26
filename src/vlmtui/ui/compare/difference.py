"""The differences of two prompts and of their answers: as a document, and the first one in a line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from textual.app import App
from textual.content import Content

from vlmtui.inspection.answer_diff import AnswerDiff, AnswerSpan
from vlmtui.inspection.prompt_diff import PromptDiff, PromptSpan
from vlmtui.inspection.tokens import Piece
from vlmtui.session.comparison import Difference, TokenAt
from vlmtui.text import one_line, visible
from vlmtui.ui.document.blocks import TextBlock
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.keys import error_text, with_keys

LEFT = "$text-error"
"""The colour of a text that only the chat template's side has."""
RIGHT = "$text-success"
"""The colour of a text that only the raw prompt's side has."""
_SPACES = str.maketrans({"\n": "↵", "\t": "⇥", "\r": "␍", " ": "·"})
_NAMES = {"chat": "the chat template", "raw": "the raw prompt"}
_COLUMN = 15
_CONTEXT = 6
"""Equal tokens shown next to a difference; an image counts as one."""
_WORDS = 400
"""Characters of an equal part of the answers up to which it is shown completely."""
_SPANS_MAX = 200


class DiffView(DocumentView, can_focus=True):
    """The differences of the prompts, then of the answers."""

    DEFAULT_CSS = "DiffView { padding: 0 1; }"

    def __init__(self, *, id: str) -> None:
        super().__init__(has_edge=False, id=id)

    def show_difference(self, difference: Difference) -> None:
        self.show(*_blocks(self.app, difference))


def _blocks(app: App[Any], difference: Difference) -> Iterator[TextBlock]:
    if difference.problem is not None:
        problem = error_text(app, difference.problem)
        yield TextBlock(Content.assemble(("Can't compare them. ", "bold $text-warning"), problem))
        return
    if difference.is_stale:
        text = "This is the prompt that was sent; you edited it since. {comparison.send} sends the edited one."
        yield TextBlock(Content.styled(with_keys(app, text), "$text-warning"))
    yield from _prompts(difference.prompts)
    yield from _answers(app, difference)


def _prompts(found: PromptDiff | None) -> Iterator[TextBlock]:
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
        yield TextBlock(one_line(finding), label=Content.styled("• ", "bold $text-warning"))
    for number, block in enumerate(_spans(found.spans)):
        block.margin = int(number == 0)
        yield block


def _spans(spans: Sequence[PromptSpan]) -> Iterator[TextBlock]:
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


def _equal(pieces: Sequence[Piece], *, is_first: bool, is_last: bool) -> TextBlock:
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
    return TextBlock(Content.assemble(*parts), label=_label(""))


def _tokens(label: str, pieces: Sequence[Piece], colour: str) -> TextBlock:
    return TextBlock(_joined(pieces, colour), label=_label(label, colour))


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


def _answers(app: App[Any], difference: Difference) -> Iterator[TextBlock]:
    found = difference.answers
    for number, mode in enumerate(difference.failed):
        note = Content.styled(f"The answer to {_NAMES[mode]} is incomplete.", "$text-warning")
        yield TextBlock(note, margin=int(number == 0))
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
        yield TextBlock(legend)
        yield TextBlock(_words(found), margin=1)
    yield from _divergence(app, difference)


def _words(found: AnswerDiff) -> Content:
    parts: list[Content] = []
    for span in found.spans:
        if span.operation == "equal":
            parts.append(Content(visible(_shortened(span.left))))
        else:
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


def _divergence(app: App[Any], difference: Difference) -> Iterator[TextBlock]:
    found = difference.divergence
    if found is None:
        return
    yield _heading(f"First differing token: {found.index:,}")
    for label, colour, token in (("chat template", LEFT, found.left), ("raw prompt", RIGHT, found.right)):
        yield TextBlock(Content.assemble(*_token(token)), label=_label(label, colour))
        if token is not None and token.top:
            likely = "  ".join(f"{shown_token(text)} {math.exp(logprob):.1%}" for text, logprob in token.top)
            yield TextBlock(likely, label=Content.styled(f"{'likeliest':>{_COLUMN}} ", "$muted"))
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


def _heading(text: str) -> TextBlock:
    return TextBlock(Content.styled(text, "bold $accent"), margin=1)


def _muted(text: str) -> TextBlock:
    return TextBlock(Content.styled(text, "$muted"))


def _verdict(what: str, verdict: str, *, good: bool) -> TextBlock:
    shown = (verdict, f"bold {'$text-success' if good else '$text-warning'}")
    return TextBlock(Content.assemble((f"{what}: ", "bold $accent"), shown), margin=1)


def divergence_line(difference: Difference) -> Content:
    """Return `First difference: token 4 · chat blue 91% (red 4%) · raw red 88% (blue 2%)`; empty while there is
    nothing to compare. Probabilities are included if they were requested."""
    found, answers = difference.divergence, difference.answers
    if answers is None or difference.failed:
        return Content()
    if found is None:
        same = "Answers: identical" if answers.identical else ""
        return Content.styled(same, "$text-success")
    return Content.assemble(
        (f"First difference: token {found.index:,}", "bold"),
        ("  chat ", "$muted"),
        *_divergent(found.left, found.right, LEFT),
        ("   raw ", "$muted"),
        *_divergent(found.right, found.left, RIGHT),
    )


def shown_token(text: str) -> str:
    """Return a token on one line, with white space visible, also if it is empty."""
    return one_line(text.translate(_SPACES)) or "∅"


def _divergent(token: TokenAt | None, other: TokenAt | None, colour: str) -> list[tuple[str, str]]:
    """Return a side's token, and the probability of the other side's."""
    if token is None:
        return [("ended", "$muted")]
    parts = [(shown_token(token.text), f"bold {colour} on $panel")]
    if token.logprob is not None:
        parts.append((f" {math.exp(token.logprob):.0%}", ""))
        given = next((logprob for text, logprob in token.top if other is not None and text == other.text), None)
        if other is not None:
            known = f"{math.exp(given):.0%}" if given is not None else "unlikely"
            parts.append((f" ({shown_token(other.text)} {known})", "$muted"))
    return parts
