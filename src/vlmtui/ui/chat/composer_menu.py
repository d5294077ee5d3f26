"""The menu of suggestions above the composer."""

from __future__ import annotations

from textual.widgets import OptionList


class ComposerMenu(OptionList):
    """Shown while there are suggestions; never takes the focus."""

    can_focus = False
    DEFAULT_CSS = """
    ComposerMenu {
        display: none;
        height: auto;
        max-height: 8;
        margin: 0 2;
        border: none;
        background: $panel;
        padding: 0;
        scrollbar-size-vertical: 1;
        text-wrap: nowrap;
        text-overflow: ellipsis;
        & > .option-list--option { padding: 0 1; }
    }
    """
