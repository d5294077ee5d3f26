"""Find special tokens that were torn by an edit: `<|vision_st art|>`, `rt|>`, `<|im_start`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from vlmtui.inspection.findings import Finding, FindingKind, Fix
from vlmtui.inspection.lost_tokens import losses

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
