"""The answers of a comparison, the thumbnails of its attachments, and the view of the differences."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from textual.app import App, ComposeResult
from textual.containers import HorizontalScroll, Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import Failure, PromptReady
from vlmtui.inspection.answer_diff import AnswerDiff
from vlmtui.inspection.prompt_diff import PromptDiff, PromptSpan
from vlmtui.inspection.tokens import Piece, attachment_of
from vlmtui.session.answer_line import answer_line
from vlmtui.session.comparison import Difference, TokenAt
from vlmtui.session.generation import Answer, waiting_line
from vlmtui.text import counted, nats, one_line, token_place, visible
from vlmtui.ui.document.blocks import PlainBlock, TextBlock
from vlmtui.ui.document.view import INTERVAL_S, DocumentView
from vlmtui.ui.keys import error_text, with_keys
from vlmtui.ui.widgets.attachment_view import AttachmentView

if TYPE_CHECKING:
    from vlmtui.ui.app import VlmtuiApp

TALL = 30
"""Screen rows from which on attachments have thumbnails."""
_ROWS = ((40, 6), (TALL, 3))
"""Minimum screen rows, and the rows of a thumbnail on screens of this height."""
LEFT = "$text-error"
"""The colour of text that is only on the chat template's side."""
RIGHT = "$text-success"
"""The colour of text that is only on the raw prompt's side."""
_SPACES = str.maketrans({"\n": "↵", "\t": "⇥", "\r": "␍", " ": "·"})
_NAMES = {"chat": "the chat template", "raw": "the raw prompt"}
_COLUMN = 15
_CONTEXT = 6
"""Equal tokens shown on each side of a difference; an image counts as one token."""
_WORDS = 400
"""Maximum characters of equal text in both answers that are shown completely."""
_SPANS_MAX = 200
_COUNT_EVERY_S = 0.5
"""Interval in seconds between updates of the number of tokens."""
_ROOM = 4
"""Rows by which the pane of a streaming answer grows, since the screen's layout is computed again each time."""
_DETAIL_MAX = 400


class PictureStrip(HorizontalScroll, can_focus=False):
    """Thumbnails with their numbers, names, sizes and tokens. Hidden on a low screen, or without attachments."""

    DEFAULT_CSS = """
    PictureStrip {
        display: none;
        height: auto;
        padding: 0 1;
        scrollbar-size-horizontal: 0;
        & > AttachmentView { width: 40; margin-right: 2; }
    }
    """

    def __init__(self, attachments: Sequence[Attachment]) -> None:
        super().__init__()
        self._attachments = tuple(attachments)
        self._rows = 0
        self._tokens: dict[str, int] = {}
        """Tokens by the attachment's SHA-256."""

    def compose(self) -> ComposeResult:
        if not self._rows:
            return
        cache = cast("VlmtuiApp", self.app).services.paths.thumbnails
        for number, item in enumerate(self._attachments, 1):
            view = AttachmentView(item, number, cache=cache, columns=2 * self._rows + 8, rows=self._rows)
            view.tell_tokens(self._tokens.get(item.sha256))
            yield view

    async def show(self, attachments: Sequence[Attachment]) -> None:
        if tuple(attachments) != self._attachments:
            self._attachments = tuple(attachments)
            await self.recompose()

    async def fit(self, height: int) -> None:
        """Choose how many rows the thumbnails take on a screen of `height` rows."""
        rows = next((rows for least, rows in _ROWS if height >= least), 0) if self._attachments else 0
        self.display = bool(rows)
        if rows != self._rows:
            self._rows = rows
            await self.recompose()

    def tell_tokens(self, prompt: PromptReady, sent: Sequence[Attachment]) -> None:
        """Show the tokens of each attachment in this prompt. `sent`: the prompt's attachments."""
        for span in prompt.media:
            if (item := attachment_of(span, sent)) is not None:
                self._tokens[item.sha256] = span.tokens
        for view in self.query(AttachmentView):
            view.tell_tokens(self._tokens.get(view.attachment.sha256))


def difference_blocks(app: App[Any], difference: Difference) -> Iterator[TextBlock]:
    """Yield the differences of the prompts, then of the answers."""
    if difference.problem is not None:
        yield TextBlock(Content.styled(error_text(app, difference.problem), "$text-warning"))
        return
    if difference.is_stale:
        text = "The answers are to the raw prompt before your edit. {comparison.send} sends the edited one."
        yield TextBlock(Content.styled(with_keys(app, text), "$text-warning"))
    yield from _prompts(difference.prompts)
    yield from _answers(difference)


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
    yield _verdict("Prompts", "different" if first is None else f"different from {token_place(first)} on", good=False)
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
    """Return a block for tokens that both sides have in common: the tokens next to differences, and only the number of
    those between."""
    head = 0 if is_first else _CONTEXT
    tail = 0 if is_last else _CONTEXT
    if len(pieces) <= head + tail + 1:
        return _tokens("", pieces, "$muted")
    hidden = sum(len(piece.ids) for piece in pieces[head : len(pieces) - tail])
    parts: list[Content] = [_joined(pieces[:head], "$muted")] if head else []
    parts.append(Content.styled(f" ⋯ {counted(hidden, 'equal token')} ⋯ ", "$faint"))
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


def _answers(difference: Difference) -> Iterator[TextBlock]:
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
            yield _muted(f"The text is identical; the tokens differ from {token_place(found.first_divergence)} on.")
    else:
        at = found.first_divergence
        yield _verdict("Answers", "different" if at is None else f"different from {token_place(at)} on", good=False)
        legend = Content.assemble(("chat only", f"strike {LEFT}"), "  ", ("raw only", f"underline {RIGHT}"))
        yield TextBlock(legend)
        yield TextBlock(_words(found), margin=1)


def _words(found: AnswerDiff) -> Content:
    parts: list[Content] = []
    for span in found.spans:
        if span.operation == "equal":
            parts.append(Content(visible(_shortened(span.left))))
            continue
        for text, style in ((span.left, f"strike {LEFT}"), (span.right, f"underline {RIGHT}")):
            if text:
                parts.append(Content.styled(_words_shown(text), style))
    return Content.assemble(*parts)


def _words_shown(text: str) -> str:
    """Return text to display; text that is only white space is made visible."""
    return visible(text) if text.strip() else shown_token(text).replace("↵", "↵\n")


def _marked(difference: AnswerDiff, side: int, style: str, gone: str) -> Iterator[Content]:
    for span in difference.spans:
        own, other = (span.left, span.right) if side == 0 else (span.right, span.left)
        if span.operation == "equal":
            yield Content(visible(own))
        elif own:
            yield Content.styled(_words_shown(own), style)
        elif gone:
            yield Content.styled(one_line(other.strip() or "·"), gone)


def marked_words(difference: AnswerDiff, style: str, gone: str, *, skip: int, longest: int) -> Content:
    """Return the right answer on one line, from its character `skip` on, with the marks of `AnswerPanel.mark`.
    `longest`: the characters that are shown."""
    parts: list[Content] = [Content.styled("…", "$muted")] if skip else []
    length = 0
    for span in difference.spans:
        shown = span.right[skip:]
        skip = max(0, skip - len(span.right))
        if span.operation == "equal":
            parts.append(Content(one_line(shown[:longest])))
        elif shown:
            parts.append(Content.styled(one_line(shown[:longest]), style))
        elif not skip and span.left.strip():
            parts.append(Content.styled(one_line(span.left[:longest].strip()), gone))
        length += len(shown)
        if length > longest:
            break
    return Content.assemble(*parts)


def _shortened(text: str) -> str:
    if len(text) <= _WORDS:
        return text
    half = _WORDS // 2
    return f"{text[:half]} ⋯ {len(text) - 2 * half:,} equal characters ⋯ {text[-half:]}"


def _heading(text: str) -> TextBlock:
    return TextBlock(Content.styled(text, "bold $accent"), margin=1)


def _muted(text: str) -> TextBlock:
    return TextBlock(Content.styled(text, "$muted"))


def _verdict(what: str, verdict: str, *, good: bool) -> TextBlock:
    shown = (verdict, f"bold {'$text-success' if good else '$text-warning'}")
    return TextBlock(Content.assemble((f"{what}: ", "bold $accent"), shown), margin=1)


def verdict_lines(app: App[Any], difference: Difference) -> Content:
    """Return where the prompts differ, and below it where the answers do, with the log-probabilities of both tokens."""
    if difference.problem is not None:
        return Content.styled(error_text(app, difference.problem), "$text-warning")
    lines = [line for line in (_prompt_verdict(difference.prompts), _answer_verdict(difference)) if line.plain]
    if difference.is_stale and difference.answers is not None:
        lines[-1] = Content.assemble(lines[-1], ("  before your edit", "$text-warning"))
    return Content("\n").join(lines)


def _prompt_verdict(found: PromptDiff | None) -> Content:
    if found is None:
        return Content()
    count = sum(len(piece.ids) for span in found.spans for piece in span.left)
    if found.identical or found.first_divergence is None:
        return Content.assemble(
            ("Prompts identical", "bold $text-success"), (f" · {counted(count, 'token')}", "$muted")
        )
    first, more = one_line(found.findings[0]).removeprefix("the "), len(found.findings) - 1
    rest = f" · {counted(more, 'more difference')}" if more else ""
    return Content.assemble(
        (f"Prompts differ at {token_place(found.first_divergence)}: ", "bold $text-warning"), first, (rest, "$muted")
    )


def _answer_verdict(difference: Difference) -> Content:
    answers, found = difference.answers, difference.divergence
    if difference.failed:
        which = " and ".join(_NAMES[mode] for mode in difference.failed)
        return Content.styled(f"The answer to {which} is incomplete.", "$text-warning")
    if answers is None:
        return Content()
    if found is None:
        told = ("Answers identical", "bold $text-success") if answers.identical else ("Answers differ", "bold")
        return Content.assemble(told)
    sides = (("  chat ", found.left, found.right, LEFT), ("  raw ", found.right, found.left, RIGHT))
    parts: list[tuple[str, str]] = [(f"Answers differ at {token_place(found.index)}:", "bold $text-warning")]
    for name, token, other, colour in sides:
        parts += [(name, "$muted"), *_divergent(token, other, colour)]
    return Content.assemble(*parts)


def shown_token(text: str) -> str:
    """Return a token on one line, with white space made visible; `∅` for an empty token."""
    return one_line(text.translate(_SPACES)) or "∅"


def _divergent(token: TokenAt | None, other: TokenAt | None, colour: str) -> list[tuple[str, str]]:
    """Return a side's first differing token with its log-probability. In brackets follows that of the other side's
    token on this side."""
    if token is None:
        return [("ended", "$muted")]
    parts = [(shown_token(token.text), f"bold {colour} on $panel")]
    if token.logprob is not None:
        parts.append((f" {nats(token.logprob)}", ""))
        given = next((logprob for text, logprob in token.top if other is not None and text == other.text), None)
        if other is not None:
            known = nats(given) if given is not None else "unlikely"
            parts.append((f" ({shown_token(other.text)} {known})", "$muted"))
    return parts


class AnswerPanel(Vertical):
    """An answer as plain text, streaming or complete, with its facts below."""

    def __init__(self, *, has_edge: bool, id: str | None = None) -> None:
        """`has_edge`: leave a column at the left edge for the bar that marks a failure."""
        super().__init__(id=id)
        self.answer: Answer | None = None
        self.text = PlainBlock()
        self.view = DocumentView(follows=True, from_top=True, has_edge=has_edge)
        self.facts = Static(classes="facts", markup=False)
        self._pieces = 0
        """The number of the answer's pieces that are shown."""
        self.is_over = True
        """True if the whole answer is shown."""
        self._told = ""
        self._told_s = 0.0
        """The time of the last update of the number of tokens, in seconds (`time.monotonic`)."""

    def compose(self) -> ComposeResult:
        yield self.view
        yield self.facts

    def show_answer(self, answer: Answer) -> None:
        """Show another answer. Call `grow` again and again until `is_over` is True."""
        self.answer, self.text = answer, PlainBlock()
        self._pieces, self.is_over, self._told = 0, False, ""
        self.view.show(self.text)
        self.view.is_following = answer.outcome is None

    def grow(self, waits_for: str = "") -> bool:
        """Show new text; at the end of the answer, show its facts or its failure. Return True if anything new was
        shown. `waits_for`: why the request is not sent yet."""
        answer = self.answer
        if answer is None or self.is_over:
            return False
        fresh = answer.pieces[self._pieces :]
        self._pieces += len(fresh)
        self.is_over = answer.outcome is not None
        if fresh:
            self.text.show(self.text.text + visible("".join(fresh)))
            self.view.changed(self.text)
        if not self.is_over:
            self._count(answer, waits_for)
            return bool(fresh)
        if answer.failure is not None:
            self.view.add(_failure_block(answer.failure))
        self.facts.update(answer_line(answer))
        return True

    def mark(self, difference: AnswerDiff | None, side: int, style: str, gone: str = "") -> None:
        """Mark the difference between both answers; None: remove all marks. `side`: the side of this answer (0: left,
        1: right). `style`: the style for words that only this answer has. `gone`: the style for words that only the
        other answer has, which are inserted here; empty: they are not."""
        if self.answer is None or self.answer.failure is not None or not self.is_over:
            return
        shown = Content(visible(self.answer.text))
        if difference is not None:
            shown = Content.assemble(*_marked(difference, side, style, gone))
        self.text.show(shown.plain)
        self.text.mark(shown.spans)
        self.view.changed(self.text)

    def _count(self, answer: Answer, waits_for: str) -> None:
        """Show the number of tokens so far, or why there is none."""
        waits = f"Waits for {one_line(waits_for)}" if waits_for else waiting_line(answer) or "Waiting"
        told = f"{counted(answer.tokens, 'token') if answer.tokens else waits} …"
        is_wider = len(told) != len(self._told)
        if is_wider or time.monotonic() >= self._told_s + _COUNT_EVERY_S:
            self.facts.update(told, layout=is_wider)
            self._told, self._told_s = told, time.monotonic()


def _failure_block(failure: Failure) -> TextBlock:
    lines = [
        Content.styled(visible(failure.message), "bold $text-error"),
        Content.styled(visible(failure.detail.strip()[-_DETAIL_MAX:]), "$muted"),
        Content(visible(failure.hint)),
    ]
    return TextBlock(Content("\n").join(line for line in lines if line), edge="$error")


class AnswerPane(AnswerPanel):
    """The answer on one side of a comparison. Hidden until its prompt is sent."""

    DEFAULT_CSS = """
    AnswerPane {
        display: none;
        &.-begun { display: block; }
        height: auto;
        border-top: solid $border-blurred;
        & > DocumentView { height: 1; }
        & > .facts { height: auto; padding: 0 1 0 2; color: $muted; }
        & > .mark { display: none; height: auto; padding: 0 1 0 2; color: $text-warning; }
    }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(has_edge=True, id=id)
        self._mark = Static(classes="mark", markup=False)
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield self.view
        yield self._mark
        yield self.facts

    def on_mount(self) -> None:
        self.watch(self.view, "virtual_size", self.give_room, init=False)

    def begin(self, answer: Answer) -> None:
        self.add_class("-begun")
        self.tell_stale("")
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_interval(INTERVAL_S, self.update_answer)
        self.show_answer(answer)
        self.update_answer()

    def tell_stale(self, text: str) -> None:
        """Show a note that the prompt has changed since this answer was requested; empty: hide the note."""
        self._mark.update(text)
        self._mark.display = bool(text)

    def update_answer(self) -> None:
        self.grow()
        if self.is_over and self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.give_room()

    def give_room(self) -> None:
        """Fit the height to the answer, up to two fifths of the screen."""
        rows = max(1, self.view.document.height)
        if not self.is_over:
            rows = -(-rows // _ROOM) * _ROOM
        self.view.styles.height = min(rows, max(_ROOM, self.app.size.height * 2 // 5))
