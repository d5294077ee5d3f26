"""An answer as JSON: the fields of `ask --json` and of a batch's lines."""

from __future__ import annotations

import msgspec

from vlmtui.domain.generation import Cancelled, Failed, Finished, TokenLogprob, Vocabulary
from vlmtui.domain.sampling import Sampling
from vlmtui.inspection.build import texts_of
from vlmtui.inspection.labels import label_probabilities
from vlmtui.session.dials import structured_of
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


def labels_of(answer: Answer, sampling: Sampling) -> dict[str, float | None]:
    """Return the probability of each choice that the answer had; empty without choices or log-probabilities."""
    choices = structured_of(sampling).get("choice")
    if not isinstance(choices, list | tuple) or not answer.logprobs:
        return {}
    return label_probabilities([str(one) for one in choices], answer.logprobs, answer.vocabulary)


def tokens_json(answer: Answer, sampling: Sampling) -> dict[str, object]:
    """Return the token ids, log-probabilities, and the probability of each choice, as fields of `ask --json` and of a
    batch's lines."""
    found: dict[str, object] = {
        "prompt_token_ids": list(answer.prompt.token_ids) if answer.prompt else None,
        "answer_token_ids": answer.token_ids,
    }
    if answer.logprobs:
        found["logprobs"] = [_logprob_json(one, answer.vocabulary) for one in answer.logprobs]
    if labels := labels_of(answer, sampling):
        found["labels"] = labels
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
