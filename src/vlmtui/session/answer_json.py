"""An answer as JSON: the fields of `ask --json` and of a batch's lines."""

from __future__ import annotations

import msgspec

from vlmtui.domain.generation import Cancelled, Failed, Finished, TokenLogprob, Vocabulary
from vlmtui.inspection.build import texts_of
from vlmtui.session.generation import Answer


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
            "audio_tokens": answer.usage.audio_tokens,
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
    """Return the token ids and log-probabilities, as fields of `ask --json` and of a batch's lines."""
    found: dict[str, object] = {
        "prompt_token_ids": list(answer.prompt.token_ids) if answer.prompt else None,
        "answer_token_ids": answer.token_ids,
    }
    if answer.logprobs:
        found["logprobs"] = [_logprob_json(one, answer.vocabulary) for one in answer.logprobs]
    return found


def _logprob_json(one: TokenLogprob, vocabulary: Vocabulary) -> dict[str, object]:
    def token(token_id: int, logprob: float) -> dict[str, object]:
        return {"token_id": token_id, "token": texts_of((token_id,), vocabulary)[0], "logprob": logprob}

    return {
        **token(one.token_id, one.logprob),
        "top": [token(other.token_id, other.logprob) for other in one.top],
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _finish_reason(answer: Answer) -> str:
    match answer.outcome:
        case Finished(finish_reason=reason):
            return reason
        case Cancelled():
            return "cancelled"
        case Failed() | None:
            return "failed"
