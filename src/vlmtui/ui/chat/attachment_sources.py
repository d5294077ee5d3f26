"""The sources of attachments: typed paths, file browser, clipboard, inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.media.folder import FolderView
from vlmtui.paths import Paths, private_dir
from vlmtui.session.cost import tokens_before_attaching
from vlmtui.session.engine_controller import EngineController
from vlmtui.session.recent_folders import RecentFolders
from vlmtui.text import one_line
from vlmtui.ui.actions import ActionMethods
from vlmtui.ui.chat.view import ChatView
from vlmtui.ui.navigation import Navigator

if TYPE_CHECKING:
    from vlmtui.media.inbox import Inbox

ASK_ABOVE = 20
"""Files attached without a confirmation."""


class SourcesView(ChatView, Protocol):
    """What the sources need from the chat screen."""

    def copy_text(self, text: str) -> None:
        """Copy a text to the terminal's clipboard."""


class AttachmentSources:
    """Adds images and videos from every source to the draft."""

    def __init__(
        self,
        view: SourcesView,
        navigator: Navigator,
        paths: Paths,
        engine_controller: EngineController,
        *,
        inbox_s: float,
    ) -> None:
        """`inbox_s`: seconds between checks of the inbox folder."""
        self._view = view
        self._navigator = navigator
        self._paths = paths
        self._engine_controller = engine_controller
        self._inbox_s = inbox_s
        self._folder = Path.cwd()
        self._recent = RecentFolders(paths.state / "folders.json")
        self._inbox: Inbox | None = None
        self._arrived: list[Path] = []
        self._look = FolderView()

    @property
    def actions(self) -> ActionMethods:
        return {"attach": self.attach, "paste_picture": self.paste_picture, "inbox": self.open_inbox}

    def attach(self, text: str = "") -> None:
        """Attach the files named in `text`; if it is empty, open the file browser."""
        if text:
            self._view.start(partial(self._gather, text), "gather")
        else:
            self._view.start_dialog(self._browse)

    def paste_picture(self) -> None:
        """Attach the picture in this machine's clipboard."""
        self._view.start(self._paste_picture, "gather")

    def open_inbox(self) -> None:
        """Attach new files from the inbox; if there are none, show how to copy files there."""
        if self._arrived:
            arrived, self._arrived = self._arrived, []
            self.attach_files(arrived)
        else:
            self._view.start(self._offer_inbox, "gather")

    def attach_files(self, sources: Sequence[Path | str]) -> None:
        """Attach files, and pictures at web addresses, at the cursor. Asks first if there are many."""
        files = [source for source in sources if isinstance(source, Path)]
        if files:
            self._folder = files[-1].parent
            self._recent.remember(files)
        if len(sources) > ASK_ABOVE:
            self._view.start_dialog(partial(self._attach_many, sources))
        else:
            self._view.panel.attach(sources)

    async def _gather(self, text: str) -> None:
        from vlmtui.media.gather import gather

        found = await asyncio.to_thread(gather, text, base=Path.cwd())
        for problem in found.problems:
            self._view.tell_error(problem)
        if found.paths or found.urls:
            self.attach_files([*found.paths, *found.urls])

    async def _attach_many(self, sources: Sequence[Path | str]) -> None:
        question = f"Attach all {len(sources)} files to the message?"
        if await self._navigator.confirm(question, yes=f"Attach {len(sources)} files"):
            self._view.panel.attach(sources)

    async def _paste_picture(self) -> None:
        from vlmtui.media.clipboard import clipboard_pictures

        folder = self._paths.cache / "clipboard"
        try:
            paths = await asyncio.to_thread(clipboard_pictures, folder, inbox=self._paths.inbox)
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        self.attach_files(paths)

    async def _offer_inbox(self) -> None:
        from vlmtui.media.inbox import Inbox, scp_line

        folder = self._paths.inbox
        try:
            private_dir(folder)
            inbox = await asyncio.to_thread(Inbox, folder) if self._inbox is None else None
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        if inbox is not None:
            self._inbox = inbox
            self._view.start(partial(self._watch_inbox, inbox), "inbox", exclusive=True)
        line = scp_line(folder)
        self._view.copy_text(line)
        self._view.tell(f"{one_line(line)}\n(copied) New files there are offered here.", seconds=15)

    async def _watch_inbox(self, inbox: Inbox) -> None:
        while True:
            await asyncio.sleep(self._inbox_s)
            try:
                arrived = await asyncio.to_thread(inbox.scan)
            except VlmtuiError:
                continue
            if arrived:
                self._arrived += arrived
                names = ", ".join(one_line(path.name) for path in arrived[:3]) + (" …" if len(arrived) > 3 else "")
                self._view.tell(f"In the inbox: {names}.", Remedy.ATTACH_INBOX, seconds=15)

    async def _browse(self) -> None:
        model = self._engine_controller.model
        estimate = partial(tokens_before_attaching, model) if model is not None else None
        chosen = await self._navigator.choose_files(
            self._folder, recent=self._recent, look=self._look, estimate=estimate
        )
        self._folder = chosen.folder
        if chosen.paths:
            self.attach_files(chosen.paths)
