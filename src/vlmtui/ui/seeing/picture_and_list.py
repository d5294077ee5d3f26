"""What the screens of this feature are made of: a picture, a list beside it, lines above and below."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import OptionList, Static

from vlmtui.ui.widgets.footer_bar import FooterBar


def picture_and_list() -> ComposeResult:
    """Yield the widgets: `#title`, `#count`, `#convention` above; `#stage` with `#reason`; `#marks` with `#span`."""
    with Horizontal(id="top"):
        yield Static(id="title", markup=False)
        yield Static(id="count", markup=False)
    yield Static(id="convention", markup=False)
    with Horizontal(id="body"):
        with Vertical(id="stage"):
            yield Static(id="reason", markup=False)
        with Vertical(id="side"):
            yield OptionList(id="marks", markup=False, compact=True)
            yield Static(id="span", markup=False)
    yield FooterBar()
