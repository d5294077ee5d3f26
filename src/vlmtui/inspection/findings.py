"""Findings about a raw prompt, and the edits that fix them."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class FindingKind(StrEnum):
    """What is wrong."""

    TOO_FEW = "too_few"
    """Fewer placeholders than attachments of a modality."""
    TOO_MANY = "too_many"
    NUMBERING = "numbering"
    """Numbered placeholders that do not count from 1 without repeats and gaps."""
    NOT_TAKEN = "not_taken"
    """The family accepts nothing of this modality."""
    FOREIGN = "foreign"
    """A placeholder of another family."""
    UNWRAPPED = "unwrapped"
    """A placeholder without the tokens that belong around it."""
    UNKNOWN_TOKEN = "unknown_token"
    """A text that looks like a special token but is not one of the tokenizer's."""
    TORN_TOKEN = "torn_token"
    """A part of a special token, or one with a space in it."""
    STOP_AT_END = "stop_at_end"
    """The prompt ends with a token that ends the answer."""
    END_OF_TURN = "end_of_turn"
    """A user's turn is not closed."""
    GENERATION_PROMPT = "generation_prompt"
    """The generation prompt is missing or incomplete."""
    BOS_MISSING = "bos_missing"
    BOS_DOUBLED = "bos_doubled"


class Fix(msgspec.Struct, frozen=True):
    """One edit of the text that clears its finding."""

    start: int
    end: int
    replacement: str
    label: str
    """For people: `insert <|image_pad|> at the beginning`."""


class Finding(msgspec.Struct, frozen=True):
    """Something wrong with a raw prompt."""

    kind: FindingKind
    message: str
    """One sentence; may quote the prompt, so hostile."""
    start: int
    """Offset in the text; with `end`, the range to mark. Both are equal where something is missing."""
    end: int
    fix: Fix | None = None
    """Valid for the checked text only: after any other edit, check again."""
    blocks: bool = False
    """The engine would reject the prompt or be harmed by it."""


def apply_fix(text: str, fix: Fix) -> str:
    """Return the text with the edit applied."""
    return text[: fix.start] + fix.replacement + text[fix.end :]
