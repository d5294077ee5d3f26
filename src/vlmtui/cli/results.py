"""Formats answers as JSON and writes comparison documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from vlmtui.cli.output import note
from vlmtui.domain.attachment import Attachment
from vlmtui.domain.generation import Cancelled, Failed, Finished, TokenLogprob, Vocabulary
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import write_output
from vlmtui.inspection.build import texts_of
from vlmtui.inspection.replay import Comparison, MediaRecord
from vlmtui.session.comparison_export import ENDINGS, FORMATS
from vlmtui.session.generation import Answer
from vlmtui.session.likelihood import LaneScore

_INSIDE_MAX = 100_000_000
"""Most bytes of an attachment embedded in a document; of larger ones only the hash is written."""


def answer_json(model: str, answer: Answer, load_s: float) -> dict[str, object]:
    """Return the JSON of `ask --json`. `load_s`: seconds until the engine was ready."""
    outcome = answer.outcome
    timings = answer.timings
    return {
        "model": model,
        "answer": answer.text,
        "finish_reason": _finish_reason(answer),
        "usage": {
            "prompt_tokens": answer.usage.prompt_tokens,
            "completion_tokens": answer.usage.completion_tokens,
            "image_tokens": answer.usage.image_tokens,
            "video_tokens": answer.usage.video_tokens,
        },
        "timings": {
            "load_s": _milliseconds(load_s),
            "ttft_s": _milliseconds(timings.ttft_s if timings else None),
            "total_s": _milliseconds(timings.total_s if timings else None),
        },
        "sampling": msgspec.to_builtins(answer.used) if answer.used else None,
        "prompt": answer.prompt.prompt if answer.prompt else None,
        "stop": outcome.stop if isinstance(outcome, Finished) else None,
    }


def tokens_json(answer: Answer) -> dict[str, object]:
    """Return the additional JSON about tokens."""
    found: dict[str, object] = {
        "prompt_token_ids": list(answer.prompt.token_ids) if answer.prompt else None,
        "answer_token_ids": answer.token_ids,
    }
    if answer.logprobs:
        found["logprobs"] = [_logprob_json(one, answer.vocabulary) for one in answer.logprobs]
    return found


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


def _logprob_json(one: TokenLogprob, vocabulary: Vocabulary) -> dict[str, object]:
    def token(token_id: int, logprob: float) -> dict[str, object]:
        return {"token_id": token_id, "token": texts_of((token_id,), vocabulary)[0], "logprob": logprob}

    return {
        **token(one.token_id, one.logprob),
        "top": [token(other.token_id, other.logprob) for other in one.top],
    }


def _milliseconds(seconds: float | None) -> float | None:
    """Round seconds to milliseconds."""
    return None if seconds is None else round(seconds, 3)


def _finish_reason(answer: Answer) -> str:
    match answer.outcome:
        case Finished(finish_reason=reason):
            return reason
        case Cancelled():
            return "cancelled"
        case Failed() | None:
            return "failed"
