"""Asks before sending a message that names files whether to attach them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
from textual.content import Content
from textual.widgets import Static

from vlmtui.media.mentions import Mention, MentionKind, find_mentions, may_name_files
from vlmtui.session.draft import Draft
from vlmtui.text import human_bytes, one_line

_SHOWN = 4
"""Files listed; others are counted."""
_NAME_MAX = 60
_LOOK_S = 3.0
"""Seconds for looking up files."""


class PathOffer(Static):
    """Shown above the composer while the question is open; never takes the focus."""

    can_focus = False
    DEFAULT_CSS = """
    PathOffer {
        display: none;
        height: auto;
        margin: 1 2 0 2;
        padding: 0 1;
        border-left: outer $warning;
        background: $panel;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.mentions: list[Mention] = []
        self._words = ""
        """Of the draft that the question is about."""
        self._outside: list[int] = []
        """Where those words stood in its text."""
        self._as_text: str | None = None
        """The text for which the user chose to send paths as text."""

    @property
    def is_open(self) -> bool:
        return bool(self.mentions)

    def is_due(self, text: str) -> bool:
        """Return whether a text may name files, and the user did not choose to send it as text."""
        return text != self._as_text and may_name_files(text)

    def asks_about(self, draft: Draft) -> bool:
        """Whether the question is about the draft's words: the token of an attachment may be another one since."""
        return self.is_open and draft.words == self._words

    def mentions_in(self, draft: Draft) -> list[Mention]:
        """What was found, by the offsets in the text as it is now."""
        now = dict(zip(self._outside, draft.outside, strict=True))
        return [msgspec.structs.replace(one, start=now[one.start], end=now[one.end - 1] + 1) for one in self.mentions]

    def leave_as_text(self, text: str) -> None:
        """Do not ask about this text again."""
        self._as_text = text

    async def find(self, text: str) -> list[Mention]:
        """Return the files that a text names, looked up in a thread. Raises TimeoutError if that takes too long."""
        return await asyncio.wait_for(asyncio.to_thread(find_mentions, text, Path.cwd()), _LOOK_S)

    def ask(self, mentions: Sequence[Mention], draft: Draft | None = None) -> None:
        """Show the files found in the draft, and the keys; hide if there are none."""
        self.mentions = list(mentions)
        self._words, self._outside = (draft.words, draft.outside) if draft else ("", [])
        self.display = self.is_open
        if self.is_open:
            self.update(offer_content(self.mentions))


def offer_content(mentions: Sequence[Mention]) -> Content:
    """Return the lines of the question."""
    shown = mentions if len(mentions) == _SHOWN + 1 else mentions[:_SHOWN]
    lines = [_line(mention) for mention in shown]
    more = len(mentions) - len(lines)
    lines += [Content.styled(f"  … and {more} more", "$muted")] if more else []
    count = sum(len(mention.sources) for mention in mentions)
    does = {"Tab": f"Attach {f'{count} files' if count > 1 else 'it'}"} if count else {}
    does |= {"Enter": "Send as text", "Esc": "Edit"}
    keys = [Content.assemble((key, "bold $text-accent"), f" {what}") for key, what in does.items()]
    asked = Content.assemble(("Not attached. ", "bold"), Content(" · ").join(keys))
    return Content("\n").join([*lines, asked])


def _line(mention: Mention) -> Content:
    name = one_line(mention.name)
    name = name if len(name) <= _NAME_MAX else f"…{name[1 - _NAME_MAX :]}"
    sign, style = ("▣", "$text-accent") if mention.sources else ("✗", "$text-error")
    return Content.assemble((f"{sign} ", style), (name, "bold"), (f"  {_about(mention)}", "$muted"))


def _about(mention: Mention) -> str:
    match mention.kind:
        case MentionKind.MEDIA:
            return f"{mention.title} · {human_bytes(mention.size)}"
        case MentionKind.FOLDER:
            count = len(mention.sources)
            return f"a folder with {count} picture{'s' * (count != 1)} or video{'s' * (count != 1)}"
        case MentionKind.WEB:
            return "a web address, not opened unless you attach it"
        case MentionKind.OTHER:
            return f"{mention.title}: not a picture, video or sound"
        case MentionKind.MISSING:
            return "no such file"
        case MentionKind.UNREADABLE:
            return f"can't be read{f': {one_line(mention.title)}' if mention.title else ''}"
