"""What the chat screen does with files: attaching, looking at them, changing them, telling what they cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from textual import on, work
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer

from vlmtui.domain.attachment import Attachment, Modality, VideoSampling
from vlmtui.engine.session import render
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.media.source import restage
from vlmtui.paths import private_dir
from vlmtui.registry.match import Model
from vlmtui.ui.controllers.chat import ChatController
from vlmtui.ui.controllers.cost import Cost, cost_of
from vlmtui.ui.controllers.draft import Token
from vlmtui.ui.controllers.engine import EngineController, EngineState
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
_COST_AFTER_S = 0.4
"""How long nothing has to change before the cost is asked for."""
_LONG_TEXT = 2000
"""Characters from which a text alone is worth a count."""
_REMEDIES = "F6 smaller images · F7 fewer frames · F8 forget the oldest attachments"

_ANIMATIONS = ("GIF", "WEBP", "PNG", "AVIF")

Outcome = Cost | VlmtuiError | None


class AttachingScreen(Screen[None]):
    """The attachments' half of the chat."""

    @dataclass
    class Counted(Message):
        """What the message would cost, or why it cannot be sent; None: nothing to tell."""

        outcome: Outcome

    def __init__(self, services: Services, engine_controller: EngineController, chat: ChatController) -> None:
        super().__init__()
        self.services = services
        self.engine_controller = engine_controller
        self.chat = chat
        self.cost: Cost | None = None
        """Of the message as it is now; None: not known."""
        self._counted: object = None
        self._cost_timer: Timer | None = None
        self._folder = Path.cwd()
        self.recent = RecentFolders(services.paths.state / "folders.json")
        self._inbox: Inbox | None = None
        self._inbox_timer: Timer | None = None
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

    def need_room(self) -> None:
        """Raises VlmtuiError when it is known that the message is too long for the model."""
        if self.cost is not None and self.cost.is_too_much:
            raise VlmtuiError(ErrorKind.CONTEXT_TOO_LONG, self.cost.text, hint=_REMEDIES)

    def prepare_panel(self) -> None:
        """Attachments are counted over the conversation, and videos sampled as the model's record says."""
        self.panel.numbers_above = self.chat.attachments_sent
        model = self.engine_controller.model
        if model is not None:
            self.panel.sampling = VideoSampling(num_frames=model.spec.num_frames)

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

    @on(ComposerPanel.FileRefused)
    def _file_refused(self, event: ComposerPanel.FileRefused) -> None:
        self.tell_error(event.error)

    @on(ComposerPanel.FileTaken)
    def _file_taken(self, event: ComposerPanel.FileTaken) -> None:
        """An attachment of which one could have taken something else."""
        item, name = event.attachment, one_line(event.attachment.name)
        if item.pages > 1:
            self.tell(f"{name} has {item.pages} pages: page {item.page} is attached. /page takes another.")
        elif item.modality == "video" and item.format in _ANIMATIONS:
            self.tell(f"{name} moves: it is attached as a video. /still takes its first frame.")

    @on(ComposerPanel.DraftChanged)
    def _draft_changed(self) -> None:
        self.ask_cost_soon()

    @on(Counted)
    def _counted_now(self, event: Counted) -> None:
        outcome, bar = event.outcome, self.panel.bar
        self.cost = outcome if isinstance(outcome, Cost) else None
        match outcome:
            case Cost():
                bar.tell_tokens(outcome.tokens)
                hint = f" {_REMEDIES}" if outcome.is_too_much else ""
                bar.tell_cost(outcome.text + hint, too_much=outcome.is_too_much)
            case VlmtuiError():
                hint = f" {_REMEDIES}" if outcome.kind is ErrorKind.CONTEXT_TOO_LONG else ""
                bar.tell_cost(one_line(outcome.message) + hint, too_much=True)
            case None:
                bar.tell_cost("")

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

    def action_view(self, number: str = "") -> None:
        """Show an attachment as large as the screen, by its number; without one, the newest."""
        from vlmtui.ui.screens.viewer import ViewerScreen

        sent = [item for exchange in self.chat.exchanges for item in exchange.user.attachments]
        numbered = dict(enumerate(sent, 1)) | {
            token.number: token.attachment for token in self.chat.draft.tokens if token.attachment is not None
        }
        wanted = int(number) if number.isdecimal() else max(numbered, default=0) if not number else 0
        if wanted not in numbered:
            problem = f"There is no attachment {one_line(number)}." if number else "Nothing is attached yet."
            self.tell_error(bad_input(problem, hint="Ctrl+O attaches a file."))
            return
        at = list(numbered).index(wanted)
        self.app.push_screen(ViewerScreen(list(numbered.values()), at, cache=self._thumbnails))

    def action_frames(self, number: str = "") -> None:
        """Choose which frames of a video of the message are sent, by its number; without one, of the last."""
        tokens = [token for token in self.chat.draft.tokens if token.attachment and token.attachment.sampling]
        chosen = [token for token in tokens if not number or str(token.number) == number]
        if chosen:
            self._choose_frames(chosen[-1])
        else:
            self.tell(f"The message has no video {one_line(number)}".rstrip() + ".")

    def action_drop_attachment(self, number: str = "") -> None:
        """Remove an attachment of the message, by its number; without one, the last."""
        tokens = self.chat.draft.tokens
        wanted = int(number) if number.isdecimal() else tokens[-1].number if tokens and not number else 0
        if not self.panel.detach(wanted) and (number or tokens):
            self.tell_error(bad_input(f"No attachment {one_line(number)} is staged.", hint="Their numbers are above."))

    def action_still(self, number: str = "") -> None:
        """Take an animation of the message as a still picture, by its number; without one, the last."""
        self._restage(number, lambda item: item.modality == "video" and bool(item.source), still=True)

    def action_page(self, text: str = "") -> None:
        """Take another page of a document of the message, as in `2`, or `2 5` for page 2 of attachment 5."""
        page, _, number = text.partition(" ")
        if page.isdecimal():
            self._restage(number.strip(), lambda item: item.pages > 1, page=int(page), still=True)
        else:
            self.tell_error(bad_input("/page takes the number of a page."))

    def action_smaller(self, number: str = "") -> None:
        """Halve the sides of the message's images, or of the one with that number."""
        self._change("image", number, self._smaller)

    def action_fewer_frames(self, number: str = "") -> None:
        """Halve the frames of the message's videos, or of the one with that number."""
        from vlmtui.media.smaller import fewer_frames

        self._change("video", number, fewer_frames)

    def action_forget_oldest(self) -> None:
        """Send the oldest attachments of the conversation no more."""
        exchange = self.chat.forget_oldest()
        if exchange is None:
            self.tell("No earlier attachment is left to forget.")
            return
        names = ", ".join(one_line(item.name) for item in exchange.user.attachments)
        self.tell(f"Not sent any more: {names}")
        self.ask_cost_soon()

    def ask_cost_soon(self) -> None:
        """Once nothing has changed for a while, ask the engine what the message would cost."""
        if self._cost_timer is not None:
            self._cost_timer.stop()
        self._cost_timer = self.set_timer(_COST_AFTER_S, self._ask_cost)

    def tell(self, text: str) -> None:
        self.notify(one_line(text), timeout=4, markup=False)

    def tell_error(self, error: VlmtuiError) -> None:
        self.notify(one_line(str(error)), severity="error", timeout=10, markup=False)

    def _ask_cost(self) -> None:
        """The same question is not asked twice; a text is counted anew once it has grown by some sentences."""
        draft, history = self.chat.draft, [(id(item), item.is_blind) for item in self.chat.exchanges]
        is_ready = self.engine_controller.state is EngineState.READY
        question = (draft.attachments, len(draft.words) // 500, history, is_ready, self.chat.running is None)
        if question != self._counted and not draft.pending:
            self._counted = question
            self._count()

    @work(exit_on_error=False, group="cost", exclusive=True)
    async def _count(self) -> None:
        self.post_message(self.Counted(await self._outcome()))

    async def _outcome(self) -> Outcome:
        draft, engine = self.chat.draft, self.engine_controller.engine
        info = self.engine_controller.info
        if self.chat.running is not None or not (draft.attachments or len(draft.words) >= _LONG_TEXT):
            return None
        try:
            prompt = self.chat.preview(self.model().family)
            if engine is None or info is None or self.engine_controller.state is not EngineState.READY:
                return None
            tokens = draft.tokens
            return cost_of(await render(engine, prompt), tokens, info.max_model_len)
        except VlmtuiError as error:
            return error

    def _smaller(self, attachment: Attachment) -> Attachment:
        from vlmtui.media.smaller import smaller_image

        return smaller_image(attachment, self.services.paths.media)

    def _change(self, modality: Modality, number: str, change: Callable[[Attachment], Attachment]) -> None:
        tokens = [token for token in self.chat.draft.tokens if token.attachment]
        chosen = [token for token in tokens if token.attachment and token.attachment.modality == modality]
        if number:
            chosen = [token for token in chosen if str(token.number) == number]
        if not chosen:
            self.tell(f"The message has no {modality} {one_line(number)}".strip() + ".")
        for token in chosen:
            self._change_one(token, change)

    @work(exit_on_error=False, group="stage")
    async def _change_one(self, token: Token, change: Callable[[Attachment], Attachment]) -> None:
        assert token.attachment is not None
        try:
            changed = await asyncio.to_thread(change, token.attachment)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        self.panel.replace(token.number, changed)

    def _restage(self, number: str, fits: Callable[[Attachment], bool], *, page: int = 1, still: bool) -> None:
        tokens = [token for token in self.chat.draft.tokens if token.attachment and fits(token.attachment)]
        chosen = [token for token in tokens if not number or str(token.number) == number]
        if chosen:
            again = partial(restage, store=self.services.paths.media, page=page, still=still)
            self._change_one(chosen[-1], again)
        else:
            self.tell("The message has nothing that this could be done with.")

    @property
    def _thumbnails(self) -> Path:
        return self.services.paths.cache / "thumbnails"

    @work(exit_on_error=False, group="gather")
    async def _gather(self, text: str) -> None:
        from vlmtui.media.gather import gather

        found = await asyncio.to_thread(gather, text, base=Path.cwd())
        for problem in found.problems:
            self.tell_error(problem)
        if found.paths or found.urls:
            self.attach_files([*found.paths, *found.urls])

    @work(exit_on_error=False, group="modal")
    async def _attach_many(self, sources: Sequence[Path | str]) -> None:
        from vlmtui.ui.screens.confirm import ConfirmScreen

        question = f"Attach all {len(sources)} files to the message?"
        if await self.app.push_screen_wait(ConfirmScreen(question, yes=f"Attach {len(sources)} files")):
            self.panel.attach(sources)

    @work(exit_on_error=False, group="gather")
    async def _paste_picture(self) -> None:
        from vlmtui.media.clipboard import clipboard_pictures

        inbox = self.services.paths.inbox
        try:
            paths = await asyncio.to_thread(clipboard_pictures, self.services.paths.cache / "clipboard", inbox=inbox)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        self.attach_files(paths)

    @work(exit_on_error=False, group="gather")
    async def _open_inbox(self) -> None:
        from vlmtui.media.inbox import Inbox, scp_line

        folder = self.services.paths.inbox
        try:
            private_dir(folder)
            self._inbox = self._inbox or await asyncio.to_thread(Inbox, folder)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        if self._inbox_timer is None:
            self._inbox_timer = self.set_interval(_INBOX_EVERY_S, self._look_into_inbox)
        line = scp_line(folder)
        self.app.copy_to_clipboard(line)
        self.notify(f"{one_line(line)}\n(copied) New files there are offered here.", timeout=15, markup=False)

    @work(exit_on_error=False, group="inbox", exclusive=True)
    async def _look_into_inbox(self) -> None:
        assert self._inbox is not None
        try:
            arrived = await asyncio.to_thread(self._inbox.scan)
        except VlmtuiError:
            return
        if arrived:
            self._arrived += arrived
            names = ", ".join(one_line(path.name) for path in arrived[:3]) + (" …" if len(arrived) > 3 else "")
            self.notify(f"In the inbox: {names}. Alt+I attaches.", timeout=15, markup=False)

    @work(exit_on_error=False, group="modal")
    async def _choose_frames(self, token: Token) -> None:
        # NumPy and libav take a while to import, so that is done off the event loop.
        sheet = await asyncio.to_thread(import_module, "vlmtui.media.sheet")
        from vlmtui.ui.screens.frames import FramesScreen

        assert token.attachment is not None
        model = self.engine_controller.model
        takes = model.family.takes if model is not None else {}
        most = takes["image"].max_items if "image" in takes else 0
        takes_video = "video" in takes or not takes
        screen = FramesScreen(token.attachment, cache=self._thumbnails, takes_video=takes_video, most_images=most)
        choice = await self.app.push_screen_wait(screen)
        if choice is None:
            return
        sampled = msgspec.structs.replace(token.attachment, sampling=choice.sampling)
        if not choice.as_images:
            self.panel.replace(token.number, sampled)
            return
        try:
            images = await asyncio.to_thread(sheet.frames_as_images, sampled, self.services.paths.media, most=most)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        self.panel.replace_with_several(token.number, images)

    @work(exit_on_error=False, group="modal")
    async def _browse(self) -> None:
        from vlmtui.ui.screens.browser import BrowserScreen

        browser = BrowserScreen(self._folder, cache=self._thumbnails, recent=self.recent, look=self._look)
        paths = await self.app.push_screen_wait(browser)
        self._folder = browser.folder
        if paths:
            self.attach_files(paths)
