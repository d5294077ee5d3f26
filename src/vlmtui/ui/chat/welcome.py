"""The panel of a new conversation: the model, and the first keys, in three lines."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from vlmtui.registry.match import Model
from vlmtui.text import one_line
from vlmtui.ui.keys import with_keys

_KEYS = (
    "{attach} attaches a file; or paste or drop its path. Enter sends.",
    "{leader} shows the keys of a screen, {help} all, `vlmtui help tour` first steps.",
)
_KEYS_IN_ONE = "{attach} attaches, Enter sends, {help} shows keys, `vlmtui help tour` first steps."
"""For a family with a note, which takes a line, too."""


class WelcomePanel(Static):
    """The model with what it accepts, and the first keys."""

    DEFAULT_CSS = "WelcomePanel { width: auto; max-width: 100%; height: auto; color: $muted; }"

    def __init__(self, model: Model, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._model = model

    def on_mount(self) -> None:
        family = self._model.family
        takes = [f"{modality}s (up to {how.max_items})" for modality, how in family.takes.items()]
        about = f" takes {' and '.join(takes) or 'text only'}."
        head = Content.assemble((one_line(family.title), "bold $foreground"), about)
        note = one_line(family.note)
        told = [note, with_keys(self.app, _KEYS_IN_ONE)] if note else [with_keys(self.app, line) for line in _KEYS]
        self.update(Content("\n").join([head, *(Content(line) for line in told)]))
