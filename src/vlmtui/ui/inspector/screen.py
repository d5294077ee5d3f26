"""The inspector: the prompt, its media, the request, and the answer token by token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import ContentSwitcher, OptionList, Static, Tab, Tabs
from textual.worker import get_current_worker

from vlmtui.domain.capabilities import Capability, lack
from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.domain.generation import GenerateRequest, usage_of
from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import write_numbered
from vlmtui.media.contact_sheet import Rgb, Room, Sheet, make_sheet
from vlmtui.session.lint import LintReport, lint_outcome
from vlmtui.session.media_facts import PromptMedia, media_facts, media_items, resized_attachment, resized_image
from vlmtui.session.prompt_report import (
    PARTS,
    AnswerToken,
    Part,
    PromptReport,
    answer_tokens,
    part_file,
    part_text,
    prompt_pieces,
    rendered_again,
    template_of,
    with_logprobs,
)
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.document.blocks import PromptBlock, TextBlock
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.inspector.answer_tokens import AnswerTokensPanel
from vlmtui.ui.inspector.lint_screen import finding_line, summary
from vlmtui.ui.inspector.prompt_lines import (
    BREAK_STYLE,
    HEADING,
    TokenRows,
    TokenTable,
    prompt_lines,
    request_lines,
    template_lines,
)
from vlmtui.ui.keys import error_text, short_keys, with_keys
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.terminal.key_queue import run_before_keys
from vlmtui.ui.widgets.clicks import one_frame
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.search_bar import SearchBar, SearchScreen
from vlmtui.ui.widgets.thumbnails import name_line

if TYPE_CHECKING:
    from PIL.Image import Image

_LABEL = 16
_LOWEST = 6
"""Fewest rows of a picture."""
_WAVE_ROWS = 8
"""Most rows of a waveform."""
_TITLES: dict[Part, str] = {
    "prompt": "Prompt",
    "tokens": "Tokens",
    "media": "Media",
    "template": "Template",
    "request": "Request",
    "answer": "Answer",
}
_NOTHING: dict[Part, str] = {
    "prompt": "The engine did not report this prompt. A batch keeps prompts with --include-prompt.",
    "tokens": "The prompt's tokens are no longer available.",
    "media": "The prompt has no images or videos.",
    "template": "No chat template: the model has none in Jinja, or it is no longer loaded.",
    "request": "The request is unknown.",
    "answer": "There is no answer.",
}
_MADE_HERE = "The engine tells no prompt. Made here from the family's record, and maybe not what the engine used:"
_NEEDS: dict[Part, Capability] = {
    "tokens": "prompt_token_ids",
    "media": "media_spans",
    "template": "chat_template_source",
}
"""The engine capability that each part needs."""
_MUCH_TO_COPY = 75_000
"""Most characters that many terminals accept for the clipboard."""


class InspectorContent(msgspec.Struct, frozen=True):
    """Everything that the tabs show, ready to draw."""

    prompt: Sequence[Content]
    tokens: TokenRows
    media: Sequence[PromptMedia]
    template: Sequence[Content]
    request: Sequence[Content]
    answer: Sequence[AnswerToken]
    answer_text: Sequence[Content]
    """The answer's text, for answers whose tokens are unknown."""

    @classmethod
    def of(cls, inspected: PromptReport) -> InspectorContent:
        """Compute the content. Slow for long prompts."""
        return cls(
            prompt_lines(inspected) if inspected.text else _lines(inspected.made_here),
            TokenRows(prompt_pieces(inspected), inspected.vocabulary),
            media_items(inspected),
            template_lines(template_of(inspected)),
            request_lines(inspected),
            answer_tokens(inspected),
            _lines(inspected.answer),
        )

    def has(self, part: Part) -> bool:
        """Return whether a part has content."""
        return bool(len(getattr(self, part)) or (part == "answer" and self.answer_text))


def _lines(text: str) -> list[Content]:
    return [Content(one_line(line)) for line in text.split("\n")] if text else []


@dataclass(frozen=True)
class Loudness:
    """A sound's loudness over time: its loudest sample in each column, 0 to 1."""

    shares: tuple[float, ...]


class MediaParts(Horizontal):
    """A list of the media; beside it the facts of the highlighted one, and its picture as resized for the model."""

    DEFAULT_CSS = """
    MediaParts {
        #items, #item { height: 100%; scrollbar-size-vertical: 1; }
        #items { width: 26; border: none; padding: 0; background: transparent; }
        #item { width: 1fr; padding: 0 1; border-left: solid $border-blurred; }
        #facts { height: auto; width: 100%; }
        #reason { height: auto; color: $muted; }
        .picture { margin: 1 0 0 0; }
        .wave { height: auto; color: $accent; margin: 1 0 0 0; text-wrap: nowrap; }
        .times { height: 1; color: $muted; text-wrap: nowrap; }
    }
    """

    @dataclass
    class ViewWanted(Message):
        """Show this attachment in full size."""

        item: PromptMedia

    @dataclass
    class Drawn(Message):
        """The picture or frames of an item, or why there are none."""

        number: int
        outcome: Image | Sheet | Loudness | VlmtuiError

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._items: Sequence[PromptMedia] = ()
        self._drawn: Sheet | Image | Loudness | None = None

    def compose(self) -> ComposeResult:
        yield OptionList(id="items", markup=False, compact=True)
        with VerticalScroll(id="item", can_focus=False):
            yield Static(id="facts", markup=False)
            yield Static(id="reason", markup=False)
            yield Vertical(id="picture")

    def show(self, items: Sequence[PromptMedia]) -> None:
        self._items = items
        listed = self.query_one("#items", OptionList)
        listed.clear_options()
        listed.add_options([name_line(item.attachment, item.number) for item in items])
        listed.highlighted = 0 if items else None

    @property
    def current(self) -> PromptMedia | None:
        """The highlighted item."""
        index = self.query_one("#items", OptionList).highlighted
        return self._items[index] if index is not None and index < len(self._items) else None

    def take_focus(self) -> None:
        """Focus the list."""
        self.query_one("#items").focus()

    @on(events.Resize)
    def _resized(self) -> None:
        self.call_after_refresh(self._ask)

    @on(OptionList.OptionHighlighted)
    async def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self._drawn = None
        await self.query_one("#picture").remove_children()
        self.query_one("#reason", Static).update("")
        self._tell()
        self.call_after_refresh(self._ask)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self.current is not None:
            self.post_message(self.ViewWanted(self.current))

    @on(Drawn)
    async def _shown(self, event: Drawn) -> None:
        item = self.current
        if item is None or item.number != event.number:
            return
        place = self.query_one("#picture")
        if isinstance(event.outcome, VlmtuiError):
            await place.remove_children()
            self.query_one("#reason", Static).update(one_line(str(event.outcome)))
            return
        self._drawn = event.outcome
        self._tell()
        with one_frame(self):
            await place.remove_children()
            if isinstance(event.outcome, Loudness):
                from vlmtui.media.sound import sound_rows

                rows = sound_rows(event.outcome.shares, min(_WAVE_ROWS, self._room[1]))
                await place.mount(Static("\n".join(rows), classes="wave", markup=False))
                return
            if isinstance(event.outcome, Sheet):
                await self._mount_sheet(event.outcome)
                return
            picture = self._graphics.widget_for(event.outcome, columns=self._room[0], rows=self._room[1])
            if picture is not None:
                picture.add_class("picture")
                await place.mount(picture)

    async def _mount_sheet(self, sheet: Sheet) -> None:
        place = self.query_one("#picture")
        for number, image in enumerate(sheet.rows):
            columns, rows = sheet.grid.per_row * sheet.grid.column, sheet.grid.high
            picture = self._graphics.widget_for(image, columns=columns, rows=rows)
            if picture is not None:
                picture.styles.width, picture.styles.height = columns, rows
                await place.mount(picture)
            await place.mount(Static(sheet.times_of(number), classes="times", markup=False))

    @property
    def _graphics(self) -> Graphics:
        return Graphics.of(self.app)

    @property
    def _room(self) -> tuple[int, int]:
        """Return the cells available for a picture."""
        place = self.query_one("#item")
        known = self.query_one("#facts").size.height
        return max(place.content_size.width, 1), max(place.content_size.height - known - 1, _LOWEST)

    def _tell(self) -> None:
        item = self.current
        if item is None:
            return
        times = self._drawn.times_s if isinstance(self._drawn, Sheet) else ()
        lines = [
            Content.assemble((f"{name:<{_LABEL}}", "$muted"), one_line(value))
            for name, value in media_facts(item, times)
        ]
        self.query_one("#facts", Static).update(Content("\n").join(lines))

    def _ask(self) -> None:
        item, graphics = self.current, self._graphics
        if item is None or not self.is_attached or self.query_one("#item").content_size.width == 0:
            return
        if item.attachment.modality == "image" and graphics.mode == "off":
            return
        columns, rows = self._room
        room = None if graphics.mode == "off" else Room(columns, rows, graphics.cell, graphics.pixels)
        red, green, blue = self.query_one("#item").background_colors[1].rgb
        self._draw(item, room, (red, green, blue))

    @work(thread=True, group="draw", exclusive=True)
    def _draw(self, item: PromptMedia, room: Room | None, gap: Rgb) -> None:
        from vlmtui.media.sound import loudness, read_sound

        if get_current_worker().is_cancelled:
            return
        outcome: Image | Sheet | Loudness | VlmtuiError
        try:
            if item.attachment.modality == "audio":
                samples = read_sound(Path(item.attachment.path))
                outcome = Loudness(tuple(loudness(samples, self._room[0])))
            elif item.attachment.modality == "video":
                outcome = make_sheet(item.attachment, item.attachment.sampling or VideoSampling(), room, gap)
            else:
                outcome = resized_image(item)
                if room is not None:
                    outcome.thumbnail((room.columns * room.cell[0], room.rows * room.cell[1]))
        except VlmtuiError as error:
            outcome = error
        self.post_message(self.Drawn(item.number, outcome))


class InspectorScreen(SearchScreen):
    """One tab for each part. `engine` returns the engine if it is ready, or raises VlmtuiError; `again` rebuilds a
    request that was not stored; `cache` is the folder of the thumbnails. `lint` checks the loaded model's template, and
    blocks; None: nothing can."""

    CSS_PATH = "screen.tcss"
    SCOPE = "inspector"
    BINDINGS = bindings(SCOPE)

    @dataclass
    class ContentReady(Message):
        """The content was computed."""

        inspected: PromptReport
        taken: InspectorContent

    @dataclass
    class EngineAnswered(Message):
        """The result of an engine request, and a sentence about it."""

        outcome: PromptReport | VlmtuiError
        said: str = ""
        part: Part = "answer"

    @dataclass
    class TemplateChecked(Message):
        """What the check of the template found, or why it failed."""

        outcome: LintReport | VlmtuiError

    @dataclass
    class Saved(Message):
        """Where a part was saved, or why that failed."""

        outcome: Path | VlmtuiError

    def __init__(
        self,
        inspected: PromptReport,
        *,
        cache: Path,
        engine: Callable[[], Engine],
        again: Callable[[], GenerateRequest] | None = None,
        show_viewer: Callable[[list[Attachment]], object],
        lint: Callable[[], LintReport] | None = None,
    ) -> None:
        super().__init__()
        self.inspected = inspected
        has_prompt = inspected.prompt is not None or bool(inspected.prompt_text or inspected.made_here)
        is_answer_all = bool(inspected.answer) and again is None and not has_prompt
        self.part: Part = "answer" if is_answer_all else "prompt"
        self.taken: InspectorContent | None = None
        """None until it is computed."""
        self._cache = cache
        self._engine = engine
        self._again = again
        self._show_viewer = show_viewer
        self._lint = lint
        self._asking = False
        self._findings: TextBlock | None = None
        """The faults of the template, checked once; None until then."""

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(id="title", markup=False)
            yield Static(id="about", markup=False)
        titles = {part: f"{short_keys(self.app, f'inspector.{part}')} {_TITLES[part]}".strip() for part in PARTS}
        yield Tabs(*(Tab(title, id=part) for part, title in titles.items()))
        yield Static("Reading the prompt …", id="nothing", classes="nothing", markup=False)
        yield Static(id="said", markup=False)
        with ContentSwitcher(initial="prompt-part", id="parts"):
            yield DocumentView(has_edge=False, can_focus=True, id="prompt-part")
            with Vertical(id="tokens-part"):
                yield Static(HEADING, classes="heading", markup=False)
                yield TokenTable(id="token-rows")
            yield MediaParts(id="media-part")
            yield DocumentView(has_edge=False, can_focus=True, id="template-part")
            yield DocumentView(has_edge=False, can_focus=True, id="request-part")
            yield AnswerTokensPanel(id="answer-part")
        yield SearchBar()
        yield FooterBar()

    def on_mount(self) -> None:
        self.query_one(Tabs).can_focus = False
        self._tell_title()
        self._show_part()
        self._take_apart(self.inspected)

    @on(ContentReady)
    def _ready(self, event: ContentReady) -> None:
        if event.inspected is not self.inspected or not self.is_attached:
            return
        taken = self.taken = event.taken
        prompt = PromptBlock(taken.prompt, break_style=BREAK_STYLE, margin=1)
        self._document("prompt").show(*([] if event.inspected.text else [TextBlock(_MADE_HERE)]), prompt)
        self.query_one(TokenTable).show(taken.tokens)
        self.query_one(MediaParts).show(taken.media)
        self._show_template(taken)
        self._document("request").show(PromptBlock(taken.request))
        self.query_one(AnswerTokensPanel).show(taken.answer, taken.answer_text)
        self._tell_title()
        self._show_part()

    def _document(self, part: Part) -> DocumentView:
        return self.query_one(f"#{part}-part", DocumentView)

    def _show_template(self, taken: InspectorContent) -> None:
        """Show the template below its findings."""
        template = PromptBlock(taken.template, margin=1)
        self._document("template").show(*([self._findings] if self._findings else []), template)

    def _check_template(self) -> None:
        """Check the loaded model's template, unless that was done."""
        if self._lint is not None and self._findings is None and self.taken is not None:
            self._findings = TextBlock(Content.styled("Checking the template …", "$muted"))
            self._show_template(self.taken)
            self._lint_template(self._lint)

    @on(TemplateChecked)
    def _template_checked(self, event: TemplateChecked) -> None:
        if self._findings is None:
            return
        if isinstance(event.outcome, VlmtuiError):
            told = Content.styled(f"Not checked: {one_line(event.outcome.message)}", "$muted")
        else:
            checked = Content.styled(f"Checked: {summary(event.outcome)}", "$muted")
            told = Content("\n").join([checked, *map(finding_line, event.outcome.findings)])
        self._findings.text = told
        self._document("template").changed(self._findings)

    @on(EngineAnswered)
    def _answered(self, event: EngineAnswered) -> None:
        self._asking = False
        if isinstance(event.outcome, VlmtuiError):
            self._say("")
            self._tell_error(event.outcome)
            return
        self.inspected = event.outcome
        self._say(event.said)
        self.part = event.part
        self._take_apart(event.outcome)

    @on(Saved)
    def _saved(self, event: Saved) -> None:
        if isinstance(event.outcome, VlmtuiError):
            self._tell_error(event.outcome)
        else:
            self.notify(f"Saved {one_line(str(event.outcome))}", timeout=8, markup=False)

    @on(Tabs.TabActivated)
    def _tab_activated(self, event: Tabs.TabActivated) -> None:
        chosen = next((part for part in PARTS if part == event.tab.id), None)
        if chosen is not None and chosen != self.part:
            self.part = chosen
            self._show_part()

    @on(MediaParts.ViewWanted)
    def _view_wanted(self, event: MediaParts.ViewWanted) -> None:
        run_before_keys(self, partial(self._view, event.item))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "logprobs":
                return self.inspected.request is not None and self._has_engine and not self._asking
            case "again":
                return self._again is not None and self.inspected.prompt is None and not self._asking
            case _:
                return super().check_action(action, parameters)

    @property
    def searched(self) -> DocumentView | None:
        if self.taken is None or not self.taken.has(self.part):
            return None
        match self.part:
            case "prompt" | "template" | "request":
                return self._document(self.part)
            case "answer":
                return self.query_one(AnswerTokensPanel).document_view
            case _:
                return None

    @property
    def _has_engine(self) -> bool:
        try:
            self._engine()
        except VlmtuiError:
            return False
        return True

    def action_close(self) -> None:
        self.dismiss()

    def action_turn(self, step: int) -> None:
        """Show the next or previous part."""
        self.action_show(PARTS[(PARTS.index(self.part) + step) % len(PARTS)])

    def action_show(self, part: Part) -> None:
        self.part = part
        self._show_part()

    def action_copy(self) -> None:
        """Copy the current part, through the terminal (OSC 52)."""
        text = part_text(self.inspected, self.part)
        if not text:
            self._tell_error(bad_input("There is nothing here to copy."))
            return
        self.app.copy_to_clipboard(text)
        doubt = " Many terminals refuse that much; {inspector.save} saves it." if len(text) > _MUCH_TO_COPY else ""
        self.notify(with_keys(self.app, f"Copied {len(text):,} characters.{doubt}"), markup=False)

    def action_save(self) -> None:
        """Save the current part as a file."""
        self._save(self.inspected, self.part, Path.cwd())

    def action_logprobs(self) -> None:
        """Repeat the request with log-probabilities, without changing the conversation."""
        self.part = "answer"
        self._asking = True
        self._show_part()
        self._say("Requesting log-probabilities; the first time may take some seconds …")
        self.refresh_bindings()
        self._ask_logprobs(self.inspected)

    def action_again(self) -> None:
        """Render the prompt again with the loaded model."""
        if self._again is not None:
            self._asking = True
            self._say("Rendering the prompt …")
            self._render_again(self.inspected, self._again)

    def _show_part(self) -> None:
        self.query_one(Tabs).active = self.part
        taken, has = self.taken, self.taken is None or self.taken.has(self.part)
        switcher, nothing = self.query_one("#parts", ContentSwitcher), self.query_one("#nothing", Static)
        switcher.current = f"{self.part}-part"
        switcher.display = taken is not None and has
        nothing.display = not switcher.display
        if not has:
            again = with_keys(self.app, " {inspector.render_again} renders it again.")
            offered = again if self.check_action("again", ()) and self.part in ("prompt", "tokens") else ""
            nothing.update((self._lack(self.part) or _NOTHING[self.part]) + offered)
        self.query_one(SearchBar).close()
        self._focus_part()
        self.refresh_bindings()

    def _lack(self, part: Part) -> str:
        """Return why the engine that answered does not report this part; empty if it does, or if unknown."""
        needs = _NEEDS.get(part)
        is_there = bool(self.inspected.attachments) if part == "media" else bool(self.inspected.text)
        return lack(self.inspected.info, needs) if needs and is_there else ""

    def _focus_part(self) -> None:
        """Focus the current part."""
        match self.part:
            case "tokens":
                self.query_one(TokenTable).focus()
            case "media":
                self.query_one(MediaParts).take_focus()
            case _:
                if self.searched is not None:
                    self.searched.focus()
                if self.part == "template":
                    self._check_template()

    def _tell_title(self) -> None:
        inspected = self.inspected
        info, prompt = inspected.info, inspected.prompt
        name = info.spec.name if info else inspected.model
        parts = [one_line(name)] if name else []
        if prompt is not None:
            media = usage_of(prompt).media_text
            parts.append(f"prompt {len(prompt.token_ids):,}" + (f" ({media})" if media else ""))
        if inspected.answer_ids:
            parts.append(f"answer {len(inspected.answer_ids):,} tokens")
        self.query_one("#title", Static).update(f"Inspector · {one_line(inspected.title)}")
        self.query_one("#about", Static).update(" · ".join(parts))

    def _say(self, text: str) -> None:
        said = self.query_one("#said", Static)
        said.update(text)
        said.display = bool(text)

    def _tell_error(self, error: VlmtuiError) -> None:
        self.notify(error_text(self.app, error), severity="error", timeout=10, markup=False)
        self.refresh_bindings()

    @work(thread=True, group="apart", exclusive=True)
    def _take_apart(self, inspected: PromptReport) -> None:
        self.post_message(self.ContentReady(inspected, InspectorContent.of(inspected)))

    @work(thread=True, group="lint")
    def _lint_template(self, lint: Callable[[], LintReport]) -> None:
        self.post_message(self.TemplateChecked(lint_outcome(lint)))

    @work(thread=True, group="save")
    def _save(self, inspected: PromptReport, part: Part, folder: Path) -> None:
        text = part_text(inspected, part)
        try:
            if not text:
                raise bad_input("There is nothing here to save.")
            path = write_numbered(folder, part_file(inspected, part), text.encode("utf-8", "replace"))
        except VlmtuiError as error:
            self.post_message(self.Saved(error))
            return
        self.post_message(self.Saved(path))

    @work(group="ask", exclusive=True)
    async def _ask_logprobs(self, inspected: PromptReport) -> None:
        try:
            told = await with_logprobs(self._engine(), inspected)
        except VlmtuiError as error:
            self.post_message(self.EngineAnswered(error))
            return
        same = "" if told.answer == inspected.answer else "The answer differs this time: it is not reproducible."
        self.post_message(self.EngineAnswered(told, same))

    @work(group="ask", exclusive=True)
    async def _render_again(self, inspected: PromptReport, again: Callable[[], GenerateRequest]) -> None:
        try:
            told = await rendered_again(self._engine(), inspected, again())
        except VlmtuiError as error:
            self.post_message(self.EngineAnswered(error))
            return
        same = told.text == inspected.prompt_text
        said = "Rendered again: the text is the same." if same else "Rendered again: the text differs."
        self.post_message(self.EngineAnswered(told, said, "prompt"))

    async def _view(self, item: PromptMedia) -> None:
        attachment = item.attachment
        try:
            if attachment.modality == "image" and item.resized:
                attachment = await asyncio.to_thread(resized_attachment, item, self._cache)
        except VlmtuiError as error:
            self._tell_error(error)
            return
        self._show_viewer([attachment])
