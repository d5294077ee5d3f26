"""The special tokens of a raw prompt: deleted, torn, or unknown to the tokenizer."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from difflib import SequenceMatcher
from itertools import accumulate

import msgspec

from vlmtui.inspection.findings import Finding, FindingKind, Fix
from vlmtui.inspection.placeholders import Form, Occurrence, occurrences, pattern_of
from vlmtui.inspection.sequence_diff import diff_blocks

_SURE = r"<\|[^\s<>|]{1,80}\|>|<｜[^\s<>｜]{1,80}｜>"
_NEAR = r"\[/?[A-Z][A-Z_]+\]|<\|[^\s<>|]{1,80}>|<[^\s<>|]{1,80}\|>|</?[a-z]+(?:_[a-z]+)+>"
"""Reported only if a known token is similar: these shapes are common in text and code."""
_TOKEN = re.compile(f"(?P<sure>{_SURE})|{_NEAR}")


def special_looking(text: str) -> set[str]:
    """Return the texts that look like special tokens, also those that are common in text and code."""
    return {match[0] for match in _TOKEN.finditer(text)}


def unknown_tokens(text: str, known: AbstractSet[str], taken: Sequence[tuple[int, int]]) -> Iterator[Finding]:
    """Yield findings for those that overlap no span in `taken`, with the most similar of `known` as the fix."""
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


_LENGTH_MAX = 200_000
"""Characters up to which a prompt is compared with the one it was made from."""
_SIMILAR = 0.75
_CHANCE = 3


class Loss(msgspec.Struct, frozen=True):
    """A place where `text[start:end]` stands instead of `original`, which has special tokens."""

    start: int
    end: int
    original: str
    original_start: int
    """Offset in the original prompt."""
    is_torn: bool
    """Whether `text[start:end]` is what is left of `original`; otherwise that was deleted, and other text may stand
    there."""


class LostPlaceholders(msgspec.Struct, frozen=True):
    """Placeholders that were deleted or torn at one place, and the edit that restores them."""

    indexes: tuple[int, ...]
    """Their places among the placeholders of the modality, from 0."""
    start: int
    end: int
    original: str


def losses(text: str, original: str, tokens: AbstractSet[str]) -> list[Loss]:
    """Return the places where special tokens of `original` are missing or torn in `text`, in order, and those where
    white space was added: their own `original` is empty."""
    if not original or text == original or max(len(text), len(original)) > _LENGTH_MAX:
        return []
    there, here = _pieces(original, tokens), _pieces(text, tokens)
    there_at, here_at = ([0, *accumulate(map(len, pieces))] for pieces in (there, here))
    found = []
    for (first, last), (left, right) in _differing(there, here):
        gone = there[first:last]
        start, end, was = here_at[left], here_at[right], "".join(gone)
        if any(len(piece) > 1 for piece in gone) or (not gone and text[start:end].isspace()):
            found.append(Loss(start, end, was, there_at[first], not was or _is_torn(text[start:end], [was, *gone])))
    return found


def _differing(there: Sequence[str], here: Sequence[str]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield the ranges of pieces that differ. A few characters that are equal by chance do not end one."""
    blocks = diff_blocks(there, here)
    waiting: tuple[tuple[int, int], tuple[int, int]] | None = None
    for at, block in enumerate(blocks):
        pieces = there[block.left_start : block.left_end]
        is_chance = 0 < at < len(blocks) - 1 and len("".join(pieces)) <= _CHANCE
        if block.operation == "equal" and not is_chance:
            if waiting:
                yield waiting
            waiting = None
        elif waiting:
            waiting = (waiting[0][0], block.left_end), (waiting[1][0], block.right_end)
        else:
            waiting = (block.left_start, block.left_end), (block.right_start, block.right_end)
    if waiting:
        yield waiting


def lost_placeholders(
    text: str, original: str, form: Form, tokens: AbstractSet[str], no_core: AbstractSet[str], *, found: int
) -> list[LostPlaceholders]:
    """Return the placeholders of `original` that `text` has lost. Empty where it has other ones, too: then its own
    are not those of `original`."""
    places = occurrences(original, form, no_core)
    cores = set(re.findall(pattern_of([form.core]), original))
    all_lost = (_lost_in(loss, original, places, tokens) for loss in losses(text, original, tokens | cores))
    lost = [one for one in all_lost if one is not None]
    return lost if len(indexes_of(lost)) == len(places) - found else []


def indexes_of(lost: Iterable[LostPlaceholders]) -> list[int]:
    """Return the places of the lost placeholders, each once: one may have been torn apart."""
    return sorted({index for one in lost for index in one.indexes})


def _lost_in(
    loss: Loss, original: str, places: Sequence[Occurrence], tokens: AbstractSet[str]
) -> LostPlaceholders | None:
    begin, edge = loss.original_start, loss.original_start + len(loss.original)
    inside = [(at, place) for at, place in enumerate(places) if place.start < edge and begin < place.end]
    if not inside:
        return None
    indexes = tuple(at for at, _ in inside)
    outer = sum(place.outer_end - place.outer_start for _, place in inside)
    if loss.is_torn or (loss.start == loss.end and len(loss.original) <= outer):
        return LostPlaceholders(indexes, loss.start, loss.end, loss.original)
    first, last = max(begin, inside[0][1].outer_start), min(edge, inside[-1][1].outer_end)
    first, last = _with_tokens(original, (first, last), (begin, edge), tokens)
    return LostPlaceholders(indexes, loss.start, loss.start, original[first:last])


def _with_tokens(
    original: str, span: tuple[int, int], limits: tuple[int, int], tokens: AbstractSet[str]
) -> tuple[int, int]:
    """Return the span with the special tokens and line breaks right beside it, within the limits."""
    (first, last), (begin, edge) = span, limits
    any_of = "|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True)) or r"(?!)"
    before = re.search(rf"(?:{any_of}|\s)+\Z", original[begin:first])
    behind = re.match(rf"(?:{any_of}|\s)+", original[last:edge])
    return (begin + before.start() if before else first), (last + behind.end() if behind else last)


def _pieces(text: str, tokens: AbstractSet[str]) -> list[str]:
    """Split a text into its special tokens and single characters."""
    several = sorted((token for token in tokens if len(token) > 1), key=len, reverse=True)
    pattern = "|".join([*map(re.escape, several), "."])
    return re.findall(pattern, text, re.DOTALL)


def _is_torn(left: str, original: Sequence[str]) -> bool:
    """Whether `left` is what is left of one of these: a beginning or end with one of its signs, or almost all of it."""
    if not left.strip() or re.fullmatch(r"[\w\s]+", left):
        return False
    tokens = [token for token in original if len(token) > 1]
    if any(token.startswith(left) or token.endswith(left) for token in tokens):
        return True
    bare, whole = re.sub(r"\s+", "", left), re.sub(r"\s+", "", original[0])
    return len(bare) <= 2 * len(whole) and SequenceMatcher(None, bare, whole).ratio() >= _SIMILAR


_SPACED = re.compile(r"<[|｜]?[^<>\n]{1,80}>|\[[^\[\]\n]{1,80}\]")
_END = re.compile(r"(?<![\w<|｜])[\w]{1,80}[|｜]>")
_BEGINNING = re.compile(r"<[|｜]\w{1,80}(?![\w|｜>])|<\w{4,80}(?=\s|$)")
"""A word with its opening sign alone. Of a token without `|` most is needed: code and text have `<` before words."""
_SIGNS = 2
"""Characters before the name of a token with `|`."""
_MOST = 0.6
"""The least part of a token without `|` that its beginning has."""


def torn_tokens(
    text: str, original: str, tokens: AbstractSet[str], taken: Sequence[tuple[int, int]]
) -> Iterator[Finding]:
    """Yield findings that overlap no span in `taken`, with the whole token as the fix: those of the prompt that the
    text was made from, then what can only be a part of one of `tokens`."""
    any_of = "|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True)) or r"(?!)"
    spans = [*taken, *(match.span() for match in re.finditer(any_of, text))]
    found = [
        (loss.start, loss.end, loss.original)
        for loss in losses(text, original, tokens)
        if loss.is_torn and loss.original
    ]
    for start, end, whole in [*found, *_partial(text, tokens)]:
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
