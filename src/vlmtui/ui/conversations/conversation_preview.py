"""The last messages of a conversation, or the match of a search."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from vlmtui.session.conversation_list import Entry
from vlmtui.session.exchange import stored_answer
from vlmtui.store.records import StoredTurn
from vlmtui.text import one_line, visible
from vlmtui.ui.conversations.conversation_list import entry_title, facts_of
from vlmtui.ui.document.blocks import TextBlock

_SHORT = 400
"""Most characters of one message among several."""
_WHOLE = 4_000
"""Most characters of a single message."""
_BEFORE = 600
"""Characters shown before a match."""


def preview(entry: Entry, turns: Sequence[StoredTurn], query: str) -> list[TextBlock]:
    """Return what is shown of a conversation: these turns, with the words of `query` highlighted."""
    head = [Content.styled(entry_title(entry), "bold"), Content.styled(facts_of(entry), "$muted")]
    limit = _SHORT if len(turns) > 1 else _WHOLE
    parts = [head, *(_turn(turn, limit, query.split()) for turn in turns)]
    if draft := entry.listed.draft.strip():
        parts.append([Content.styled("Not sent yet", "$muted"), Content(visible(_excerpt(draft, _SHORT, ())))])
    return [TextBlock(Content("\n").join(part), margin=1) for part in parts]


def _turn(turn: StoredTurn, limit: int, words: Sequence[str]) -> list[Content]:
    is_user = turn.role == "user"
    names = [one_line(item.name) for item in turn.turn.attachments]
    head = Content.styled("You" if is_user else turn.role.capitalize(), "$text-accent" if is_user else "$muted")
    said = [Content.styled(f"▣ {name}", "$muted") for name in names]
    text = turn.text if is_user or words else _answer_of(turn)
    excerpt = _excerpt(text.strip(), limit, words)
    return [head, *said, *([_marked(visible(excerpt), words)] if excerpt else [])]


def _answer_of(turn: StoredTurn) -> str:
    """Return the text without its reasoning, unless there is nothing else."""
    answer = stored_answer(turn)
    return answer.parts(turn.text).answer or turn.text


def _excerpt(text: str, limit: int, words: Sequence[str]) -> str:
    """Return the start of the text; of a longer one with a match, the part around the first match."""
    folded = text.casefold()
    found = [at for at in (folded.find(word.casefold()) for word in words) if at >= 0]
    start = max(0, min(found, default=0) - _BEFORE) if len(text) > limit else 0
    shown = text[start : start + limit]
    return f"{'…' if start else ''}{shown}{'…' if start + limit < len(text) else ''}"


def _marked(text: str, words: Sequence[str]) -> Content:
    content, folded = Content(text), text.casefold()
    if len(folded) != len(text):
        return content
    for word in (word.casefold() for word in words):
        at = folded.find(word)
        while at >= 0 and word:
            content = content.stylize("bold $text-warning", at, at + len(word))
            at = folded.find(word, at + len(word))
    return content
