"""Check a raw prompt before it is sent: placeholders against attachments, special tokens, and turns.

`check_raw` returns findings. Most have a fix, which is one edit of the text.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum

import msgspec

from vlmtui.domain.conversation import Attachment, Modality
from vlmtui.inspection.placeholders import MODALITIES, Form, Occurrence, all_forms, forms_of, occurrences, pattern_of
from vlmtui.inspection.prompt_turns import head_of, own_tokens, segments, special_pattern, tail_of, template_for
from vlmtui.registry.schema import Family, Layout, RawTemplate
from vlmtui.registry.unlisted import UNLISTED
from vlmtui.text import counted, one_line, quoted

_SURE = r"<\|[^\s<>|]{1,80}\|>|<｜[^\s<>｜]{1,80}｜>"
_NEAR = r"\[/?[A-Z][A-Z_]+\]|<\|[^\s<>|]{1,80}>|<[^\s<>|]{1,80}\|>|</?[a-z]+(?:_[a-z]+)+>"
"""Only reported if a known token is similar, because text and code also have this form."""
_TOKEN = re.compile(f"(?P<sure>{_SURE})|{_NEAR}")
_BREAK = re.compile(r"\n|<[^<>\s]+>|\[[^\[\]\s]+\]")


class FindingKind(StrEnum):
    TOO_FEW = "too_few"
    TOO_MANY = "too_many"
    NUMBERING = "numbering"
    """Numbered placeholders that are not 1, 2, 3, …"""
    NOT_TAKEN = "not_taken"
    """The model family does not accept this modality."""
    FOREIGN = "foreign"
    UNWRAPPED = "unwrapped"
    """A placeholder without the tokens that belong around it."""
    UNKNOWN_TOKEN = "unknown_token"
    """A text that looks like a special token but is not in the vocabulary."""
    TORN_TOKEN = "torn_token"
    """A part of a special token, or a special token with a space in it."""
    STOP_AT_END = "stop_at_end"
    """The prompt ends with a token that ends the answer."""
    END_OF_TURN = "end_of_turn"
    """A user's turn lacks its end-of-turn token."""
    GENERATION_PROMPT = "generation_prompt"
    BOS_MISSING = "bos_missing"
    BOS_DOUBLED = "bos_doubled"


class Fix(msgspec.Struct, frozen=True):
    """An edit of the text that clears the finding: replace `start:end`."""

    start: int
    end: int
    replacement: str
    label: str
    """The edit in words: `insert <|image_pad|> at the beginning`."""


class Finding(msgspec.Struct, frozen=True):
    kind: FindingKind
    message: str
    """A sentence, which may quote the prompt. Hostile."""
    start: int
    """`start:end` is the range of characters to mark, empty if something is missing there."""
    end: int
    fix: Fix | None = None
    """Valid only for the checked text, not after another edit."""
    blocks: bool = False
    """True if the engine would reject the prompt or crash."""


def special_looking(text: str) -> set[str]:
    """Return the parts of a text that look like special tokens, even if ordinary text or code might contain them
    (`[INST]`)."""
    return {match[0] for match in _TOKEN.finditer(text)}


def unknown_tokens(text: str, known: AbstractSet[str], taken: Sequence[tuple[int, int]]) -> Iterator[Finding]:
    """Yield findings for texts that look like special tokens and are not in `known`. The fix is the most similar known
    token. `taken`: ranges of the text to skip."""
    spans = sorted(taken)
    choices = sorted(known)
    for match in _TOKEN.finditer(text):
        if match[0] in known or any(start < match.end() and match.start() < end for start, end in spans):
            continue
        cutoff = 0.6 if match["sure"] else 0.8
        near = difflib.get_close_matches(match[0], choices, n=1, cutoff=cutoff)
        if not near and not match["sure"]:
            continue
        fix = Fix(match.start(), match.end(), near[0], f"replace {match[0]} with {near[0]}") if near else None
        ask = f" Did you mean {near[0]}?" if near else ""
        message = f"{match[0]} is not a special token here; it is tokenized as plain text.{ask}"
        yield Finding(FindingKind.UNKNOWN_TOKEN, message, match.start(), match.end(), fix)


_SPACED = re.compile(r"<[|｜]?[^<>\n]{1,80}>|\[[^\[\]\n]{1,80}\]")
_END = re.compile(r"(?<![\w<|｜])[\w]{1,80}[|｜]>")
_BEGINNING = re.compile(r"<[|｜]\w{1,80}(?![\w|｜>])|<\w{4,80}(?=\s|$)")
"""A token without its end. See `_MOST` for tokens without `|`."""
_SIGNS = 2
"""The number of characters before the name in a token such as `<|name|>`."""
_MOST = 0.6
"""The least share of a token without `|` that counts as its beginning: code and text also have `<` before words."""


def torn_tokens(text: str, tokens: AbstractSet[str], taken: Sequence[tuple[int, int]]) -> Iterator[Finding]:
    """Yield a finding for each special token that is incomplete or has spaces in it. The fix is the whole token.

    `tokens`: the special tokens. `taken`: ranges of the text to skip.
    """
    pattern = special_pattern(tokens)
    spans = [*taken, *(match.span() for match in (pattern.finditer(text) if pattern else ()))]
    for start, end, whole in _partial(text, tokens):
        if any(first < end and start < last for first, last in spans):
            continue
        spans.append((start, end))
        torn = text[start:end]
        message = f"{torn} is not {whole}: the special token is torn, its rest is tokenized as plain text."
        fix = Fix(start, end, whole, f"restore {whole}")
        yield Finding(FindingKind.TORN_TOKEN, message, start, end, fix)


def _partial(text: str, tokens: AbstractSet[str]) -> Iterator[tuple[int, int, str]]:
    for match in _SPACED.finditer(text):
        whole = re.sub(r"\s+", "", match[0])
        if whole != match[0] and whole in tokens:
            yield match.start(), match.end(), whole
    for pattern in (_END, _BEGINNING):
        for match in pattern.finditer(text):
            piece = match[0]
            begun = [token for token in tokens if token[1:_SIGNS] in ("|", "｜") and piece.endswith(token[_SIGNS:])]
            if pattern is _END and begun:
                whole = max(begun, key=len)
                yield match.end() - len(whole) + _SIGNS, match.end(), whole
                continue
            fits = [token for token in tokens if token != piece and _is_part(piece, token)]
            if len(fits) == 1:
                yield match.start(), match.end(), fits[0]


def _is_part(piece: str, token: str) -> bool:
    if piece[0] != "<":
        return token.endswith(piece)
    return token.startswith(piece) and (piece[1:2] in ("|", "｜") or len(piece) >= _MOST * len(token))


class ForeignPlaceholder(msgspec.Struct, frozen=True):
    """A placeholder in a text that belongs to other model families."""

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
    """Return the placeholders of other families in the text.

    `own`: tokens to ignore, because they have a meaning in this family or end answers. `taken`: ranges of the text to
    skip.
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
    """Return the finding about another family's placeholder.

    `form`: this family's own placeholder of the same modality. `number`: the number of an item that has no placeholder
    yet; None if all have one.
    """
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
    """The family's template of turns; None if unknown."""

    def of(
        self, form: Form, layout: Layout, found: Sequence[Occurrence], numbers: Sequence[int]
    ) -> tuple[int, str, str]:
        """Return (offset, text to insert, description of the place) for the items with these numbers.

        `found`: the placeholders in the text.
        """
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
    """Return the template of the family whose special token for a user turn is in the text, or None. If several
    families match, the longest token wins."""
    best: RawTemplate | None = None
    for family in families:
        head = head_of(family.raw.user)
        if head[:1] in ("<", "[") and head in text and (best is None or len(head) > len(head_of(best.user))):
            best = family.raw
    return best


Edit = tuple[int, int, str]
_MOST_NAMES = 3


class PlaceholderCount(msgspec.Struct, frozen=True):
    """The placeholders of one modality in a text, and how many there should be (`wanted`, the number of items)."""

    text: str
    form: Form
    layout: Layout
    wanted: int
    found: Sequence[Occurrence]
    foreign: Sequence[ForeignPlaceholder]
    """Placeholders of other families for this modality."""
    names: Sequence[str] = ()
    """The names of the attachments of this modality, in order."""
    broken: Sequence[Finding] = ()
    """The findings about incomplete and misspelt placeholders of this modality."""


def placeholder_findings(count: PlaceholderCount, insertion: InsertionPoint) -> Iterator[Finding]:
    """Yield a finding about the number of placeholders or, if that is right, findings about their form."""
    found = count.found
    if len(found) < count.wanted:
        yield _too_few(count, insertion)
    elif len(found) > count.wanted:
        yield _too_many(count)
    elif count.form.numbered and {one.number for one in found} != set(range(1, len(found) + 1)):
        yield _misnumbered(count)
    elif count.form.wrapped:
        yield from (_unwrapped(count, one) for one in found if not one.is_full)


def one_edit(text: str, edits: Sequence[Edit], label: str) -> Fix:
    """Merge edits (start, end, replacement), which must not overlap, into one fix."""
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
    fixes = [one.fix for one in count.broken if one.fix is not None]
    if len(fixes) >= missing:
        edits += [(fix.start, fix.end, fix.replacement) for fix in fixes[:missing]]
        start, end, label = fixes[0].start, fixes[0].end, fixes[0].label
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
    """Return the numbers of the missing placeholders. If existing placeholders have wrong numbers, also return edits
    that renumber them."""
    have = [one.number for one in count.found]
    valid = set(range(1, count.wanted + 1))
    if not count.form.numbered or (len(set(have)) == len(have) and set(have) <= valid):
        taken = set(have) if count.form.numbered else set(range(1, len(have) + 1))
        return sorted(valid - taken), []
    return list(range(len(have) + 1, count.wanted + 1)), _renumbered(count, count.found)


def _without_place(count: PlaceholderCount, numbers: Sequence[int]) -> str:
    """Return a list in words of the attachments with these numbers, which have no placeholder."""
    names = [one_line(count.names[number - 1]) for number in numbers if number <= len(count.names)]
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
    """Return the `wanted` placeholders that stay when there are too many. Placeholders with a valid, unused number are
    kept first."""
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
    """Group adjacent placeholders. An image's expanded placeholder, copied from the inspector, is such a group."""
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


def _spaced(text: str) -> str:
    return r"\s*".join(re.escape(one) for one in text if not one.isspace())


def _in_words(count: PlaceholderCount) -> str:
    things = _things(count.form.modality, count.wanted)
    return f"The prompt has {counted(len(count.found), f'{count.form.modality} placeholder')} for {things}"


def _things(modality: Modality, count: int) -> str:
    return counted(count, modality) if count else f"no {modality}"


class CheckedPrompt(msgspec.Struct, frozen=True):
    """A raw prompt, and the template to check it against."""

    text: str
    raw: RawTemplate | None
    """None if only the model's own chat template writes prompts."""
    exact: bool
    """True if `raw` is the template for this number of items, so that white space can be compared."""
    lead: int
    """The offset after the placeholders at the beginning."""


def template_findings(
    shape: CheckedPrompt, stops: AbstractSet[str], bos: str | None, *, adds_bos: bool
) -> Iterator[Finding]:
    yield from _beginning(shape, bos, adds_bos=adds_bos)
    yield from _open_turns(shape)
    ending = _generation_prompt(shape)
    if ending is not None:
        yield ending
    if ending is None or shape.text.strip() == "":
        yield from _stop_at_end(shape, stops)


def _beginning(shape: CheckedPrompt, bos: str | None, *, adds_bos: bool) -> Iterator[Finding]:
    text, start = shape.text, shape.lead
    start += len(text[start:]) - len(text[start:].lstrip())
    if bos and text.startswith(bos, start) and (adds_bos or text.startswith(bos, start + len(bos))):
        count = 0
        while text.startswith(bos, start + count * len(bos)):
            count += 1
        why = "the tokenizer adds one, too" if adds_bos else f"it appears {count} times"
        surplus = start + (count if adds_bos else count - 1) * len(bos)
        fix = Fix(start, surplus, "", f"remove {bos}")
        yield Finding(FindingKind.BOS_DOUBLED, f"The BOS token {bos} is duplicated: {why}.", start, surplus, fix)
    elif shape.raw is not None and shape.raw.bos.strip():
        wanted = shape.raw.bos.removeprefix(bos or "") if adds_bos else shape.raw.bos
        known = not (adds_bos and bos is None)
        if known and wanted.strip() and not text.startswith(wanted.strip(), start):
            message = f"The prompt does not begin with {quoted(wanted.strip())} like the template."
            fix = Fix(shape.lead, shape.lead, wanted, f"insert {wanted.strip()} at the beginning")
            yield Finding(FindingKind.BOS_MISSING, message, shape.lead, shape.lead, fix)


def _open_turns(shape: CheckedPrompt) -> Iterator[Finding]:
    raw = shape.raw
    tail = tail_of(raw.user) if raw else ""
    if raw is None or not tail.strip():
        return
    for segment in segments(shape.text, raw):
        if segment.role != "user":
            continue
        start = segment.start
        closing = tail_of(raw.assistant).strip()
        if not head_of(raw.user) and closing:
            start = max(start, shape.text.rfind(closing) + len(closing) if closing in shape.text else 0)
        content = shape.text[start : segment.end]
        if tail.strip() in content:
            continue
        end = start + len(content.rstrip())
        fix = Fix(end, segment.end, tail, f"close the turn with {tail.strip()}")
        message = f"The user turn is not closed: {tail.strip()} is missing."
        yield Finding(FindingKind.END_OF_TURN, message, end, end, fix)


def _generation_prompt(shape: CheckedPrompt) -> Finding | None:
    text, raw = shape.text, shape.raw
    wanted = raw.generation_prompt if raw else ""
    if raw is None or not wanted.strip():
        return None
    users = [one for one in segments(text, raw) if one.role == "user"]
    start = users[-1].start if users and head_of(raw.user) else 0
    mark = wanted.strip() if shape.exact else wanted.strip().splitlines()[0]
    at = text.rfind(mark, start)
    if at < 0:
        fix = _completed(text, raw)
        message = f"The generation prompt {quoted(wanted)} is missing at the end."
        return Finding(FindingKind.GENERATION_PROMPT, message, len(text.rstrip()), len(text), fix)
    end = at + len(mark)
    space = wanted[len(wanted.rstrip()) :]
    if not shape.exact or text[end:].strip() or text[end:] == space:
        return None
    fix = Fix(end, len(text), space, "end with the white space of the template")
    message = f"White space differs after the generation prompt: the template ends with {quoted(wanted)}."
    return Finding(FindingKind.GENERATION_PROMPT, message, end, len(text), fix)


def _completed(text: str, raw: RawTemplate) -> Fix:
    wanted, said = raw.generation_prompt, text.rstrip()
    label = f"insert {quoted(wanted)} at the end"
    begun = [wanted[: match.end()].rstrip() for match in _BREAK.finditer(wanted)] + [head_of(raw.assistant)]
    for part in sorted(filter(None, begun), key=len, reverse=True):
        if wanted.startswith(part) and said.endswith(part):
            return Fix(len(said) - len(part), len(text), wanted, label)
    tail = tail_of(raw.user)
    if tail.strip() and said.endswith(tail.strip()):
        return Fix(len(said), len(text), tail[len(tail.rstrip()) :] + wanted, label)
    return Fix(len(text), len(text), wanted, label)


def _stop_at_end(shape: CheckedPrompt, stops: AbstractSet[str]) -> Iterator[Finding]:
    raw, said = shape.raw, shape.text.rstrip()
    if raw is not None:
        expected = (raw.generation_prompt or tail_of(raw.user)).strip()
        if expected and said.endswith(expected):
            return
    first, end = "", len(said)
    while stop := max((one for one in stops if one and said[:end].endswith(one)), key=len, default=""):
        first = first or stop
        end = len(said[: end - len(stop)].rstrip())
    if not first:
        return
    message = f"The prompt ends with the stop token {first}: the answer may be empty."
    start = len(said) - len(first)
    fix = Fix(end, len(shape.text), "", f"remove {first}") if raw is not None else None
    yield Finding(FindingKind.STOP_AT_END, message, start, len(said), fix)


_Found = dict[Modality, tuple[Layout, Form, list[Occurrence]]]


def check_raw(
    text: str,
    attachments: Sequence[Attachment],
    family: Family,
    *,
    special_tokens: frozenset[str],
    stop_tokens: tuple[str, ...],
    bos: str | None,
    adds_bos: bool,
    families: Iterable[Family] = (),
) -> list[Finding]:
    """Return the problems of a raw prompt with these attachments; blocking findings first.

    `special_tokens`, `stop_tokens`, `bos`: texts of the tokenizer's tokens. Without `special_tokens`, no token is
    reported as unknown. `adds_bos`: the tokenizer adds BOS to a raw prompt. `families`: the registry, to recognize
    placeholders of other families.
    """
    every = tuple(families)
    wanted = Counter(item.modality for item in attachments)
    several = max(wanted.values(), default=0) > 1
    stops = {*stop_tokens, *family.stop_tokens}
    no_core = stops.union(*(other.stop_tokens for other in every))
    own = own_tokens(family)
    found = _found(text, family, no_core, several=several)
    taken = [(one.start, one.end) for _, _, places in found.values() for one in places]
    is_unlisted = family.family == UNLISTED  # its own placeholders may be unknown
    foreign = [] if is_unlisted else foreign_placeholders(text, family, every, own | no_core, taken)
    template = template_for(family, several=several)
    insertion = InsertionPoint(text, template[0] if template else template_in_text(text, every))

    tokens = _tokens(special_tokens, family)
    taken += [(one.start, one.end) for one in foreign]
    wrong = list(torn_tokens(text, tokens, taken))
    if special_tokens:
        wrong += unknown_tokens(text, tokens, [*taken, *((one.start, one.end) for one in wrong)])
    counts = list(_counted(text, wanted, found, foreign, attachments, wrong))
    findings = [*_not_taken(wanted, family), *_foreign(foreign, family, found, wanted)]
    findings += [one for count in counts for one in placeholder_findings(count, insertion)]
    raw, is_exact = template or (None, False)
    pattern = pattern_of({form.full for _, form, _ in found.values()})
    lead = re.match(rf"(?:\s*(?:{pattern}))*", text) if pattern else None
    shape = CheckedPrompt(text, raw, is_exact, lead.end() if lead else 0)
    findings += template_findings(shape, stops - {"@eos_token"}, bos, adds_bos=adds_bos)
    return sorted(_unexplained(findings, wrong, counts), key=lambda finding: (not finding.blocks, finding.start))


def _tokens(special_tokens: frozenset[str], family: Family) -> frozenset[str]:
    own = own_tokens(family)
    return special_tokens | {token for token in own if "{i}" not in token and not token.startswith("@")}


def _found(text: str, family: Family, no_core: AbstractSet[str], *, several: bool) -> _Found:
    found: _Found = {}
    for modality in MODALITIES:
        written = forms_of(family, modality, several=several)
        if written is not None:
            found[modality] = (*written, occurrences(text, written[1], no_core))
    return found


def _not_taken(wanted: Counter[Modality], family: Family) -> Iterator[Finding]:
    for modality in wanted:
        if modality not in family.takes:
            message = f"{family.title} does not accept {modality}s: remove the attachment, or choose another model."
            yield Finding(FindingKind.NOT_TAKEN, message, 0, 0, blocks=True)


def _counted(
    text: str,
    wanted: Counter[Modality],
    found: _Found,
    foreign: Sequence[ForeignPlaceholder],
    attachments: Sequence[Attachment],
    wrong: Sequence[Finding],
) -> Iterator[PlaceholderCount]:
    for modality, (layout, form, places) in found.items():
        others = [one for one in foreign if one.modality == modality]
        names = [item.name for item in attachments if item.modality == modality]
        broken = [one for one in wrong if one.fix and re.fullmatch(pattern_of([form.core]), one.fix.replacement)]
        yield PlaceholderCount(text, form, layout, wanted[modality], places, others, names, broken)


def _unexplained(
    findings: Sequence[Finding], wrong: Sequence[Finding], counts: Sequence[PlaceholderCount]
) -> Iterator[Finding]:
    """Yield the findings that do not only follow from another finding.

    Leaves out a placeholder without surrounding tokens next to an incomplete or unknown token, and a token in `wrong`
    if a missing placeholder is restored by its fix.
    """
    for one in findings:
        is_beside = any(other.start <= one.end and one.start <= other.end for other in wrong)
        if one.kind is not FindingKind.UNWRAPPED or not is_beside:
            yield one
    restoring = [one for count in counts if len(count.found) < count.wanted for one in count.broken]
    yield from (one for one in wrong if one not in restoring)


def _foreign(
    foreign: Iterable[ForeignPlaceholder], family: Family, found: _Found, wanted: Counter[Modality]
) -> Iterator[Finding]:
    """Yield a finding for each placeholder of another family. Its fix puts a missing placeholder of this family there
    or, if none is missing, removes the text."""
    lacking: dict[Modality, list[int]] = {}
    for modality, (_, form, places) in found.items():
        taken = {one.number for one in places} if form.numbered else set(range(1, len(places) + 1))
        free = [number for number in range(1, wanted[modality] + 1) if number not in taken]
        lacking[modality] = free[: max(0, wanted[modality] - len(places))]
    for one in foreign:
        numbers = lacking.get(one.modality)
        own = found[one.modality][1] if one.modality in found else None
        yield foreign_finding(one, family, own, number=numbers.pop(0) if numbers else None)
