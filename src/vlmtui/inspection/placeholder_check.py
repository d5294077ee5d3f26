"""Check a raw prompt's placeholders: one for each attachment, the family's own, numbered correctly."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.inspection.findings import Finding, FindingKind, Fix
from vlmtui.inspection.placeholders import Form, Occurrence, all_forms, pattern_of
from vlmtui.inspection.prompt_turns import head_of, segments, tail_of
from vlmtui.inspection.special_tokens import Loss, LostPlaceholders, indexes_of
from vlmtui.registry.schema import Family, Layout, RawTemplate
from vlmtui.text import one_line


class ForeignPlaceholder(msgspec.Struct, frozen=True):
    """A placeholder that belongs to other families."""

    start: int
    end: int
    text: str
    modality: Modality
    titles: tuple[str, ...]
    """The families that use it."""


def foreign_placeholders(
    text: str,
    family: Family,
    families: Iterable[Family],
    own: AbstractSet[str],
    taken: Sequence[tuple[int, int]],
) -> list[ForeignPlaceholder]:
    """Return those in the text that overlap no span in `taken`.

    `own`: tokens that mean something to the family, or are no family's placeholder by themselves.
    """
    known: dict[str, tuple[Modality, list[str]]] = {}
    for other, form in all_forms(families):
        if other.family == family.family:
            continue
        for written in {form.full, form.core} - own:
            known.setdefault(written, (form.modality, []))[1].append(other.title)
    if not known:
        return []
    found: list[ForeignPlaceholder] = []
    for match in re.finditer(pattern_of(known), text):
        if any(start < match.end() and match.start() < end for start, end in taken):
            continue
        modality, titles = known.get(match[0]) or known[re.sub(r"\d+", "{i}", match[0])]
        found.append(ForeignPlaceholder(match.start(), match.end(), match[0], modality, tuple(dict.fromkeys(titles))))
    return found


def foreign_finding(foreign: ForeignPlaceholder, family: Family, form: Form | None, *, number: int | None) -> Finding:
    """Return the finding. `number`: the item of the modality that still lacks its placeholder, if any."""
    others = len(foreign.titles) - 1
    more = f" and {others} more" if others else ""
    message = f"{foreign.text} is the placeholder of {foreign.titles[0]}{more}; {family.title} reads it as plain text."
    if form is not None and number is not None:
        new = form.numbered_as(number)
        fix = Fix(foreign.start, foreign.end, new, f"replace {foreign.text} with {new}")
    else:
        fix = Fix(foreign.start, foreign.end, "", f"remove {foreign.text}")
    return Finding(FindingKind.FOREIGN, message, foreign.start, foreign.end, fix)


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


Edit = tuple[int, int, str]
_MOST_NAMES = 3


class PlaceholderCount(msgspec.Struct, frozen=True):
    """The placeholders of one modality: how many are needed, and which were found."""

    text: str
    form: Form
    layout: Layout
    wanted: int
    found: Sequence[Occurrence]
    foreign: Sequence[ForeignPlaceholder]
    """Placeholders of other families for this modality."""
    names: Sequence[str] = ()
    """Of the attachments of this modality, in order."""
    lost: Sequence[LostPlaceholders] = ()
    """The placeholders of the original prompt that the text lacks; empty if that is not known."""
    losses: Sequence[Loss] = ()
    """Where special tokens of the original prompt are missing."""


def placeholder_findings(count: PlaceholderCount, insertion: InsertionPoint) -> Iterator[Finding]:
    """Yield at most one finding about the number of placeholders; if that is right, those about how they are
    written."""
    found = count.found
    if len(found) < count.wanted:
        yield _too_few(count, insertion)
    elif len(found) > count.wanted:
        yield _too_many(count)
    elif count.form.numbered and {one.number for one in found} != set(range(1, len(found) + 1)):
        yield _misnumbered(count)
    elif count.form.wrapped:
        yield from (_restored(count, one) or _unwrapped(count, one) for one in found if not one.is_full)


def one_edit(text: str, edits: Sequence[Edit], label: str) -> Fix:
    """Merge several edits, which must not overlap, into one from the first to the last."""
    ordered = sorted(edits)
    start, end = ordered[0][0], max(edit[1] for edit in ordered)
    position, parts = start, []
    for first, last, new in ordered:
        parts += [text[position:first], new]
        position = last
    return Fix(start, end, "".join(parts) + text[position:end], label)


def _too_few(count: PlaceholderCount, insertion: InsertionPoint) -> Finding:
    missing = count.wanted - len(count.found)
    message = f"{_in_words(count)}: {missing} too few."
    numbers, edits = _free_numbers(count)
    if names := _without_place(count, numbers):
        message += f" No place for {names}."
    if len(indexes_of(count.lost)) == missing:
        edits = [(one.start, one.end, one.original) for one in count.lost]
        start, end = count.lost[0].start, count.lost[0].end
        label = f"restore {count.lost[0].original.strip() or count.form.numbered_as(count.lost[0].indexes[0] + 1)}"
    elif len(count.foreign) >= missing:
        replaced = count.foreign[:missing]
        edits += [(one.start, one.end, count.form.numbered_as(numbers[at])) for at, one in enumerate(replaced)]
        label = f"replace {replaced[0].text} with {count.form.core}"
        start, end = replaced[0].start, replaced[0].end
    elif len(hollows := count.form.hollows(count.text)) >= missing:
        cores = [count.form.core.replace("{i}", str(number)) for number in numbers]
        edits += [(at, at, core) for at, core in zip(hollows, cores, strict=False)]
        label = f"insert {cores[0]} between the tokens that belong around it"
        start = end = hollows[0]
    else:
        start, new, where = insertion.of(count.form, count.layout, count.found, numbers)
        edits.append((start, start, new))
        times = f"{missing} × " if missing > 1 else ""
        label = f"insert {times}{count.form.core.replace('{i}', str(numbers[0]))} {where}"
        end = start
    fix = one_edit(count.text, edits, label)
    return Finding(FindingKind.TOO_FEW, message, start, end, fix, blocks=True)


def _free_numbers(count: PlaceholderCount) -> tuple[list[int], list[Edit]]:
    """Return the numbers of the missing placeholders, and the edits that renumber the existing ones."""
    have = [one.number for one in count.found]
    valid = set(range(1, count.wanted + 1))
    if not count.form.numbered or (len(set(have)) == len(have) and set(have) <= valid):
        taken = set(have) if count.form.numbered else set(range(1, len(have) + 1))
        return sorted(valid - taken), []
    return list(range(len(have) + 1, count.wanted + 1)), _renumbered(count, count.found)


def _without_place(count: PlaceholderCount, numbers: Sequence[int]) -> str:
    """Return the names of the attachments that no placeholder stands for; the engine takes them in order."""
    missing = indexes_of(count.lost) if count.lost else [number - 1 for number in numbers]
    names = [one_line(count.names[at]) for at in missing if at < len(count.names)]
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _too_many(count: PlaceholderCount) -> Finding:
    surplus = len(count.found) - count.wanted
    groups = _runs(count.found)
    mark = count.form.core
    if 0 < len(groups) == count.wanted and not count.form.numbered:
        edits: list[Edit] = [(group[0].end, group[-1].end, "") for group in groups if len(group) > 1]
        longest = max(len(group) for group in groups)
        message = f"{_in_words(count)}: write {mark} once for each; the engine repeats it."
        fix = one_edit(count.text, edits, f"write {mark} once instead of {longest:,} times")
        return Finding(FindingKind.TOO_MANY, message, groups[0][0].start, groups[0][-1].end, fix, blocks=True)
    kept = _kept(count)
    removed = [one for one in count.found if one not in kept]
    edits = [(one.outer_start, one.outer_end, "") for one in removed]
    if count.form.numbered and {one.number for one in kept} != set(range(1, len(kept) + 1)):
        edits += _renumbered(count, kept)
    what = count.text[removed[0].start : removed[0].end]
    label = f"remove {what}" if surplus == 1 else f"remove {surplus:,} × {mark}"
    fix = one_edit(count.text, edits, label)
    message = f"{_in_words(count)}: {surplus:,} too many."
    return Finding(FindingKind.TOO_MANY, message, removed[0].start, removed[0].end, fix, blocks=True)


def _kept(count: PlaceholderCount) -> list[Occurrence]:
    """Return the placeholders to keep, as many as needed; of numbered ones first those with a valid, new number."""
    if not count.form.numbered:
        return list(count.found[: count.wanted])
    seen: set[int | None] = set()
    right: list[Occurrence] = []
    for one in count.found:
        if one.number not in seen and 1 <= (one.number or 0) <= count.wanted:
            right.append(one)
            seen.add(one.number)
    others = [one for one in count.found if one not in right]
    return sorted((right + others)[: count.wanted], key=lambda one: one.start)


def _runs(found: Sequence[Occurrence]) -> list[list[Occurrence]]:
    """Group adjacent placeholders: an image as the model is given it, copied from the inspector."""
    groups: list[list[Occurrence]] = []
    for one in found:
        if groups and groups[-1][-1].end == one.start and one.is_full == groups[-1][-1].is_full:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _misnumbered(count: PlaceholderCount) -> Finding:
    numbers = [one.number for one in count.found]
    wrong = next(
        one
        for at, one in enumerate(count.found)
        if one.number in numbers[:at] or not 1 <= (one.number or 0) <= count.wanted
    )
    said = count.text[wrong.start : wrong.end]
    if wrong.number in numbers[: count.found.index(wrong)]:
        what = f"{said} appears twice"
    else:
        what = f"{said} has the wrong number"
    message = f"{what}: {_things(count.form.modality, count.wanted)} are numbered 1 to {count.wanted}."
    fix = one_edit(count.text, _renumbered(count, count.found), "number the placeholders in order")
    return Finding(FindingKind.NUMBERING, message, wrong.start, wrong.end, fix, blocks=True)


def _renumbered(count: PlaceholderCount, kept: Sequence[Occurrence]) -> list[Edit]:
    return [(one.start, one.end, count.form.numbered_as(number)) for number, one in enumerate(kept, 1)]


def _unwrapped(count: PlaceholderCount, bare: Occurrence) -> Finding:
    text, form = count.text, count.form
    before, _, behind = form.full.partition(form.core)
    near = max(0, bare.start - 4 * len(form.full))
    head = re.search(rf"{_spaced(before)}\s*\Z", text[near : bare.start]) if before else None
    tail = re.match(rf"\s*{_spaced(behind)}", text[bare.end : bare.end + 4 * len(form.full)]) if behind else None
    start = near + head.start() if head else bare.start
    end = bare.end + tail.end() if tail else bare.end
    if (head or not before) and (tail or not behind):
        message = f"White space separates {form.core} from {before} or {behind}; the model was trained without it."
    else:
        message = f"{form.core} lacks {before} and {behind} around it; the model was trained with them."
    fix = Fix(start, end, form.full, f"write {form.full}")
    return Finding(FindingKind.UNWRAPPED, message, bare.start, bare.end, fix)


def _restored(count: PlaceholderCount, bare: Occurrence) -> Finding | None:
    """Restore the tokens around a placeholder that were deleted from the original prompt."""
    most = len(count.form.full)
    for loss in count.losses:
        is_near = bare.start - most <= loss.start <= bare.end + most
        if is_near and loss.start == loss.end and loss.original and len(loss.original) < most:
            message = f"{count.form.core} lacks {loss.original} beside it; the model was trained with it."
            fix = Fix(loss.start, loss.end, loss.original, f"restore {loss.original}")
            return Finding(FindingKind.UNWRAPPED, message, bare.start, bare.end, fix)
    return None


def _spaced(text: str) -> str:
    """Return a pattern for the text, with white space anywhere in it."""
    return r"\s*".join(re.escape(one) for one in text if not one.isspace())


def _in_words(count: PlaceholderCount) -> str:
    things = _things(count.form.modality, count.wanted)
    found = len(count.found)
    return f"The prompt has {found:,} {count.form.modality} placeholder{'' if found == 1 else 's'} for {things}"


def _things(modality: Modality, count: int) -> str:
    return f"no {modality}" if not count else f"{count} {modality}{'' if count == 1 else 's'}"
