"""The draft's attachments: taken from files, described in words, changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment, Modality, VideoSampling
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.describe import attachment_facts
from vlmtui.media.gather import ASK_ABOVE, gather
from vlmtui.media.mentions import as_written, find_mentions, may_name_files
from vlmtui.media.pages import SOUND_OF
from vlmtui.media.stage import restage, stage_source
from vlmtui.paths import private_dir
from vlmtui.plain.parts import Parts, RunCommand
from vlmtui.session.cost import Cost, CostEstimate
from vlmtui.session.draft import Draft, DraftToken, token_text
from vlmtui.session.draft_cost import draft_cost
from vlmtui.session.exchange import attachments_named
from vlmtui.text import human_bytes, is_number, one_line


class Attachments:
    """Adds, describes, changes and removes the attachments of the message being written."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @property
    def commands(self) -> Mapping[str, RunCommand]:
        return {
            "attach": self.attach,
            "paste_picture": self.paste,
            "inbox": self.open_inbox,
            "view": self.view,
            "drop_attachment": self.detach,
            "frames": self.choose_frames,
            "page": self.take_page,
            "still": self.take_still,
            "sound": self.take_sound,
            "smaller": self.make_smaller,
            "fewer_frames": self.take_fewer_frames,
            "leave_out_oldest": self.leave_out_oldest,
            "take_in_again": self.take_in_again,
        }

    @property
    def _draft(self) -> Draft:
        return self._parts.chat.draft

    # -- the line being written

    def take_line(self, line: str) -> None:
        """Make the draft of a line: tokens that it does not name come first."""
        draft = self._draft
        draft.text = draft.only_tokens()
        named = {token.number for token in draft.tokens_in(line)}
        rest = "".join(draft.text[token.start : token.end] for token in draft.tokens if token.number not in named)
        draft.text = rest + line
        self._renumber()

    async def offer_named(self) -> None:
        """Offer to attach the files that the draft's words name."""
        draft = self._draft
        if not may_name_files(draft.blanked):
            return
        found = await asyncio.to_thread(find_mentions, draft.blanked, Path.cwd())
        for mention in reversed([one for one in found if one.sources]):
            count, about = len(mention.sources), mention.title or "a web address"
            size = f", {human_bytes(mention.size)}" if mention.size else ""
            what = (
                f"{count} files of {one_line(mention.name)}"
                if count > 1
                else f"{one_line(mention.name)}, {about}{size}"
            )
            if await self._parts.output.confirm(f"Attach {what}?"):
                tokens = [await self._stage(source) for source in mention.sources]
                draft.text = draft.text[: mention.start] + "".join(tokens) + draft.text[mention.end :]
                self._renumber()

    # -- commands

    async def attach(self, argument: str) -> None:
        """Attach files, patterns, folders or web addresses."""
        found = await asyncio.to_thread(gather, argument, base=Path.cwd())
        for problem in found.problems:
            self._parts.output.tell_error(problem)
        await self._attach([*found.paths, *found.urls])

    async def paste(self, argument: str) -> None:
        """Attach the picture in this machine's clipboard."""
        from vlmtui.media.clipboard import clipboard_pictures

        paths = self._parts.services.paths
        await self._attach(await asyncio.to_thread(clipboard_pictures, paths.cache / "clipboard", inbox=paths.inbox))

    async def open_inbox(self, argument: str) -> None:
        """List the files in the inbox folder and attach the chosen one; say how to copy files there."""
        from vlmtui.media.inbox import scp_line

        folder = private_dir(self._parts.services.paths.inbox)
        found = await asyncio.to_thread(gather, str(folder), base=Path.cwd())
        output = self._parts.output
        output.tell(f"The inbox is filled by: {scp_line(folder)}")
        if not found.paths:
            output.tell("It is empty.")
            return
        chosen = await output.choose([one_line(path.name) for path in found.paths])
        if chosen is not None:
            await self._attach([found.paths[chosen]])

    async def view(self, argument: str) -> None:
        """Describe an attachment in words; without a number, all of them."""
        numbered = self._parts.chat.attachments_by_number()
        if argument and (not is_number(argument) or int(argument) not in numbered):
            raise bad_input(f"There is no attachment {one_line(argument)}.", hint="/view lists them.")
        if not numbered:
            self._parts.output.tell("Nothing is attached. /attach PATH attaches a file.")
        for number, item in numbered.items():
            if not argument or number == int(argument):
                self._describe(number, item)
                notes = [*item.notes, *([f"from {item.source}"] if item.source else [])]
                self._parts.output.lines(f"  {one_line(note)}" for note in [item.format, *notes])

    async def detach(self, argument: str) -> None:
        """Remove an attachment, or the last."""
        token = self._token(argument, lambda item: True)
        text = self._draft.text
        self._draft.text = text[: token.start] + text[token.end :]
        assert token.attachment is not None
        self._parts.output.tell(f"Removed {one_line(token.attachment.name)}.")
        self._changed()

    async def choose_frames(self, argument: str) -> None:
        """Ask how many frames of a video are sent."""
        token = self._token(argument, lambda item: item.sampling is not None)
        assert token.attachment is not None and token.attachment.sampling is not None
        output, now = self._parts.output, token.attachment.sampling
        self._describe(token.number, token.attachment)
        given = await output.ask(f"Frames to send (now {now.num_frames}; Enter: no change): ")
        if not given:
            return
        if not is_number(given) or not 1 <= int(given) <= 1000:
            raise bad_input(f"{one_line(given)} is not a number of frames.", hint="Give 1 to 1000.")
        sampling = msgspec.structs.replace(now, num_frames=int(given), fps=None)
        self._replace(token, msgspec.structs.replace(token.attachment, sampling=sampling))
        await self.tell_cost()

    async def take_page(self, argument: str) -> None:
        """Attach another page: `2`, or `2 5` for page 2 of attachment 5."""
        page, _, number = argument.partition(" ")
        if not is_number(page):
            raise bad_input("/page takes the number of a page.")
        await self._restage(number.strip(), lambda item: item.pages > 1, page=int(page))

    async def take_still(self, argument: str) -> None:
        """Attach an animation as a still picture."""
        await self._restage(argument, lambda item: item.modality == "video" and bool(item.source))

    async def take_sound(self, argument: str) -> None:
        """Attach the audio track of a video, too."""
        token = self._token(argument, lambda item: item.modality == "video")
        assert token.attachment is not None
        source = Path(token.attachment.source)
        path = source if source.is_absolute() and source.is_file() else Path(token.attachment.path)
        await self._attach([path.with_name(f"{path.name}{SOUND_OF}")])

    async def make_smaller(self, argument: str) -> None:
        """Halve the sides of the draft's images, or of one."""
        from vlmtui.media.smaller import smaller_image

        media = self._parts.services.paths.media
        await self._change("image", argument, lambda item: smaller_image(item, media))

    async def take_fewer_frames(self, argument: str) -> None:
        """Halve the frames of the draft's videos, or of one."""
        from vlmtui.media.smaller import fewer_frames

        await self._change("video", argument, fewer_frames)

    async def leave_out_oldest(self, argument: str) -> None:
        """Stop sending the oldest attachments."""
        found = self._parts.chat.leave_out_oldest()
        told = (
            f"{attachments_named(found)} now left out of prompts." if found else "No earlier message has attachments."
        )
        self._parts.output.tell(told)

    async def take_in_again(self, argument: str) -> None:
        """Send the attachments that were left out last again."""
        found = self._parts.chat.take_in_again()
        told = f"{attachments_named(found)} now sent again." if found else "No attachments are left out of prompts."
        self._parts.output.tell(told)

    async def tell_cost(self) -> None:
        """Tell what the draft's attachments cost in tokens."""
        output = self._parts.output
        outcome = await draft_cost(self._parts.chat, self._parts.controller)
        if isinstance(outcome, Cost | CostEstimate):
            mark = "" if isinstance(outcome, Cost) else "~"
            output.lines(f"  [{number}] {mark}{count:,} tokens" for number, count in outcome.tokens.items())
        if isinstance(outcome, VlmtuiError):
            output.tell_error(outcome)
        elif outcome is not None:
            output.tell(outcome.text)

    # -- internals

    async def _attach(self, sources: Sequence[Path | str]) -> None:
        if len(sources) > ASK_ABOVE and not await self._parts.output.confirm(f"Attach all {len(sources)} files?"):
            return
        for source in sources:
            try:
                token = await self._stage(source)
            except VlmtuiError as error:
                self._parts.output.tell_error(error)
                continue
            self._draft.text += token
            self._renumber()
            self._parts.draft_changed()
        if self._draft.attachments:
            await self.tell_cost()

    async def _stage(self, source: Path | str) -> str:
        """Open and check a file; return its token. Raises VlmtuiError."""
        paths, chat = self._parts.services.paths, self._parts.chat
        model = self._parts.controller.model
        sampling = VideoSampling(num_frames=model.spec.num_frames) if model is not None else None
        number = chat.draft.reserve(chat.attachments_sent, written=as_written(source))
        try:
            attachment = await stage_source(source, paths.media, paths.cache / "downloads", sampling)
        except OSError as error:
            chat.draft.drop(number)
            raise bad_input(f"{source} cannot be read.", detail=str(error)) from error
        except VlmtuiError:
            chat.draft.drop(number)
            raise
        chat.draft.fill(number, attachment)
        self._describe(number, attachment)
        return token_text(number, attachment)

    def _describe(self, number: int, item: Attachment) -> None:
        pages = f", page {item.page} of {item.pages} (/page NUMBER takes another)" if item.pages > 1 else ""
        token = token_text(number, item)
        self._parts.output.line(f"{token} {one_line(item.name)}, {attachment_facts(item)}{pages}")

    async def _change(self, modality: Modality, number: str, change: Callable[[Attachment], Attachment]) -> None:
        tokens = [self._token(number, lambda item: item.modality == modality)]
        if not number:
            tokens = [
                token for token in self._draft.tokens if token.attachment and token.attachment.modality == modality
            ]
        for token in tokens:
            assert token.attachment is not None
            self._replace(token, await asyncio.to_thread(change, token.attachment))
        await self.tell_cost()

    async def _restage(self, number: str, fits: Callable[[Attachment], bool], *, page: int = 1) -> None:
        token = self._token(number, fits)
        assert token.attachment is not None
        media = self._parts.services.paths.media
        self._replace(token, await asyncio.to_thread(restage, token.attachment, store=media, page=page, still=True))
        await self.tell_cost()

    def _token(self, number: str, fits: Callable[[Attachment], bool]) -> DraftToken:
        """Return the token with this number, or the last one that fits. Raises VlmtuiError."""
        tokens = [token for token in self._draft.tokens if token.attachment is not None and fits(token.attachment)]
        found = [token for token in tokens if not number or str(token.number) == number]
        if not found:
            problem = f"Attachment {one_line(number)} is not one" if number else "The message has no attachment"
            raise bad_input(f"{problem} that this works on.", hint="/view lists them.")
        return found[-1]

    def _replace(self, token: DraftToken, attachment: Attachment) -> None:
        draft = self._draft
        draft.text = draft.text[: token.start] + token_text(token.number, attachment) + draft.text[token.end :]
        draft.fill(token.number, attachment)
        self._describe(token.number, attachment)
        self._changed()

    def _changed(self) -> None:
        self._renumber()
        self._parts.draft_changed()

    def _renumber(self) -> None:
        self._draft.renumber(self._parts.chat.attachments_sent, 0)
