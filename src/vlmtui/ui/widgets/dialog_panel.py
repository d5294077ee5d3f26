"""The frame of a dialog over a screen."""

from __future__ import annotations

from textual.containers import Vertical


class DialogPanel(Vertical):
    """Lines of text and a list of choices, as high as its content; the screen centres it."""

    DEFAULT_CSS = """
    DialogPanel {
        width: 76;
        max-width: 92%;
        height: auto;
        max-height: 90%;
        padding: 1 2;
        background: $surface;
        border: round $primary;
        & Static { height: auto; }
        & #title { text-style: bold; }
        & OptionList, & OptionList:focus {
            height: auto;
            margin-top: 1;
            border: none;
            padding: 0;
            background: $surface;
        }
    }
    """
