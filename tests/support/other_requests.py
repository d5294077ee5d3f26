"""Converts a request for an answer into other kinds of request."""

from __future__ import annotations

from collections.abc import Iterable

from vlmtui.domain.generation import GenerateRequest, RenderRequest, ScoreRequest, View


def to_render(request: GenerateRequest, view: View | None = None) -> RenderRequest:
    """Return a request that only renders the same prompt."""
    return RenderRequest(
        request_id=request.request_id,
        prompt=request.prompt,
        sampling=request.sampling,
        own_arguments=request.own_arguments,
        view=view,
    )


def to_score(request: GenerateRequest, tokens: Iterable[int]) -> ScoreRequest:
    """Return a request that scores tokens as the answer to the same prompt."""
    return ScoreRequest(
        request_id=request.request_id,
        prompt=request.prompt,
        sampling=request.sampling,
        own_arguments=request.own_arguments,
        tokens=tuple(tokens),
        logprobs=request.logprobs,
        adapter=request.adapter,
    )
