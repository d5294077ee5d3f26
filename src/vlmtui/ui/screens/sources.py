"""What the chat screen does to get at files: paths that are typed, the file browser, the clipboard, the inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual import work
from textual.screen import Screen

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import private_dir
from vlmtui.registry.match import Model
from vlmtui.ui.controllers.cost import tokens_before_attaching
from vlmtui.ui.controllers.engine import EngineController
from vlmtui.ui.controllers.folder import Look
from vlmtui.ui.controllers.recent_folders import RecentFolders
from vlmtui.ui.services import Services
from vlmtui.ui.text import one_line
from vlmtui.ui.widgets.composer_panel import ComposerPanel

if TYPE_CHECKING:
    from vlmtui.media.inbox import Inbox

ASK_ABOVE = 20
"""Files that are attached at once without a question."""
_INBOX_EVERY_S = 1.0


class SourcesScreen(Screen[None]):
    """Every way in for images and videos ends in the composer's panel."""

    def __init__(self, services: Services, engine_controller: EngineController) -> None:
        super().__init__()
        self.services = services
        self.engine_controller = engine_controller
        self._folder = Path.cwd()
        self.recent = RecentFolders(services.paths.state / "folders.json")
        self._inbox: Inbox | None = None
        self._arrived: list[Path] = []
        self._look = Look()

    @property
    def panel(self) -> ComposerPanel:
        return self.query_one(ComposerPanel)

    def model(self) -> Model:
        """The loaded model. Raises VlmtuiError when there is none."""
        model = self.engine_controller.model
        if model is None:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "No model is loaded.", hint="F3 picks one.")
        return model

    def attach_files(self, sources: Sequence[Path | str]) -> None:
        """Put files, and pictures at web addresses, where the cursor is. Many only after a question."""
        folders = [source for source in sources if isinstance(source, Path)]
        if folders:
            self._folder = folders[-1].parent
            self.recent.remember(folders)
        if len(sources) > ASK_ABOVE:
            self._attach_many(sources)
        else:
            self.panel.attach(sources)

    def action_attach(self, text: str = "") -> None:
        """Stage the files that `text` names; without it, choose them in the file browser."""
        if text:
            self._gather(text)
        else:
            self._browse()

    def action_paste_picture(self) -> None:
        """Attach the picture that is in the clipboard of this machine."""
        self._paste_picture()

    def action_inbox(self) -> None:
        """Attach what came into the inbox; when nothing did, tell how to copy files there."""
        if self._arrived:
            arrived, self._arrived = self._arrived, []
            self.attach_files(arrived)
        else:
            self._open_inbox()

    def tell(self, text: str) -> None:
        self.notify(one_line(text), timeout=4, markup=False)

    def tell_error(self, error: VlmtuiError) -> None:
        self.notify(one_line(str(error)), severity="error", timeout=10, markup=False)

    @property
    def thumbnails(self) -> Path:
        """The folder of small pictures."""
        return self.services.paths.cache / "thumbnails"

    @work(group="gather")
    async def _gather(self, text: str) -> None:
        from vlmtui.media.gather import gather

        found = await asyncio.to_thread(gather, text, base=Path.cwd())
        for problem in found.problems:
            self.tell_error(problem)
        if found.paths or found.urls:
            self.attach_files([*found.paths, *found.urls])

    @work(group="modal")
    async def _attach_many(self, sources: Sequence[Path | str]) -> None:
        from vlmtui.ui.screens.confirm import ConfirmScreen

        question = f"Attach all {len(sources)} files to the message?"
        if await self.app.push_screen_wait(ConfirmScreen(question, yes=f"Attach {len(sources)} files")):
            self.panel.attach(sources)

    @work(group="gather")
    async def _paste_picture(self) -> None:
        from vlmtui.media.clipboard import clipboard_pictures

        inbox = self.services.paths.inbox
        try:
            paths = await asyncio.to_thread(clipboard_pictures, self.services.paths.cache / "clipboard", inbox=inbox)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        self.attach_files(paths)

    @work(group="gather")
    async def _open_inbox(self) -> None:
        from vlmtui.media.inbox import Inbox, scp_line

        folder = self.services.paths.inbox
        try:
            private_dir(folder)
            inbox = await asyncio.to_thread(Inbox, folder) if self._inbox is None else None
        except VlmtuiError as error:
            self.tell_error(error)
            return
        if inbox is not None:
            self._inbox = inbox
            self._watch_inbox(inbox)
        line = scp_line(folder)
        self.app.copy_to_clipboard(line)
        self.notify(f"{one_line(line)}\n(copied) New files there are offered here.", timeout=15, markup=False)

    @work(group="inbox", exclusive=True)
    async def _watch_inbox(self, inbox: Inbox) -> None:
        while True:
            await asyncio.sleep(_INBOX_EVERY_S)
            try:
                arrived = await asyncio.to_thread(inbox.scan)
            except VlmtuiError:
                continue
            if arrived:
                self._arrived += arrived
                names = ", ".join(one_line(path.name) for path in arrived[:3]) + (" …" if len(arrived) > 3 else "")
                self.notify(f"In the inbox: {names}. Alt+I attaches.", timeout=15, markup=False)

    @work(group="modal")
    async def _browse(self) -> None:
        from vlmtui.ui.screens.browser import BrowserScreen

        model = self.engine_controller.model
        estimate = partial(tokens_before_attaching, model) if model is not None else None
        browser = BrowserScreen(self._folder, recent=self.recent, look=self._look, estimate=estimate)
        paths = await self.app.push_screen_wait(browser)
        self._folder = browser.folder
        if paths:
            self.attach_files(paths)
