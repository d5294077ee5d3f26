"""Formats differences as JSON and writes comparison documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from vlmtui.cli.output import note
from vlmtui.domain.attachment import Attachment
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import write_output
from vlmtui.inspection.replay import Comparison, MediaRecord
from vlmtui.session.comparison_export import ENDINGS, FORMATS
from vlmtui.session.likelihood import LaneScore

_INSIDE_MAX = 100_000_000
"""Most bytes of an attachment embedded in a document; of larger ones only the hash is written."""


def difference_json(comparison: Comparison) -> dict[str, object]:
    """Return how the second answer differs from the first. Answers are identical if all their tokens are."""
    found = comparison.difference
    if found is None or any(side.failure for side in comparison.sides):
        empty = ("prompts_identical", "answers_identical", "first_divergence", "prompt_first_divergence")
        return dict.fromkeys(empty)
    return {
        "prompts_identical": found.prompts_identical,
        "answers_identical": found.answers_identical and found.answer_first_divergence is None,
        "first_divergence": found.answer_first_divergence,
        "prompt_first_divergence": found.prompt_first_divergence,
    }


def likelihood_json(score: LaneScore) -> dict[str, object]:
    """Return how likely the first answer is under another lane's prompt."""
    drop = score.drop
    return {
        "ratio": score.ratio,
        "log_ratio": score.log_ratio,
        "tokens": score.tokens,
        "largest_drop": None if drop is None else msgspec.to_builtins(drop),
    }


def export_suffix(name: str) -> str:
    """Return the format for a file name. Raises VlmtuiError(BAD_USAGE) for an unknown extension."""
    suffix = Path(name).suffix.lower()
    if suffix not in FORMATS:
        raise VlmtuiError(ErrorKind.BAD_USAGE, f"{name} does not say what to write: its name must end in {ENDINGS}.")
    return suffix


def write_comparison(name: str, comparison: Comparison, attachments: Sequence[Attachment]) -> None:
    """Write the document to a file. Raises VlmtuiError."""
    paths = {item.sha256: Path(item.path) for item in attachments}

    def read(item: MediaRecord) -> bytes | None:
        path = paths.get(item.sha256)
        try:
            if path is not None and path.stat().st_size <= _INSIDE_MAX:
                return path.read_bytes()
            reason = "is too large for the document"
        except OSError:
            reason = "is gone from the disk"
        note(f"warning: {item.name} {reason}: only its hash is written.")
        return None

    write_output(Path(name), FORMATS[export_suffix(name)](comparison, read))
    note(f"Written: {name}")
