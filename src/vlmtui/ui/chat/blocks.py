"""The transcript's blocks: messages with their attachments, and answers with their reasoning."""

from __future__ import annotations

import time
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from textual.app import App
from textual.content import Content
from textual.geometry import Size
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual
from textual.widget import Widget

from vlmtui.domain.conversation import Attachment, Media, Text, Turn
from vlmtui.errors import ErrorKind
from vlmtui.inspection.thinking import ThinkingParts
from vlmtui.session.answer_line import answer_marks, seconds
from vlmtui.session.draft import token_text
from vlmtui.session.exchange import Exchange, Siblings
from vlmtui.session.generation import Answer, waiting_line
from vlmtui.store.records import TurnId
from vlmtui.text import counted, one_line, visible
from vlmtui.ui.chat.attachments import GUTTER, THUMBNAIL_WIDTH
from vlmtui.ui.document.answer_parts import AnswerPart, answer_parts
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.lines import BLANK, Line, Lines, PictureLine, one, wrapped
from vlmtui.ui.keys import with_keys
from vlmtui.ui.widgets.clicks import clickable
from vlmtui.ui.widgets.thumbnails import Thumbnails, Wanted, name_line

if TYPE_CHECKING:
    from vlmtui.ui.document.markdown_lines import MarkdownBlock

_ROOMS = ((50, 150, 60, 20), (36, 0, THUMBNAIL_WIDTH, 10), (0, 0, THUMBNAIL_WIDTH, 6))
"""Thumbnail sizes by terminal size: minimum rows and columns of the terminal, maximum columns and rows of a
thumbnail."""
REASONING = "reasoning"
"""The result of `AnswerBlock.clicked` for the title of the reasoning."""
_MARKS = "$muted 80%"
_DETAIL_MAX = 600
"""Maximum characters shown of a failure's detail, from its end."""
_LAST_LINES = 3
"""Lines shown of folded reasoning while it streams."""
_BLINK_S = 0.1
"""Seconds of reasoning from which on the duration is shown."""
_TAIL = 1500
"""Maximum characters of reasoning laid out while it streams, since this happens ten times a second."""


class Part(Enum):
    """The two parts of an exchange: the user's message, and the answer."""

    MESSAGE = "message"
    ANSWER = "answer"


class Marked(msgspec.Struct, frozen=True):
    """A message or an answer of the transcript: the selected one, or the one that an action is about."""

    exchange: Exchange
    part: Part

    @property
    def text(self) -> str:
        return self.exchange.user.text if self.part is Part.MESSAGE else self.exchange.answer.text

    @property
    def parts(self) -> list[AnswerPart]:
        """An answer's parts, e.g. reasoning, code and tables; empty for a message."""
        answer = self.exchange.answer
        return [] if self.part is Part.MESSAGE else answer_parts(answer.parts(answer.text))

    @property
    def turn(self) -> TurnId | None:
        """The id of the stored turn; None until the message or answer is stored."""
        return self.exchange.user_id if self.part is Part.MESSAGE else self.exchange.answer_id

    @property
    def siblings(self) -> Siblings:
        return self.exchange.user_siblings if self.part is Part.MESSAGE else self.exchange.answer_siblings


class _Tile(NamedTuple):
    """A thumbnail and the lines below it, in a message's grid of attachments."""

    at: int
    wanted: Wanted
    rows: int
    """Rows of the thumbnail."""
    words: tuple[Content, ...]
    """The lines below the thumbnail."""


class MessageBlock(Block):
    """A message: its attachments side by side, and the text below. `clicked` returns the index of the clicked
    attachment."""

    margin = 1
    edge = "$accent"

    def __init__(self, exchange: Exchange, thumbnails: Thumbnails, terminal: Widget) -> None:
        """`terminal`: a mounted widget, whose app knows the terminal's size."""
        super().__init__()
        self.exchange = exchange
        self.first_number: int | None = None
        """The number of the first attachment in the prompt; None: the attachments are left out of prompts."""
        self._thumbnails = thumbnails
        self._terminal = terminal
        self._tiles: list[tuple[int, int, _Tile]] = []
        """The first line, first column and tile of each attachment."""
        self._tile_width = 0
        self._room = 0, 0
        """Maximum columns and rows of a thumbnail, at the last layout."""

    @property
    def fits(self) -> bool:
        """True if the thumbnails were laid out for the terminal's present size."""
        return not self._tiles or self._room == _room(self._terminal.app.size)

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        return self.exchange.user.attachments

    def may_have(self, words: str) -> bool:
        return _names_any(words, self.exchange.user.text, *(one.name for one in self.attachments))

    def clicked(self, number: int, column: int) -> object:
        for line, left, tile in self._tiles:
            if line <= number < line + tile.rows + len(tile.words) and left <= column < left + self._tile_width:
                return tile.at
        return None

    def lay_out(self, width: int) -> Lines:
        grid = self._grid(width) if self.attachments else []
        text = written(self.exchange.user, self.first_number).stylize_before("bold")
        said = wrapped(text, width) if text else []
        return [*grid, BLANK, *said] if grid and said else [*grid, *said]

    def _grid(self, width: int) -> Lines:
        columns, rows = self._room = _room(self._terminal.app.size)
        across = max(1, (width + GUTTER) // (columns + GUTTER))
        self._tile_width = min(columns, max(1, (width + GUTTER) // across - GUTTER))
        self._tiles, lines = [], list[Line]()
        tiles = [self._tile(at, columns, rows) for at in range(len(self.attachments))]
        for start in range(0, len(tiles), across):
            row = tiles[start : start + across]
            lines += [BLANK] if lines else []
            self._tiles += [(len(lines), number * (self._tile_width + GUTTER), tile) for number, tile in enumerate(row)]
            height = max(tile.rows + len(tile.words) for tile in row)
            lines += [PictureLine("", drawn=partial(self._draw, tuple(row), y)) for y in range(height)]
        return lines

    def _tile(self, at: int, columns: int, rows: int) -> _Tile:
        from vlmtui.media.describe import attachment_facts

        attachment = self.attachments[at]
        number = None if self.first_number is None else self.first_number + at
        room = self._thumbnails.room(attachment, min(columns, self._tile_width), rows)
        wanted = Wanted(attachment, room)
        reason = self._thumbnails.reason(wanted)
        told = one_line(reason) if reason else attachment_facts(attachment)
        told = told if number is not None else "left out of prompts"
        name = Content.styled(name_line(attachment, number, self._tile_width), "" if number is not None else "strike")
        return _Tile(at, wanted, 0 if reason else room[1], (name, Content.styled(told, "$muted")))

    def _draw(self, tiles: tuple[_Tile, ...], y: int, widget: Widget, style: Style) -> Strip:
        """Draw a line of the grid."""
        width, plain = self._tile_width, style.rich_style
        strips: list[Strip] = []
        for tile in tiles:
            strip = None
            if y < tile.rows:
                strip = self._thumbnails.row(tile.wanted, y)
            elif y - tile.rows < len(tile.words):
                words = tile.words[y - tile.rows].truncate(width, ellipsis=True)
                strip = Visual.to_strips(widget, words, width, 1, style, apply_selection=False)[0]
            strip = Strip.blank(width, plain) if strip is None else strip.adjust_cell_length(width, plain)
            strips += [strip, Strip.blank(GUTTER, plain)]
        return Strip.join(strips)


def written(turn: Turn, first_number: int | None) -> Content:
    """Return a message's text, with `[Image #1]` for an attachment, and control characters made visible."""
    pieces: list[Content | tuple[str, str]] = []
    number = first_number
    for at, part in enumerate(turn.parts):
        match part:
            case Text(text):
                # As in the composer, show a space after attachments at the start, which is not part of the text.
                is_first = at > 0 and all(isinstance(one, Media) for one in turn.parts[:at])
                pieces.append(Content(" " * is_first + visible(text)))
            case Media(attachment):
                token = token_text(number, attachment)
                style = "$accent" if number is not None else "$muted strike"
                pieces.append((token, style))
                number = None if number is None else number + 1
    return Content.assemble(*pieces)


def _names_any(words: str, *texts: str) -> bool:
    """Return whether one of the texts has one of these words."""
    return any(word in text.casefold() for text in texts for word in words.split() or [words])


def _room(terminal: Size) -> tuple[int, int]:
    """Return the maximum columns and rows of a thumbnail."""
    fits = (room for height, width, *room in _ROOMS if terminal.height >= height and terminal.width >= width)
    columns, rows = next(fits)
    return columns, rows


def _markdown_block() -> MarkdownBlock:
    from vlmtui.ui.document.markdown_lines import MarkdownBlock  # it would delay the first paint

    return MarkdownBlock()


class AnswerBlock(Block):
    """An answer, streaming or complete. Its reasoning is folded: only the last lines are shown while it streams, and
    only its title after that. If the answer contains nothing but reasoning, the reasoning unfolds at the end."""

    margin = 1

    def __init__(self, app: App[Any], exchange: Exchange) -> None:
        super().__init__()
        self._app = app
        self.exchange = exchange
        self.answer = exchange.answer
        self._text = ""
        """The text so far, control characters made visible."""
        self._pieces = 0
        """The number of the answer's pieces that `_text` contains."""
        self.parts = ThinkingParts("", "", is_thinking=False)
        self.is_open = False
        """True if the reasoning is unfolded."""
        self._is_over = False
        self._markdown = _markdown_block()
        self._above = 0
        """The number of lines above the reasoning."""
        self._thinking: tuple[object, Lines] = (None, [])
        """A cache: the values that the lines of the reasoning depend on, and these lines."""
        self.take_new()

    def restart(self) -> None:
        """Show the exchange's new answer instead of the previous answer."""
        self.answer = self.exchange.answer
        self._text, self._pieces, self._is_over = "", 0, False
        self.is_open = False
        self._markdown = _markdown_block()
        self.take_new()

    def take_new(self) -> None:
        """Show the pieces of the answer that have arrived since the last call."""
        answer = self.answer
        fresh = answer.pieces[self._pieces :]
        self._pieces += len(fresh)
        self._text += visible("".join(fresh))
        self.parts = answer.parts(self._text)
        if answer.outcome is not None and not self._is_over:
            self._is_over = True
            self.is_open = self.is_open or not self.parts.answer
        self._markdown.source = self.parts.answer

    @property
    def waits(self) -> bool:
        """True until the answer's text begins: the block then shows for how many seconds it has waited."""
        return self.answer.outcome is None and not self.parts.answer

    def toggle_reasoning(self) -> bool:
        """Show or hide the reasoning; False if there is none."""
        if self.parts.thinking:
            self.is_open = not self.is_open
        return bool(self.parts.thinking)

    def toggle_json(self) -> None:
        """Show long JSON completely, or fold it."""
        self._markdown.folds = not self._markdown.folds

    def may_have(self, words: str) -> bool:
        return _names_any(words, self._text)

    def clicked(self, number: int, column: int) -> object:
        return REASONING if number == self._above and self.parts.thinking else None

    def lay_out(self, width: int) -> Lines:
        width = max(1, width)
        reasoning, text = self._reasoning(width), self._text_lines(width)
        self.is_behind = self._markdown.is_behind
        is_whole = self.answer.outcome is not None and not self.is_behind
        marks = marks_line(self.exchange) if is_whole else Content()
        text += wrapped(marks, width) if marks else []
        note = failure_note(self._app, self.answer) if is_whole else Content()
        why = [line.after(("▌ ", "$error")) for line in wrapped(note, max(1, width - 3))] if note else []
        lines = model_rule(self.exchange, width)
        self._above = len(lines)
        for part in (reasoning, text, why):
            lines += [BLANK, *part] if len(lines) > self._above and part else part
        return lines

    def _text_lines(self, width: int) -> Lines:
        markdown = self._markdown
        waits = self.waits and not self.parts.thinking
        waited = waiting_text(self.answer, time.monotonic() - self.answer.began_s) if waits else ""
        markdown.instead = Content.styled(waited, "$muted")
        return markdown.lay_out(width).copy()

    def _reasoning(self, width: int) -> Lines:
        parts = self.parts
        if not parts.thinking:
            return []
        title = reasoning_title(self.answer, parts)
        depends = parts.thinking, title, self.is_open, parts.is_thinking, width
        if self._thinking[0] != depends:
            self._thinking = depends, reasoning_lines(parts, title, width, is_open=self.is_open)
        return self._thinking[1]


def model_rule(exchange: Exchange, width: int) -> Lines:
    """Return `── shapes from here ───` and a blank line if another model answered before; otherwise nothing. They are
    not part of the text."""
    if not exchange.changes_model:
        return []
    told = Content(f"── {exchange.answered_by} from here ").truncate(width, ellipsis=True)
    rule = Content.styled(told.plain + "─" * (width - told.cell_length), "$text-warning")
    return [Line.of(rule, indent=len(rule)), BLANK]


def reasoning_lines(parts: ThinkingParts, title: str, width: int, *, is_open: bool) -> Lines:
    """Return the reasoning's title, and below it the whole reasoning if `is_open`, or else its last lines while it
    streams."""
    lines = [one(f"{'▼' if is_open else '▶'} {title}", "$muted")]
    text, room = parts.thinking, max(1, width - 2)
    if parts.is_thinking:
        most = _TAIL if is_open else _LAST_LINES * room
        text = f"…{text[-most:]}" if len(text) > most else text
    if is_open or parts.is_thinking:
        thoughts = wrapped(Content.styled(text, "$muted"), room) if text else []
        lines += [line.pad_left(2) for line in (thoughts if is_open else thoughts[-_LAST_LINES:])]
    return lines


def reasoning_title(answer: Answer, parts: ThinkingParts) -> str:
    """Return `Thinking… 3 s · 120 tokens` while the reasoning streams, then `Thought · 4.2 s · 210 tokens`. If the
    number of tokens is unknown, the words are counted instead."""
    if parts.is_thinking:
        running = answer.thought.seconds
        facts = [f"{int(running)} s"] if running is not None and running >= 1 else []
        facts += [counted(answer.tokens, "token")] if answer.tokens else []
        return " ".join(("Thinking…", " · ".join(facts))).rstrip()
    ended = answer.thought.ended
    words = len(parts.thinking.split())
    took = None if ended is None else ended.seconds
    facts = [] if took is None or took < _BLINK_S else [seconds(took)]
    facts.append(counted(ended.tokens, "token") if ended and ended.tokens else counted(words, "word"))
    return " · ".join(("Thought", *facts))


def marks_line(exchange: Exchange) -> Content:
    """Return the line below an answer. It says why the answer is incomplete or was slow to start, and `raw` for a raw
    prompt. If there are branches, it shows the current one between arrows to click: `‹ answer 2/3 ›`."""
    own = answer_marks(exchange.answer)
    marks = [Content.styled(own, _MARKS)] if own else []
    marks += [Content.styled("raw", _MARKS)] if exchange.mode == "raw" else []
    for part, place in ((Part.MESSAGE, exchange.user_siblings), (Part.ANSWER, exchange.answer_siblings)):
        if place.count > 1:
            back = clickable("‹", "$accent", branches_of=part.value, branch=-1)
            on = clickable("›", "$accent", branches_of=part.value, branch=1)
            said = Content.styled(f" {part.value} {place.position}/{place.count} ", _MARKS)
            marks.append(Content.assemble(back, said, on))
    return Content.styled(" · ", _MARKS).join(marks)


def failure_note(app: App[Any], answer: Answer) -> Content:
    """Return the failure's message, detail and hint, and the key that sends the message again; empty if nothing
    failed."""
    failure = answer.failure
    if failure is None:
        return Content()
    again = with_keys(app, "{regenerate} sends it again")
    dead = failure.kind is ErrorKind.ENGINE_DIED
    lines = [
        Content.styled(visible(failure.message), "bold"),
        Content.styled(visible(failure.detail.strip()[-_DETAIL_MAX:]), "$muted"),
        Content("" if answer.has_text else "No answer, so this turn is left out of later prompts."),
        Content(visible(failure.hint)),
        # The status line says whether the engine restarts by itself.
        Content.styled(f"{again}{', once the engine is loaded' if dead else ''}", "$muted"),
    ]
    return Content("\n").join(line for line in lines if line)


def waiting_text(answer: Answer, seconds: float) -> str:
    """Return the reason for waiting and its duration, before the first token: `processing 1,234 prompt tokens · 3
    s`."""
    if waiting := waiting_line(answer):
        return waiting
    if seconds < 1:
        return "…"
    if answer.prompt is None:
        return f"preparing the prompt · {int(seconds)} s"
    return f"processing {counted(len(answer.prompt.token_ids), 'prompt token')} · {int(seconds)} s"
