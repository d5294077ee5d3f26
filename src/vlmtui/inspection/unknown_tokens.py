"""Find texts that look like special tokens but are not in the tokenizer."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from vlmtui.inspection.findings import Finding, FindingKind, Fix

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
