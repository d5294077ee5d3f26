"""A user's message in the transcript: its pictures side by side, and its text."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from textual.content import Content
from textual.geometry import Size
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual
from textual.widget import Widget

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Media, Text, Turn
from vlmtui.session.draft import token_text
from vlmtui.session.exchange import Exchange
from vlmtui.text import one_line, visible
from vlmtui.ui.chat.attachment_grid import GUTTER, PICTURE
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.lines import BLANK, Line, Lines, wrapped
from vlmtui.ui.widgets.thumbnails import ThumbnailMarks, Thumbnails, Wanted, name_line

_ROOMS = ((50, 150, 60, 20), (36, 0, PICTURE, 10), (0, 0, PICTURE, 6))
"""Size limits of pictures, by terminal size: least rows and columns of the terminal, most columns and rows of a
picture."""


class _Tile(NamedTuple):
    """An attachment in the grid."""

    at: int
    wanted: Wanted
    rows: int
    """Rows of its picture."""
    words: tuple[Content, ...]
    """The lines below it."""


class MessageBlock(Block):
    """The attachments side by side, with the text below. A click finds the number of an attachment, from 0."""

    margin = 1
    edge = "$accent"

    def __init__(self, exchange: Exchange, thumbnails: Thumbnails, terminal: Widget) -> None:
        """`terminal`: any widget, whose app has the size of the terminal."""
        super().__init__()
        self.exchange = exchange
        self.first_number: int | None = None
        """Number of its first attachment in the prompt; None: left out of prompts."""
        self.marks: dict[int, ThumbnailMarks] = {}
        """Places to draw on pictures, by the attachment's place in the message."""
        self._thumbnails = thumbnails
        self._terminal = terminal
        self._tiles: list[tuple[int, int, _Tile]] = []
        """Where attachments are: the first line, the column, the attachment."""
        self._tile_width = 0

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        return self.exchange.user.attachments

    def clicked(self, number: int, column: int) -> object:
        for line, left, tile in self._tiles:
            if line <= number < line + tile.rows + len(tile.words) and left <= column < left + self._tile_width:
                return tile.at
        return None

    def wanted(self, at: int) -> Wanted | None:
        """Return the picture that is shown of an attachment; None before the first layout."""
        return next((tile.wanted for _, _, tile in self._tiles if tile.at == at), None)

    def lay_out(self, width: int) -> Lines:
        grid = self._grid(width) if self.attachments else []
        text = written(self.exchange.user, self.first_number).stylize_before("bold")
        said = wrapped(text, width) if text else []
        return [*grid, BLANK, *said] if grid and said else [*grid, *said]

    def _grid(self, width: int) -> Lines:
        columns, rows = _room(self._terminal.app.size)
        across = max(1, (width + GUTTER) // (columns + GUTTER))
        self._tile_width = min(columns, max(1, (width + GUTTER) // across - GUTTER))
        self._tiles, lines = [], list[Line]()
        tiles = [self._tile(at, columns, rows) for at in range(len(self.attachments))]
        for start in range(0, len(tiles), across):
            row = tiles[start : start + across]
            lines += [BLANK] if lines else []
            self._tiles += [(len(lines), number * (self._tile_width + GUTTER), tile) for number, tile in enumerate(row)]
            height = max(tile.rows + len(tile.words) for tile in row)
            lines += [Line(Content(), drawn=partial(self._draw, tuple(row), y)) for y in range(height)]
        return lines

    def _tile(self, at: int, columns: int, rows: int) -> _Tile:
        from vlmtui.media.describe import attachment_facts

        attachment = self.attachments[at]
        number = None if self.first_number is None else self.first_number + at
        room = self._thumbnails.room(attachment, min(columns, self._tile_width), rows)
        wanted = Wanted(attachment, room, self.marks.get(at))
        reason = self._thumbnails.reason(wanted)
        told = one_line(reason) if reason else attachment_facts(attachment)
        told = told if number is not None else "left out of prompts"
        name = Content.styled(name_line(attachment, number), "" if number is not None else "strike")
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
    """Return the text with a token for each attachment; control characters visible."""
    pieces: list[Content | tuple[str, str]] = []
    number = first_number
    for at, part in enumerate(turn.parts):
        match part:
            case Text(text):
                # As in the composer: the space behind attachments at the start is only for the eye.
                is_first = at > 0 and all(isinstance(one, Media) for one in turn.parts[:at])
                pieces.append(Content(" " * is_first + visible(text)))
            case Media(attachment):
                token = token_text(number, attachment)
                style = "$accent" if number is not None else "$muted strike"
                pieces.append((token, style))
                number = None if number is None else number + 1
    return Content.assemble(*pieces)


def _room(terminal: Size) -> tuple[int, int]:
    """Return most columns and rows of a picture."""
    fits = (room for height, width, *room in _ROOMS if terminal.height >= height and terminal.width >= width)
    columns, rows = next(fits)
    return columns, rows
