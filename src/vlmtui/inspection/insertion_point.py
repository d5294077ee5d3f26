"""Choose where to insert a missing placeholder into a raw prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from vlmtui.inspection.placeholder_forms import Form, Occurrence
from vlmtui.inspection.raw_turns import head_of, segments, tail_of
from vlmtui.registry.schema import Family, Layout, RawTemplate


class InsertionPoint(msgspec.Struct, frozen=True):
    """Chooses where to insert a missing placeholder in the last user turn of a raw prompt."""

    text: str
    raw: RawTemplate | None
    """How turns are written; None where unknown."""

    def of(
        self, form: Form, layout: Layout, found: Sequence[Occurrence], numbers: Sequence[int]
    ) -> tuple[int, str, str]:
        """Return offset, text to insert, and the place in words, for the items with these numbers."""
        if found:
            new = "".join(layout.separator + form.written(number) for number in numbers)
            return found[-1].outer_end, new, "after the last one"
        position = self._position(layout)
        new = layout.separator.join(form.written(number) for number in numbers)
        match layout.place:
            case "before":
                new += layout.gap
            case "after" if self.text[:position][-1:] not in ("", " ", "\n", "\t"):
                new = layout.gap + new
        return position, new, self._in_words(position)

    def _position(self, layout: Layout) -> int:
        if layout.place == "front":
            return 0
        if self.raw is None:
            return len(self.text.rstrip()) if layout.place == "after" else 0
        users = [one for one in segments(self.text, self.raw) if one.role == "user"]
        if not users:
            return len(self.text.rstrip()) if layout.place == "after" else 0
        last = users[-1]
        if layout.place == "turn":
            return last.head
        if layout.place == "after":
            tail = tail_of(self.raw.user).strip()
            at = self.text.rfind(tail, last.start, last.end) if tail else -1
            return at if at >= 0 else len(self.text[: last.end].rstrip())
        return last.start

    def _in_words(self, position: int) -> str:
        if position == 0:
            return "at the beginning"
        return "at the end" if position >= len(self.text.rstrip()) else "in the last message"


def template_in_text(text: str, families: Iterable[Family]) -> RawTemplate | None:
    """Find another family's template by its marker of a user turn, a special token; the longest marker wins."""
    best: RawTemplate | None = None
    for family in families:
        head = head_of(family.raw.user)
        if head[:1] in ("<", "[") and head in text and (best is None or len(head) > len(head_of(best.user))):
            best = family.raw
    return best
