"""How keys are shown to people."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.binding import Binding

from vlmtui.ui.actions import Action


def shown_key(app: App[Any], action: Action) -> str:
    """The first key of an action, as the footer shows it; empty where it has none."""
    key = action.keys.partition(",")[0]
    return app.get_key_display(Binding(key, action.id, action.title)) if key else ""
