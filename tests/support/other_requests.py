"""Converts a request for an answer into other kinds of request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vlmtui.domain.generation import GenerateRequest, RenderRequest, ScoreRequest, View


def to_render(request: GenerateRequest, view: View | None = None) -> RenderRequest:
    """Return a request that only renders the same prompt."""
    return RenderRequest(**_common(request), view=view)


def to_score(request: GenerateRequest, tokens: Iterable[int]) -> ScoreRequest:
    """Return a request that scores tokens as the answer to the same prompt."""
    return ScoreRequest(**_common(request), tokens=tuple(tokens), logprobs=request.logprobs, adapter=request.adapter)


def _common(request: GenerateRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in RenderRequest.__struct_fields__ if name != "view"}
