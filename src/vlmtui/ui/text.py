"""Hostile text made fit for the screen."""

from __future__ import annotations

from vlmtui.domain.text import one_line, visible

__all__ = ["one_line", "visible"]
