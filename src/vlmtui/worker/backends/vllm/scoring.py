"""Scores an answer under a prompt: vLLM gets both as its prompt, and reports the log-probabilities of a prompt's
tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vlmtui.domain.generation import Delta, GenerateRequest, Vocabulary
from vlmtui.worker.hf.delta_buffer import token_logprob
from vlmtui.worker.hf.vocabulary import VocabularyReader


def scoring_parameters(logprobs: int | None) -> Any:
    """Return SamplingParams: vLLM cannot generate nothing, so one token is generated and dropped."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0, max_tokens=1, prompt_logprobs=logprobs or 0, output_kind=RequestOutputKind.FINAL_ONLY
    )


def with_answer(rendered: Any, request: GenerateRequest) -> Any:
    """Return the rendered prompt, followed by the answer to score, if there is one."""
    if not request.score:
        return rendered
    return {**rendered, "prompt_token_ids": [*rendered["prompt_token_ids"], *request.score]}


def scored_delta(
    request: GenerateRequest,
    prompt_logprobs: Sequence[Mapping[int, Any] | None],
    vocabulary: VocabularyReader,
    known: Vocabulary,
) -> Delta:
    """Return the scored tokens with their log-probabilities: the last ones of what vLLM took as the prompt."""
    found = prompt_logprobs[len(prompt_logprobs) - len(request.score) :]
    scores = tuple(
        token_logprob(token, at, request.logprobs or 0)
        for token, at in zip(request.score, found, strict=True)
        if at is not None
    )
    named = dict.fromkeys((*request.score, *(other.token_id for one in scores for other in one.top)))
    return Delta(
        request_id=request.request_id,
        text=vocabulary.decode(request.score),
        tokens=len(scores),
        token_ids=request.score,
        vocabulary=vocabulary.entries(token for token in named if token not in known),
        logprobs=scores,
    )
