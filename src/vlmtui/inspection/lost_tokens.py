"""What a raw prompt has lost of the prompt it was made from: special tokens that were deleted or torn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from difflib import SequenceMatcher
from itertools import accumulate

import msgspec

from vlmtui.inspection.placeholder_forms import Form, Occurrence, occurrences, pattern_of
from vlmtui.inspection.sequence_diff import diff_blocks

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
