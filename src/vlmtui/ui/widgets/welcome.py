"""What one can do in a conversation that has not begun."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from vlmtui.registry.match import Model
from vlmtui.ui.text import one_line

_KEYS = (
    ("ctrl+o", "attach images and videos; or paste or drop a path"),
    ("enter", "send; ctrl+j breaks the line"),
    ("/", "commands"),
    ("f1", "every key"),
)
_KEY = 9


class Welcome(Static):
    """The model, what it takes, and the keys to begin with."""

    DEFAULT_CSS = "Welcome { width: auto; max-width: 100%; height: auto; color: $muted; }"

    def __init__(self, model: Model, *, id: str | None = None) -> None:
        super().__init__(_welcome(model), id=id)


def _welcome(model: Model) -> Content:
    family = model.family
    takes = [f"{modality}s (up to {how.max_items})" for modality, how in family.takes.items()]
    about = [f"Takes {' and '.join(takes)}." if takes else "Takes text only.", one_line(family.note)]
    keys = Content("\n").join(Content.assemble((key.ljust(_KEY), "$accent"), does) for key, does in _KEYS)
    return Content("\n").join(
        [
            Content.styled(one_line(family.title), "bold $foreground"),
            *(Content(line) for line in about if line),
            Content(),
            keys,
        ]
    )
