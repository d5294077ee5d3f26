"""The framed conversation, and its facts."""

from __future__ import annotations

from pathlib import Path

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static
from textual.worker import WorkType

from vlmtui.session.conversation import Conversation
from vlmtui.session.engine_controller import EngineController
from vlmtui.session.title import head_of
from vlmtui.text import one_line
from vlmtui.ui.chat.side_pane import ChatFacts, FactsLine, SidePane
from vlmtui.ui.chat.transcript import Transcript
from vlmtui.ui.chat.welcome import WelcomePanel
from vlmtui.ui.keys import with_keys
from vlmtui.ui.widgets.clicks import clicked, is_click


class ChatFrame(Vertical):
    """The transcript in a panel with the conversation's title. Wide screens show the side pane, narrow ones a line
    of facts below, chosen by the screen's style."""

    DEFAULT_CSS = """
    ChatFrame {
        width: 100%;
        height: 1fr;
        #body { height: 1fr; }
        #conversation { width: 1fr; }
        #imported { display: none; height: 1; padding: 0 2; color: $text-warning; text-wrap: nowrap; }
        #welcome { display: none; height: 1fr; align: center middle; overflow-y: auto; }
        #more { display: none; height: 1; width: 100%; content-align: center middle; color: $accent; }
        #more.-shown { display: block; }
        SidePane { display: none; margin: 0 0 0 1; }
    }
    """

    def __init__(self, chat: Conversation, engine_controller: EngineController, *, cache: Path) -> None:
        super().__init__()
        self._chat = chat
        self._engine_controller = engine_controller
        self.transcript = Transcript(cache=cache, id="transcript")
        self._welcome = Container(id="welcome")
        self._panel = Vertical(id="conversation")
        self._pane, self._line = SidePane(), FactsLine(markup=False)
        self._imported = Static("Imported: its messages and answers come from a file.", id="imported", markup=False)

    def compose(self) -> ComposeResult:
        with Horizontal(id="body"):
            with self._panel:
                yield self._imported
                yield self._welcome
                yield self.transcript
                yield Static(with_keys(self.app, "↓ more below · {jump_end}"), id="more", markup=False)
            yield self._pane
        yield self._line

    async def show_head(self) -> None:
        """Show the title, and the welcome panel while the conversation is empty."""
        self.show_title_soon()
        model, is_empty = self._engine_controller.model, not self._chat.exchanges
        self._welcome.display, self.transcript.display = is_empty, not is_empty
        if not is_empty:
            await self._welcome.remove_children()
        elif model is not None and not self._welcome.children:
            await self._welcome.mount(WelcomePanel(model))

    def show_facts(self) -> None:
        """Show the cost of the newest prompt and answer."""
        facts = ChatFacts(self._chat.last, self._engine_controller.info, self._chat.context_used)
        self._pane.show(facts)
        self._line.show(facts)

    def show_title_soon(self) -> None:
        """Update the title after the next refresh."""
        work: WorkType[None] = self._show_title
        self.run_worker(work, group="title", exclusive=True)

    async def _show_title(self) -> None:
        head = await head_of(self._chat)
        self._panel.border_title = Content(one_line(head.title))
        self._imported.display = head.is_imported

    async def on_click(self, event: events.Click) -> None:
        """The title opens the list of conversations, `more below` goes there, the facts open the inspector."""
        on = clicked(self, event)
        if not is_click(self, event):
            return
        if on.id == "more":
            self.transcript.show_end()
        elif on is self._panel and event.screen_y == on.region.y:
            await self.run_action("app.conversations")
        elif on is self._line or on.parent is self._pane:
            await self.run_action("screen.run('inspect')")

    @on(Transcript.EndSeen)
    def _end_seen(self, event: Transcript.EndSeen) -> None:
        self.query_one("#more").set_class(not event.is_seen, "-shown")
