"""The inspector: the prompt, its tokens and media, the template, the request, and the answer token by token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import ContentSwitcher, OptionList, Static, Tab, Tabs

from vlmtui.domain.capabilities import Capability, lack
from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import GenerateRequest, usage_of
from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import write_numbered
from vlmtui.session.generation import PromptMedia, media_items
from vlmtui.session.prompt_report import (
    PARTS,
    AnswerToken,
    Part,
    PromptReport,
    answer_tokens,
    media_facts,
    part_file,
    part_text,
    prompt_pieces,
    rendered_again,
    template_of,
    with_logprobs,
)
from vlmtui.session.seeing import RoomImage
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.document.blocks import PromptBlock, TextBlock
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.inspector.answer_tokens import AnswerTokensPanel
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
from vlmtui.ui.widgets.attachment_view import AttachmentView
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.search_bar import SearchBar, SearchScreen
from vlmtui.ui.widgets.thumbnails import name_line

if TYPE_CHECKING:
    from vlmtui.ui.app import VlmtuiApp

_LABEL = 16
_ROWS_MIN = 6
"""Fewest rows of an image."""
_BELOW = 3
"""Rows below an image: its name, its facts, and an empty row."""
_TITLES: dict[Part, str] = {
    "prompt": "Prompt",
    "tokens": "Tokens",
    "media": "Media",
    "template": "Template",
    "request": "Request",
    "answer": "Answer",
}
_EMPTY_TEXTS: dict[Part, str] = {
    "prompt": "The prompt was not stored. A batch stores prompts with --include-prompt.",
    "tokens": "The prompt's tokens were not stored.",
    "media": "The prompt has no images or videos.",
    "template": "No chat template: the model has none in Jinja, or it is no longer loaded.",
    "request": "The request is unknown.",
    "answer": "There is no answer.",
}
_RENDERED_HERE = "The engine doesn't report its prompt. Below: a reconstruction from the model's record."
_NEEDS: dict[Part, Capability] = {
    "prompt": "prompt_token_ids",
    "tokens": "prompt_token_ids",
    "media": "media_spans",
    "template": "chat_template_source",
}
"""The engine's capability that a part needs."""
_MUCH_TO_COPY = 75_000
"""Characters above which many terminals refuse to set the clipboard."""


class InspectorContent(msgspec.Struct, frozen=True):
    """The content of all tabs, ready to draw."""

    prompt: Sequence[Content]
    tokens: TokenRows
    media: Sequence[PromptMedia]
    template: Sequence[Content]
    request: Sequence[Content]
    answer: Sequence[AnswerToken]
    answer_text: Sequence[Content]
    """The answer's text, for an answer whose tokens are unknown."""

    @classmethod
    def of(cls, inspected: PromptReport) -> InspectorContent:
        """Compute the content. Slow for long prompts."""
        return cls(
            prompt_lines(inspected) if inspected.text else _lines(inspected.made_here),
            TokenRows(prompt_pieces(inspected), inspected.vocabulary),
            media_items(
                inspected.prompt, inspected.attachments, inspected.recipe.media_tokens if inspected.recipe else ()
            ),
            template_lines(template_of(inspected)),
            request_lines(inspected),
            answer_tokens(inspected),
            _lines(inspected.answer),
        )

    def has(self, part: Part) -> bool:
        return bool(len(getattr(self, part)) or (part == "answer" and self.answer_text))


def _lines(text: str) -> list[Content]:
    return [Content(one_line(line)) for line in text.split("\n")] if text else []


class MediaParts(Horizontal):
    """The list of the prompt's media; beside it, facts about the highlighted item, and its image."""

    DEFAULT_CSS = """
    MediaParts {
        #items, #item { height: 100%; scrollbar-size-vertical: 1; }
        #items { width: 26; border: none; padding: 0; background: transparent; }
        #item { width: 1fr; padding: 0 1; border-left: solid $border-blurred; }
        #facts { height: auto; width: 100%; margin-bottom: 1; }
    }
    """

    def __init__(self, *, id: str, cache: Path) -> None:
        """`cache`: the folder with thumbnails."""
        super().__init__(id=id)
        self._cache = cache
        self._items: Sequence[PromptMedia] = ()

    def compose(self) -> ComposeResult:
        yield OptionList(id="items", markup=False, compact=True)
        with VerticalScroll(id="item", can_focus=False):
            yield Static(id="facts", markup=False)

    def show(self, items: Sequence[PromptMedia]) -> None:
        self._items = items
        listed = self.query_one("#items", OptionList)
        listed.clear_options()
        listed.add_options([name_line(item.attachment, item.number) for item in items])
        listed.highlighted = 0 if items else None

    @property
    def current(self) -> PromptMedia | None:
        index = self.query_one("#items", OptionList).highlighted
        return self._items[index] if index is not None and index < len(self._items) else None

    @on(events.Resize)
    @on(OptionList.OptionHighlighted)
    def _changed(self) -> None:
        self.call_after_refresh(self._show_current)

    async def _show_current(self) -> None:
        item, place = self.current, self.query_one("#item")
        await self.query(AttachmentView).remove()
        if item is None:
            return
        facts = [
            Content.assemble((f"{name:<{_LABEL}}", "$muted"), one_line(value)) for name, value in media_facts(item)
        ]
        self.query_one("#facts", Static).update(Content("\n").join(facts))
        columns, rows = place.content_size.width, place.content_size.height - len(facts) - _BELOW
        if columns > 0:
            view = AttachmentView(
                item.attachment, item.number, cache=self._cache, columns=columns, rows=max(rows, _ROWS_MIN)
            )
            await place.mount(view)


class InspectorScreen(SearchScreen):
    """Shows a prompt and its answer. There is a tab for each part, such as the text, the tokens and the media."""

    CSS_PATH = "screen.tcss"
    SCOPE = "inspector"
    BINDINGS = bindings(SCOPE)

    def __init__(self, inspected: PromptReport, *, again: Callable[[], GenerateRequest] | None = None) -> None:
        """`again`: returns the request, for rendering a prompt that was not stored; None if that is impossible."""
        super().__init__()
        self.inspected = inspected
        has_prompt = inspected.prompt is not None or bool(inspected.prompt_text or inspected.made_here)
        is_answer_all = bool(inspected.answer) and again is None and not has_prompt
        self.part: Part = "answer" if is_answer_all else "prompt"
        self.taken: InspectorContent | None = None
        """None until it is computed."""
        self._again = again
        self._asking = False

    @property
    def main_app(self) -> VlmtuiApp:
        return cast("VlmtuiApp", self.app)

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
            yield MediaParts(id="media-part", cache=self.main_app.services.paths.thumbnails)
            yield DocumentView(has_edge=False, can_focus=True, id="template-part")
            yield DocumentView(has_edge=False, can_focus=True, id="request-part")
            yield AnswerTokensPanel(id="answer-part")
        yield SearchBar()
        yield FooterBar()

    def on_mount(self) -> None:
        self.query_one(Tabs).can_focus = False
        self._tell_title()
        self._show_part()
        self._show_content()

    def _document(self, part: Part) -> DocumentView:
        return self.query_one(f"#{part}-part", DocumentView)

    @on(Tabs.TabActivated)
    def _tab_activated(self, event: Tabs.TabActivated) -> None:
        chosen = next((part for part in PARTS if part == event.tab.id), None)
        if chosen is not None and chosen != self.part:
            self.part = chosen
            self._show_part()

    @on(OptionList.OptionSelected)
    def _view_wanted(self) -> None:
        item = self.query_one(MediaParts).current
        if item is not None:
            self._open_image(item.attachment)

    def on_attachment_view_clicked(self, event: AttachmentView.Clicked) -> None:
        event.stop()
        self._open_image(event.attachments[event.at])

    def _open_image(self, attachment: Attachment) -> None:
        items = media_items(self.inspected.prompt, self.inspected.attachments)
        images = [RoomImage(item.attachment, item.number, self._report) for item in items]
        self.main_app.open_images(images, next(at for at, one in enumerate(images) if one.attachment is attachment))

    async def _report(self) -> PromptReport:
        return self.inspected

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
            self.main_app.engines.require_engine()
        except VlmtuiError:
            return False
        return True

    def action_close(self) -> None:
        self.dismiss()

    def action_turn(self, step: int) -> None:
        self.action_show(PARTS[(PARTS.index(self.part) + step) % len(PARTS)])

    def action_show(self, part: Part) -> None:
        self.part = part
        self._show_part()

    def action_copy(self) -> None:
        text = part_text(self.inspected, self.part)
        if not text:
            self._tell_error(bad_input("There is nothing here to copy."))
            return
        self.app.copy_to_clipboard(text)
        doubt = " Many terminals refuse that much; {inspector.save} saves it." if len(text) > _MUCH_TO_COPY else ""
        self.notify(with_keys(self.app, f"Copied {len(text):,} characters.{doubt}"), markup=False)

    @work(group="save")
    async def action_save(self) -> None:
        inspected, part = self.inspected, self.part
        text = await asyncio.to_thread(part_text, inspected, part)
        try:
            if not text:
                raise bad_input("There is nothing here to save.")
            data = text.encode("utf-8", "replace")
            path = await asyncio.to_thread(write_numbered, Path.cwd(), part_file(inspected, part), data)
        except VlmtuiError as error:
            self._tell_error(error)
        else:
            self.notify(f"Saved {one_line(str(path))}", markup=False)

    @work(group="ask", exclusive=True)
    async def action_logprobs(self) -> None:
        """Repeat the request with log-probabilities. The conversation does not change."""
        inspected, self.part = self.inspected, "answer"
        self._show_part()
        waits = "Requesting log-probabilities; the first time may take some seconds …"
        told = await self._ask(waits, lambda engine: with_logprobs(engine, inspected))
        if told is not None:
            same = told.answer == inspected.answer
            self._show_report(told, "" if same else "The answer differs this time: it is not reproducible.")

    @work(group="ask", exclusive=True)
    async def action_again(self) -> None:
        inspected, again = self.inspected, self._again
        if again is None:
            return
        told = await self._ask("Rendering the prompt …", lambda engine: rendered_again(engine, inspected, again()))
        if told is not None:
            self.part = "prompt"
            same = told.text == inspected.prompt_text
            self._show_report(told, f"Rendered again: the text {'is the same' if same else 'differs'}.")

    async def _ask(self, waits: str, ask: Callable[[Engine], Awaitable[PromptReport]]) -> PromptReport | None:
        """Get a report from the engine with `ask`. If that fails, show the error and return None. `waits`: the text to
        show until then."""
        self._asking = True
        self._say(waits)
        self.refresh_bindings()
        try:
            return await ask(self.main_app.engines.require_engine())
        except VlmtuiError as error:
            self._say("")
            self._tell_error(error)
            return None
        finally:
            self._asking = False
            self.refresh_bindings()

    def _show_report(self, report: PromptReport, said: str) -> None:
        self.inspected = report
        self._say(said)
        self._show_content()

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
            nothing.update((self._lack(self.part) or _EMPTY_TEXTS[self.part]) + offered)
        self.query_one(SearchBar).close()
        self._focus_part()
        self.refresh_bindings()

    def _lack(self, part: Part) -> str:
        """Return why the engine can't report this part; empty if it can, or if that is unknown."""
        needs = _NEEDS.get(part)
        is_there = part != "media" or bool(self.inspected.attachments)
        return lack(self.inspected.info, needs) if needs and is_there else ""

    def _focus_part(self) -> None:
        match self.part:
            case "tokens":
                self.query_one(TokenTable).focus()
            case "media":
                self.query_one("#items").focus()
            case _:
                if self.searched is not None:
                    self.searched.focus()

    def _tell_title(self) -> None:
        inspected = self.inspected
        info, prompt = inspected.info, inspected.prompt
        name = info.spec.name if info else inspected.model
        parts = [one_line(name)] if name else []
        if prompt is not None and prompt.token_ids:
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
        self.notify(error_text(self.app, error), severity="error", markup=False)

    @work(group="apart", exclusive=True)
    async def _show_content(self) -> None:
        """Compute the content of all tabs in a thread, and show it."""
        inspected = self.inspected
        taken = self.taken = await asyncio.to_thread(InspectorContent.of, inspected)
        prompt = PromptBlock(taken.prompt, break_style=BREAK_STYLE, margin=1)
        self._document("prompt").show(*([] if inspected.text else [TextBlock(_RENDERED_HERE)]), prompt)
        self.query_one(TokenTable).show(taken.tokens)
        self.query_one(MediaParts).show(taken.media)
        self._document("template").show(PromptBlock(taken.template))
        self._document("request").show(PromptBlock(taken.request))
        self.query_one(AnswerTokensPanel).show(taken.answer, taken.answer_text)
        self._tell_title()
        self._show_part()
