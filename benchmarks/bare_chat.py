"""The least a Textual chat screen can be: what the application's start is held against."""

from __future__ import annotations

from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Footer, Header, Input, Static


class BareChat(App[None]):
    """A header, an empty transcript, an input and a footer."""

    BINDINGS = [("ctrl+q", "quit", "Quit")]

    def compose(self) -> ComposeResult:
        yield Header()
        with VerticalScroll():
            yield Static("bare chat")
        yield Input(placeholder="Message")
        yield Footer()


if __name__ == "__main__":
    BareChat().run()
