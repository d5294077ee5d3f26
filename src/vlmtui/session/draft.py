"""A message being written: a text in which tokens such as `[Image #2]` stand for attachments.

Only the text determines which attachments are sent and where. An attachment whose token was deleted is kept until its
number is reused, so that undo, or pasting the token elsewhere, restores it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from vlmtui.domain.conversation import Attachment, Media, Part, Text, Turn

_TOKEN = re.compile(r"\[(?:Image|Video|Audio|File) #([1-9][0-9]{0,5})\]")
_WORDS = {"image": "Image", "video": "Video", "audio": "Audio"}


class DraftToken(msgspec.Struct, frozen=True):
    """A token in the text: offsets, number, and attachment (None: its file is still loading)."""

    start: int
    end: int
    number: int
    attachment: Attachment | None


def token_text(number: int | None, attachment: Attachment | None = None) -> str:
    """Return `[Image #1]`; `[File #1]` if the type is unknown; `[Image]` without a number."""
    what = _WORDS[attachment.modality] if attachment else "File"
    return f"[{what}]" if number is None else f"[{what} #{number}]"


class Draft:
    """The text and its attachments. The composer sets `text`."""

    def __init__(self) -> None:
        self.text = ""
        self._known: dict[int, Attachment] = {}
        self._pending: dict[int, str] = {}
        """By number: the text to store instead of a token whose file is still loading."""

    @property
    def tokens(self) -> list[DraftToken]:
        """Tokens in order. Text that only looks like a token is not included."""
        return self.tokens_in(self.text)

    def tokens_in(self, text: str) -> list[DraftToken]:
        if not (self._known or self._pending):
            return []
        found = ((match, int(match[1])) for match in _TOKEN.finditer(text))
        return [
            DraftToken(match.start(), match.end(), number, self._known.get(number))
            for match, number in found
            if match[0] in self._texts_of(number)
        ]

    @property
    def attachments(self) -> list[Attachment]:
        """The attachments to be sent, in order."""
        return [token.attachment for token in self.tokens if token.attachment is not None]

    @property
    def numbered(self) -> dict[int, Attachment]:
        """The attachments to be sent, by number."""
        return {token.number: token.attachment for token in self.tokens if token.attachment is not None}

    @property
    def pending(self) -> list[int]:
        """The numbers of files in the text that are still loading."""
        return [token.number for token in self.tokens if token.attachment is None]

    @property
    def words(self) -> str:
        """The text without tokens, and without the space after leading tokens."""
        start, end = self._gap
        return self.without_tokens(self.text[:start] + self.text[end:])

    @property
    def text_to_store(self) -> str:
        """The text to store: tokens of files that are still loading are replaced by the text given to `reserve`."""
        text = self.text
        for token in reversed(self.tokens):
            if token.attachment is None and (written := self._pending.get(token.number)):
                before, behind = text[: token.start], text[token.end :]
                left = " " if before and not before[-1].isspace() else ""
                right = " " if behind and not behind[0].isspace() else ""
                text = f"{before}{left}{written}{right}{behind}"
        return text

    @property
    def blanked(self) -> str:
        """The text with tokens replaced by spaces, so that offsets stay the same."""
        text = self.text
        for token in self.tokens:
            text = text[: token.start] + " " * (token.end - token.start) + text[token.end :]
        return text

    @property
    def _gap(self) -> tuple[int, int]:
        """The range of the space after leading tokens; empty if there is none."""
        lead = self.lead_in(self.text)
        return lead, lead + bool(lead and self.text[lead : lead + 1] == " ")

    @property
    def outside(self) -> list[int]:
        """The offsets in `text` of each character of `words`."""
        inside = {offset for token in self.tokens for offset in range(token.start, token.end)} | {*range(*self._gap)}
        return [offset for offset in range(len(self.text)) if offset not in inside]

    @property
    def parts(self) -> tuple[Part, ...]:
        """Texts and attachments as sent: a leading `//` becomes `/`; the space after leading tokens is left out."""
        parts: list[Part] = []
        at, (gap, behind) = 0, self._gap
        for token in self.tokens:
            parts += [Text(self.text[at : token.start])] if token.start > at else []
            parts += [Media(token.attachment)] if token.attachment else []
            at = token.end
            at = behind if at == gap else at
        parts += [Text(self.text[at:])] if at < len(self.text) else []
        if self.words.startswith("//"):
            place, first = next((place, part) for place, part in enumerate(parts) if isinstance(part, Text))
            parts[place] = Text(first.text[1:])
        return tuple(parts)

    def without_tokens(self, text: str) -> str:
        for token in reversed(self.tokens_in(text)):
            text = text[: token.start] + text[token.end :]
        return text

    def lead_in(self, text: str) -> int:
        """Return the offset after the leading tokens of a text; 0 if there are none."""
        end = 0
        for token in self.tokens_in(text):
            if token.start != end:
                break
            end = token.end
        return end

    def only_tokens(self) -> str:
        return "".join(self.text[token.start : token.end] for token in self.tokens)

    def next_number(self, above: int = 0) -> int:
        """The number that `reserve` would return."""
        return 1 + max([above, *(token.number for token in self.tokens), *self._pending])

    def reserve(self, above: int = 0, *, written: str = "") -> int:
        """Return the next free number above `above`, for a file that is still loading. `written`: the text to store
        until it has loaded. An attachment that had this number before is forgotten."""
        number = self.next_number(above)
        self._pending[number] = written
        self._known.pop(number, None)
        return number

    def knows(self, number: int) -> bool:
        """Return whether an attachment has or had this number."""
        return number in self._known

    def renumber(self, above: int, cursor: int) -> int | None:
        """Renumber the attachments in text order from `above` + 1. Return the new cursor offset; None if nothing
        changed, or while files are loading."""
        tokens = self.tokens
        if any(token.attachment is None for token in tokens):
            return None
        if [token.number for token in tokens] == list(range(above + 1, above + 1 + len(tokens))):
            return None
        pieces: list[str] = []
        at, moved_cursor = 0, cursor
        for number, token in enumerate(tokens, above + 1):
            named = token_text(number, token.attachment)
            pieces += [self.text[at : token.start], named]
            if token.end <= cursor:
                moved_cursor += len(named) - (token.end - token.start)
            at = token.end
        self.text = "".join([*pieces, self.text[at:]])
        self._known = {n: token.attachment for n, token in enumerate(tokens, above + 1) if token.attachment is not None}
        return moved_cursor

    def fill(self, number: int, attachment: Attachment) -> None:
        self._pending.pop(number, None)
        self._known[number] = attachment

    def drop(self, number: int) -> None:
        """Forget a number whose file can't be attached."""
        self._pending.pop(number, None)
        self._known.pop(number, None)

    def put(self, text: str, attachments: Mapping[int, Attachment]) -> None:
        self.text = text
        self._known = dict(attachments)

    def put_turn(self, turn: Turn, *, above: int) -> None:
        """Replace the draft by a sent message for editing, its attachments numbered from `above` + 1."""
        pieces: list[str] = []
        attachments: dict[int, Attachment] = {}
        for part in turn.parts:
            if isinstance(part, Media):
                number = above + len(attachments) + 1
                attachments[number] = part.attachment
                pieces.append(token_text(number, part.attachment))
            else:
                pieces.append(" " * (len(pieces) == len(attachments) > 0) + part.text)
        text = "".join(pieces)
        if turn.text.startswith("/"):
            at = text.index("/")
            text = f"{text[:at]}/{text[at:]}"
        self.put(text, attachments)

    def clear(self) -> None:
        """Start a new message. Files that are still loading will belong to it."""
        self.text = ""
        self._known = {}

    def _texts_of(self, number: int) -> tuple[str, ...]:
        """Return the tokens that may stand for a number. After an undo, this may be the token from before the file's
        type was known: `[File #1]`."""
        if number in self._known:
            return token_text(number, self._known[number]), token_text(number)
        return (token_text(number),) if number in self._pending else ()
