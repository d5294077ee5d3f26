"""The panel of a new conversation: the model, and the first keys."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from vlmtui.registry.match import Model
from vlmtui.text import one_line
from vlmtui.ui.keys import with_keys

_KEYS = (
    ("{attach}", "attach images and videos; or paste or drop a path"),
    ("Enter", "send; Ctrl+J breaks the line"),
    ("/", "commands"),
    ("{leader}", "which keys work here"),
    ("{help}", "every key"),
)
_KEY = 9


class WelcomePanel(Static):
    """The model, what it accepts, and the first keys."""

    DEFAULT_CSS = "WelcomePanel { width: auto; max-width: 100%; height: auto; color: $muted; }"

    def __init__(self, model: Model, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._model = model

    def on_mount(self) -> None:
        keys = [(with_keys(self.app, key), does) for key, does in _KEYS]
        self.update(_welcome(self._model, keys))


def _welcome(model: Model, keys: Sequence[tuple[str, str]]) -> Content:
    family = model.family
    takes = [f"{modality}s (up to {how.max_items})" for modality, how in family.takes.items()]
    about = [f"Takes {' and '.join(takes)}." if takes else "Takes text only.", one_line(family.note)]
    width = max(_KEY, *(len(key) + 1 for key, _ in keys))
    lines = Content("\n").join(Content.assemble((key.ljust(width), "$accent"), does) for key, does in keys)
    return Content("\n").join(
        [
            Content.styled(one_line(family.title), "bold $foreground"),
            *(Content(line) for line in about if line),
            Content(),
            lines,
        ]
    )
