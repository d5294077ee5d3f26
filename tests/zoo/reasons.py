"""Why a family's chat template and its raw prompt give different tokens, where that is known."""

from __future__ import annotations

REASONS: dict[str, str] = {}
"""A sentence or two by family, in Markdown."""
