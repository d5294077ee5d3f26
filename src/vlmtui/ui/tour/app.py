"""The app with the tour: it hears what the user does, and shows the next step on every screen."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from textual import on
from textual.screen import Screen
from textual.widgets import Tabs

from vlmtui.domain.generation import Finished
from vlmtui.errors import VlmtuiError
from vlmtui.session.events import AnswerEnded
from vlmtui.session.tour import (
    ComparisonAnswered,
    ConversationChosen,
    ConversationsFound,
    Deed,
    FanOutAnswered,
    FileAttached,
    InspectorPartShown,
    RawPromptChecked,
    Tour,
    TurnAnswered,
)
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.attachments.browser import BrowserScreen
from vlmtui.ui.chat.composer_panel import ComposerPanel
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.compare.fan_out import FanOutScreen
from vlmtui.ui.compare.raw_pane import RawPane
from vlmtui.ui.compare.screen import CompareScreen
from vlmtui.ui.conversations.screen import ConversationsScreen
from vlmtui.ui.models.loading import LoadingScreen
from vlmtui.ui.models.screen import ModelsScreen
from vlmtui.ui.services import Services
from vlmtui.ui.terminal.query import TerminalQuestion
from vlmtui.ui.tour.panel import TourPanel

_log = logging.getLogger(__name__)


class TourApp(VlmtuiApp):
    """Screens stay as they are: what they tell the app is what the tour hears."""

    CSS_PATH = ["../app.tcss", "../models/screen.tcss"]
    CSS = "ToastRack { margin-top: 5; }"

    def __init__(self, services: Services, tour: Tour, question: TerminalQuestion | None = None) -> None:
        super().__init__(services, question)
        self.tour = tour

    def on_load(self) -> None:
        self.tour.subscribe(self._step_done)

    def on_mount(self) -> None:
        self.screen_change_signal.subscribe(self, self._show_panel, immediate=True)

    def _show_panel(self, screen: Screen[Any]) -> None:
        """Put the panel on a screen that fills the terminal, or nearly; on smaller ones the one below is seen."""
        if (screen.is_modal and not isinstance(screen, BrowserScreen)) or screen.query(TourPanel):
            return
        waits = isinstance(screen, LoadingScreen | ModelsScreen) and not self.engine_controller.is_loaded
        screen.mount(TourPanel(self.tour, waits=waits), before=0)

    def _step_done(self) -> None:
        self.start(self._remember_step, "tour")

    async def _remember_step(self) -> None:
        try:
            await asyncio.to_thread(self.tour.write)
        except VlmtuiError as error:
            _log.warning("the tour will begin again: %s", error)

    def _hear(self, deed: Deed) -> None:
        self.tour.take(deed)

    @on(ComposerPanel.FileTaken)
    def _file_attached(self) -> None:
        self._hear(FileAttached())

    @on(ChatScreen.ConversationChanged)
    def _turn_answered(self, event: ChatScreen.ConversationChanged) -> None:
        told = event.event
        if isinstance(told, AnswerEnded) and isinstance(told.exchange.answer.outcome, Finished):
            self._hear(TurnAnswered(told.exchange.user))

    @on(CompareScreen.BothEnded)
    def _compared(self) -> None:
        self._hear(ComparisonAnswered())

    @on(RawPane.Checked)
    def _raw_prompt_checked(self, event: RawPane.Checked) -> None:
        self._hear(RawPromptChecked(bool(event.findings)))

    @on(Tabs.TabActivated)
    def _part_shown(self, event: Tabs.TabActivated) -> None:
        self._hear(InspectorPartShown(event.tab.id or ""))

    @on(FanOutScreen.AllEnded)
    def _fanned_out(self) -> None:
        self._hear(FanOutAnswered())

    @on(ConversationsScreen.ListChanged)
    def _searched(self, event: ConversationsScreen.ListChanged) -> None:
        if isinstance(self.screen, ConversationsScreen):
            self._hear(ConversationsFound(event.searched, len(self.screen.conversations.entries)))

    @on(ConversationsScreen.ConversationChosen)
    def _conversation_chosen(self) -> None:
        self._hear(ConversationChosen())
