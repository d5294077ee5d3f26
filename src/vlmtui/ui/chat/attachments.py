"""The draft's attachments: the bar that shows them, and the actions that add, view and change them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from textual.app import ComposeResult
from textual.containers import ItemGrid, Vertical
from textual.widgets import Static

from vlmtui.domain.conversation import Attachment, Modality
from vlmtui.errors import Remedy, bad_input
from vlmtui.media.folder import FolderView
from vlmtui.media.notes import warning_of
from vlmtui.paths import private_dir, sample_image
from vlmtui.reading import is_file
from vlmtui.session.cost import tokens_before_attaching
from vlmtui.session.draft import DraftToken
from vlmtui.session.exchange import attachments_named
from vlmtui.session.models import excess_media
from vlmtui.text import counted, is_number, one_line
from vlmtui.ui.chat.part import ChatPart, background
from vlmtui.ui.keys import with_remedy
from vlmtui.ui.widgets.attachment_view import AttachmentView

if TYPE_CHECKING:
    from vlmtui.ui.chat.screen import ChatScreen

THUMBNAIL_WIDTH = 32
"""Maximum width of a thumbnail, in cells."""
GUTTER = 2
_THUMBNAIL_ROWS = 5
_TALL = 32
"""Terminal rows from which on the draft's attachments have thumbnails."""
_ANIMATIONS = ("GIF", "WEBP", "PNG", "AVIF")


class AttachmentBar(Vertical):
    """The attachments side by side, the number of files still loading, and the prompt's tokens. Hidden if empty."""

    DEFAULT_CSS = """
    AttachmentBar {
        display: none;
        height: auto;
        margin: 1 2 0 4;
        & > ItemGrid {
            height: auto;
            max-height: 10;
            grid-gutter: 0 2;
            overflow-y: auto;
            scrollbar-size-vertical: 1;
        }
        & > Static { display: none; height: auto; color: $muted; }
        & > Static.-shown { display: block; }
        & > .-too-much { color: $text-error; text-style: bold; }
    }
    """

    def __init__(self, *, cache: Path) -> None:
        super().__init__(id="attachments")
        self._cache = cache
        self._busy = asyncio.Lock()
        self._views: dict[int, AttachmentView] = {}
        self._rows = 0
        self._tokens: dict[int, int] = {}
        self._estimates: dict[int, int] = {}
        self._grid = ItemGrid(
            min_column_width=THUMBNAIL_WIDTH, max_column_width=THUMBNAIL_WIDTH + GUTTER, stretch_height=False
        )
        self._pending = Static("", id="pending", markup=False)
        self._cost = Static("", id="cost", markup=False)

    def compose(self) -> ComposeResult:
        yield self._grid
        yield self._pending
        yield self._cost

    async def show(self, staged: Mapping[int, Attachment], *, pending: int) -> None:
        """Show attachments with their numbers, in this order. `pending`: the number of files still loading."""
        async with self._busy:
            if self._grid.is_attached:
                self._say(self._pending, f"reading {counted(pending, 'file')}…" if pending else "")
                await self._fill(staged)
                self._update_display()

    async def _fill(self, staged: Mapping[int, Attachment]) -> None:
        one_row = len(staged) <= max(1, self.app.size.width // (THUMBNAIL_WIDTH + GUTTER))
        rows = _THUMBNAIL_ROWS if one_row and self.app.size.height >= _TALL else 0
        shown = [(number, view.attachment) for number, view in self._views.items()]
        if rows != self._rows or shown != list(staged.items()):
            old = self._views if rows == self._rows else {}
            kept = {n: view for n, view in old.items() if staged.get(n) == view.attachment}
            grid, self._rows = self._grid, rows
            await grid.remove_children([view for number, view in self._views.items() if number not in kept])
            # A number may belong to another attachment now, with other tokens.
            self._tokens = {number: count for number, count in self._tokens.items() if number in kept}
            self._views = {number: kept.get(number) or self._view(number, item) for number, item in staged.items()}
            await grid.mount_all(view for number, view in self._views.items() if number not in kept)
            grid.sort_children(key=lambda view: list(self._views.values()).index(view))  # type: ignore[arg-type]

    def tell_tokens(self, tokens: Mapping[int, int], *, are_estimates: bool = False) -> None:
        """Show the tokens of each attachment; `tokens`: by the attachment's number. Estimates are shown only for
        attachments without a count."""
        if are_estimates:
            self._estimates = dict(tokens)
        else:
            self._tokens = dict(tokens)
        for number, view in self._views.items():
            self._tell(view, number)

    def tell_cost(self, text: str, remedy: Remedy | None = None, *, too_much: bool = False) -> None:
        """Show a text about the tokens of the whole prompt. `remedy`: append what the user can do, and with which
        key."""
        self._say(self._cost, with_remedy(self.app, text, remedy))
        self._cost.set_class(too_much, "-too-much")
        self._update_display()

    def _view(self, number: int, item: Attachment) -> AttachmentView:
        rows = self._rows
        view = AttachmentView(item, number, cache=self._cache, columns=THUMBNAIL_WIDTH, rows=rows, brief=not rows)
        self._tell(view, number)
        return view

    def _tell(self, view: AttachmentView, number: int) -> None:
        known = self._tokens.get(number)
        view.tell_tokens(self._estimates.get(number) if known is None else known, is_estimate=known is None)

    @staticmethod
    def _say(line: Static, text: str) -> None:
        if line.content != text:  # an update lays out the screen
            line.update(text)
        line.set_class(bool(text), "-shown")

    def _update_display(self) -> None:
        self.display = bool(self._views) or any(line.has_class("-shown") for line in (self._pending, self._cost))


class AttachmentSources(ChatPart):
    """Adds media to the draft: from paths and addresses, the file browser, the clipboard, the inbox folder."""

    def __init__(self, screen: ChatScreen) -> None:
        super().__init__(screen)
        self._folder = Path.cwd()
        self._look = FolderView()

    def action_attach(self, text: str = "") -> None:
        """Attach the files named in `text`; if it is empty, open the file browser."""
        if text:
            self._screen.start(partial(self._gather, text), "gather")
        else:
            self._screen.start_dialog(self._browse)

    def action_sample(self) -> None:
        """Attach a sample image, and write a question about it."""
        self._screen.panel.attach([sample_image()])
        self._screen.panel.write(" What is in this image?")

    @background("gather")
    async def action_paste_picture(self) -> None:
        from vlmtui.media.clipboard import clipboard_pictures

        folder = self._screen.services.paths.cache / "clipboard"
        paths = await asyncio.to_thread(clipboard_pictures, folder, inbox=self._screen.services.paths.inbox)
        self.attach_files(paths)

    def action_inbox(self) -> None:
        """Show and copy the command that copies files into the inbox folder. The file browser then opens there."""
        from vlmtui.media.clipboard import scp_line

        self._folder = private_dir(self._screen.services.paths.inbox)
        line = scp_line(self._folder)
        self._app.copy_to_clipboard(line)
        told = f"{one_line(line)}\nCommand copied. The file browser now opens where the file arrives:"
        self._app.tell(told, Remedy.ATTACH_FILE)

    def attach_files(self, sources: Sequence[Path | str]) -> None:
        """Attach files and web addresses at the cursor; ask first if there are many."""
        from vlmtui.media.gather import ASK_ABOVE

        files = [source for source in sources if isinstance(source, Path)]
        if files:
            self._folder = files[-1].parent
        if len(sources) > ASK_ABOVE:
            self._screen.start_dialog(partial(self._attach_many, sources))
        else:
            self._screen.panel.attach(sources)

    async def _gather(self, text: str) -> None:
        from vlmtui.media.gather import gather

        found = await asyncio.to_thread(gather, text, base=Path.cwd())
        for problem in found.problems:
            self._app.tell_error(problem)
        if found.paths or found.urls:
            self.attach_files([*found.paths, *found.urls])

    async def _attach_many(self, sources: Sequence[Path | str]) -> None:
        question = f"Attach all {len(sources)} files to the message?"
        if await self._app.confirm(question, yes=f"Attach {len(sources)} files"):
            self._screen.panel.attach(sources)

    async def _browse(self) -> None:
        model = self._engines.model
        estimate = partial(tokens_before_attaching, model) if model is not None else None
        chosen = await self._app.choose_files(self._folder, look=self._look, estimate=estimate)
        self._folder = chosen.folder
        if chosen.paths:
            self.attach_files(chosen.paths)


class MessageAttachments(ChatPart):
    """Views, changes and removes attachments."""

    def tell_taken(self, attachment: Attachment) -> None:
        """Notify the user which page or frame was attached, if the file has several, and of parts that are damaged or
        that a viewer may show differently."""
        name = one_line(attachment.name)
        if warning := warning_of(attachment):
            self._app.tell(one_line(warning), severity="warning")
        if attachment.pages > 1:
            text = f"Attached page {attachment.page} of {attachment.pages} of {name}."
            self._app.tell(f"{text} /page 2 takes page 2 instead, /page 1-3 three pages, /page all every page.")
        elif _is_animation(attachment):
            self._app.tell(f"{name} is animated: attached as a video. /page 1 attaches a frame.")

    def tell_limits(self) -> None:
        """Warn about media of the conversation that the model does not accept."""
        model = self._engines.model
        if model is not None and (problem := excess_media(self._chat.branch.all, model.family)):
            self._app.tell(problem, Remedy.LEAVE_OUT_OLDEST, severity="warning")

    def action_frames(self, number: str = "") -> None:
        chosen = self._chosen("video", number, lambda item: item.sampling is not None)
        if chosen:
            self._screen.start_dialog(partial(self._choose_frames, chosen[-1]))

    def action_drop_attachment(self, number: str = "") -> None:
        tokens = self._chat.draft.tokens
        wanted = int(number) if is_number(number) else tokens[-1].number if tokens and not number else 0
        if not self._screen.panel.detach(wanted) and (number or tokens):
            problem = f"The message has no attachment {one_line(number)}."
            raise bad_input(problem, hint="The numbers are shown above.")

    def action_page(self, text: str = "") -> None:
        """Replace an attachment by other pages of its file, or frames of an animation as images: `2`, `1-3` or `all`;
        `2 5` for page 2 of attachment 5."""
        from vlmtui.media.pages import split_pages

        wanted, _, number = text.partition(" ")
        chosen = self._chosen(
            "document or animation", number.strip(), lambda item: item.pages > 1 or _is_animation(item)
        )
        if not chosen or (token := chosen[-1]).attachment is None:
            return
        is_all = wanted == "all" and not _is_animation(token.attachment)
        pages = range(1, token.attachment.pages + 1) if is_all else split_pages(f"file#page={wanted}").pages
        if not pages:
            raise bad_input("/page takes pages.", hint="For instance /page 2, /page 1-3 or /page all.")
        self._screen.start_dialog(partial(self._change_pages, token, pages))

    async def _change_pages(self, token: DraftToken, pages: Sequence[int]) -> None:
        from vlmtui.media.gather import ASK_ABOVE

        question = f"Attach all {len(pages)} pages to the message?"
        if len(pages) > ASK_ABOVE and not await self._app.confirm(question, yes=f"Attach {len(pages)} pages"):
            return
        self._screen.start(partial(self._stage_pages, token, pages), "stage")

    async def _stage_pages(self, token: DraftToken, pages: Sequence[int]) -> None:
        from vlmtui.media.stage import restage

        assert token.attachment is not None
        again = partial(restage, token.attachment, store=self._screen.services.paths.media)
        staged = [await asyncio.to_thread(again, page=page) for page in pages]
        if len(staged) == 1:
            self._screen.panel.replace(token.number, staged[0])
        else:
            self._screen.panel.replace_with_several(token.number, staged)

    def action_sound(self, number: str = "") -> None:
        """Attach the audio track of video `number`; without a number, of the last video in the message."""
        from vlmtui.media.pages import SOUND_OF

        chosen = self._chosen("video", number, lambda item: item.modality == "video")
        video = chosen[-1].attachment if chosen else None
        if video is None:
            return
        source = Path(video.source)
        path = source if source.is_absolute() and is_file(source) else Path(video.path)
        self._screen.panel.attach([path.with_name(f"{path.name}{SOUND_OF}")])

    def action_smaller(self, number: str = "") -> None:
        from vlmtui.media.changed_images import smaller_image

        self._change("image", number, partial(smaller_image, store=self._screen.services.paths.media))

    def action_fewer_frames(self, number: str = "") -> None:
        from vlmtui.media.changed_images import fewer_frames

        self._change("video", number, fewer_frames)

    def action_leave_out_oldest(self) -> None:
        exchange = self._chat.leave_out_oldest()
        if exchange is None:
            self._app.tell("No earlier message has attachments to leave out.")
        else:
            self._app.tell(f"{attachments_named(exchange)} now left out of prompts.", Remedy.SEND_AGAIN)

    def action_take_in_again(self) -> None:
        exchange = self._chat.take_in_again()
        if exchange is None:
            self._app.tell("No attachments are left out of prompts.")
        else:
            self._app.tell(f"{attachments_named(exchange)} now sent again with every prompt.")

    def _chosen(self, kind: str, number: str, fits: Callable[[Attachment], bool]) -> list[DraftToken]:
        """Return the draft's attachments for which `fits` is true; with a number, only the attachment with this
        number. If there is none, notify the user that the message has no `kind`."""
        tokens = [token for token in self._chat.draft.tokens if token.attachment and fits(token.attachment)]
        found = [token for token in tokens if not number or str(token.number) == number]
        if not found:
            self._app.tell(f"The message has no {kind} {one_line(number)}".rstrip() + ".")
        return found

    def _change(self, modality: Modality, number: str, change: Callable[[Attachment], Attachment]) -> None:
        for token in self._chosen(modality, number, lambda item: item.modality == modality):
            self._screen.start(partial(self._change_one, token, change), "stage")

    async def _change_one(self, token: DraftToken, change: Callable[[Attachment], Attachment]) -> None:
        """Replace an attachment with the result of `change`, which runs in a thread."""
        assert token.attachment is not None
        changed = await asyncio.to_thread(change, token.attachment)
        self._screen.panel.replace(token.number, changed)

    async def _choose_frames(self, token: DraftToken) -> None:
        # NumPy and libav import slowly, so import them off the event loop.
        await asyncio.to_thread(import_module, "vlmtui.media.frames")
        from vlmtui.media.frames import frames_as_images

        assert token.attachment is not None
        model = self._engines.model
        takes = model.family.takes if model is not None else {}
        most = takes["image"].max_items if "image" in takes else 0
        takes_video = "video" in takes or not takes
        choice = await self._app.choose_frames(token.attachment, takes_video=takes_video, most_images=most)
        if choice is None:
            return
        sampled = msgspec.structs.replace(token.attachment, sampling=choice.sampling)
        if not choice.as_images:
            self._screen.panel.replace(token.number, sampled)
            return
        images = await asyncio.to_thread(frames_as_images, sampled, self._screen.services.paths.media, most=most)
        self._screen.panel.replace_with_several(token.number, images)


def _is_animation(attachment: Attachment) -> bool:
    return attachment.modality == "video" and attachment.format in _ANIMATIONS
