"""What the model was really given, and what it answered, taken apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Static, Tab, Tabs

from vlmtui.domain.engine import GenerateRequest
from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.ui.controllers.engine import engine_died
from vlmtui.ui.controllers.inspecting import (
    PARTS,
    Inspected,
    Part,
    part_file,
    part_text,
    rendered_again,
    with_logprobs,
)
from vlmtui.ui.controllers.media_facts import MediaItem, resized_attachment
from vlmtui.ui.controllers.saving import save_new
from vlmtui.ui.controllers.taken_apart import TakenApart
from vlmtui.ui.text import one_line
from vlmtui.ui.widgets.answer_tokens import AnswerTokens
from vlmtui.ui.widgets.key_bar import KeyBar
from vlmtui.ui.widgets.media_parts import MediaParts
from vlmtui.ui.widgets.prompt_text import PromptText
from vlmtui.ui.widgets.token_table import HEADING, TokenTable

_TITLES: dict[Part, str] = {
    "prompt": "Prompt",
    "tokens": "Tokens",
    "media": "Media",
    "template": "Template",
    "request": "Request",
    "answer": "Answer",
}
_NOTHING: dict[Part, str] = {
    "prompt": "The engine never told this prompt.",
    "tokens": "The prompt's tokens are not known any more.",
    "media": "The prompt has no images and no videos.",
    "template": "No chat template is known: the model has none in Jinja, or it is not loaded any more.",
    "request": "Nothing is known of the request.",
    "answer": "There is no answer.",
}
_AGAIN = " R renders it again."
_MUCH_TO_COPY = 75_000
"""Characters from which many terminals refuse to take a text into the clipboard."""


class InspectorScreen(Screen[None]):
    """One tab a part. `engine` gives the engine that is loaded now, if any; `again` makes the request anew where it was
    not kept; `cache` is the folder of the thumbnails."""

    CSS_PATH = "inspector.tcss"
    BINDINGS = [
        Binding("escape,f12,q", "close", "Back", id="inspector.close", tooltip="Back to the screen below."),
        Binding("tab,right_square_bracket", "turn(1)", "Next part", id="inspector.next", tooltip="The next part."),
        Binding(
            "shift+tab,left_square_bracket", "turn(-1)", show=False, id="inspector.previous",
            tooltip="The part before.",
        ),
        *(
            Binding(f"{number}", f"show('{part}')", show=False, id=f"inspector.{part}", tooltip=f"{_TITLES[part]}.")
            for number, part in enumerate(PARTS, 1)
        ),
        Binding("y", "copy", "Copy", id="inspector.copy", tooltip="Copy this part to your clipboard."),
        Binding("s", "save", "Save", id="inspector.save", tooltip="Save this part as a file in the folder you are in."),
        Binding(
            "l", "logprobs", "Probabilities", id="inspector.logprobs",
            tooltip="Ask the same again, and see how likely each token was.",
        ),
        Binding("r", "again", "Render again", id="inspector.again", tooltip="Make the prompt again with this model."),
    ]  # fmt: skip

    @dataclass
    class Ready(Message):
        """What there is to be shown."""

        inspected: Inspected
        taken: TakenApart

    @dataclass
    class Asked(Message):
        """What came of a question to the engine, and a sentence about it."""

        outcome: Inspected | VlmtuiError
        said: str = ""
        part: Part = "answer"

    @dataclass
    class Saved(Message):
        """Where a part was saved, or why not."""

        outcome: Path | VlmtuiError

    def __init__(
        self,
        inspected: Inspected,
        *,
        cache: Path,
        engine: Callable[[], Engine | None],
        again: Callable[[], GenerateRequest] | None = None,
    ) -> None:
        super().__init__()
        self.inspected = inspected
        self.part: Part = "prompt"
        self.taken: TakenApart | None = None
        """None until it is taken apart."""
        self._cache = cache
        self._engine = engine
        self._again = again
        self._asking = False

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(id="title", markup=False)
            yield Static(id="about", markup=False)
        yield Tabs(*(Tab(f"{number} {_TITLES[part]}", id=part) for number, part in enumerate(PARTS, 1)))
        yield Static("Taking the prompt apart …", id="nothing", classes="nothing", markup=False)
        yield Static(id="said", markup=False)
        with ContentSwitcher(initial="prompt-part", id="parts"):
            yield PromptText(id="prompt-part")
            with Vertical(id="tokens-part"):
                yield Static(HEADING, classes="heading", markup=False)
                yield TokenTable(id="token-rows")
            yield MediaParts(id="media-part")
            yield PromptText(id="template-part")
            yield PromptText(id="request-part")
            yield AnswerTokens(id="answer-part")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(Tabs).can_focus = False
        self._tell_title()
        self._show_part()
        self._take_apart(self.inspected)

    @on(Ready)
    def _ready(self, event: Ready) -> None:
        if event.inspected is not self.inspected or not self.is_attached:
            return
        taken = self.taken = event.taken
        self.query_one("#prompt-part", PromptText).show(taken.prompt)
        self.query_one(TokenTable).show(taken.tokens)
        self.query_one(MediaParts).show(taken.media)
        self.query_one("#template-part", PromptText).show(taken.template)
        self.query_one("#request-part", PromptText).show(taken.request)
        self.query_one(AnswerTokens).show(taken.answer, taken.answer_text)
        self._tell_title()
        self._show_part()

    @on(Asked)
    def _answered(self, event: Asked) -> None:
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
        self._view(event.item)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "logprobs":
                return self.inspected.request is not None and self._engine() is not None and not self._asking
            case "again":
                return self._again is not None and self.inspected.prompt is None and not self._asking
            case _:
                return True

    def action_close(self) -> None:
        """Back to the screen below."""
        self.dismiss()

    def action_turn(self, step: int) -> None:
        """To the part beside."""
        self.action_show(PARTS[(PARTS.index(self.part) + step) % len(PARTS)])

    def action_show(self, part: Part) -> None:
        """To one part."""
        self.part = part
        self._show_part()

    def action_copy(self) -> None:
        """Copy the part that is shown, through the terminal (OSC 52)."""
        text = part_text(self.inspected, self.part)
        if not text:
            self._tell_error(bad_input("There is nothing here to copy."))
            return
        self.app.copy_to_clipboard(text)
        doubt = " Many terminals refuse that much: S saves it." if len(text) > _MUCH_TO_COPY else ""
        self.notify(f"Copied {len(text):,} characters.{doubt}", markup=False)

    def action_save(self) -> None:
        """Save the part that is shown."""
        self._save(self.inspected, self.part, Path.cwd())

    def action_logprobs(self) -> None:
        """Ask for the same answer again, with probabilities; the conversation stays as it is."""
        self.part = "answer"
        self._asking = True
        self._show_part()
        self._say("Asking again with probabilities: the first time may take some seconds …")
        self.refresh_bindings()
        self._ask_logprobs(self.inspected)

    def action_again(self) -> None:
        """Make the prompt again, with the model that is loaded."""
        self._asking = True
        self._say("Making the prompt again …")
        self._render_again(self.inspected)

    def _show_part(self) -> None:
        self.query_one(Tabs).active = self.part
        taken, has = self.taken, self.taken is None or self.taken.has(self.part)
        switcher, nothing = self.query_one("#parts", ContentSwitcher), self.query_one("#nothing", Static)
        switcher.current = f"{self.part}-part"
        switcher.display = taken is not None and has
        nothing.display = not switcher.display
        if not has:
            offered = _AGAIN if self.check_action("again", ()) and self.part in ("prompt", "tokens") else ""
            nothing.update(_NOTHING[self.part] + offered)
        self._focus_part()
        self.refresh_bindings()

    def _focus_part(self) -> None:
        """The keys go to what is shown."""
        match self.part:
            case "tokens":
                self.query_one(TokenTable).focus()
            case "media":
                self.query_one(MediaParts).take_focus()
            case "answer":
                self.query_one(AnswerTokens).take_focus()
            case "prompt" | "template" | "request":
                self.query_one(f"#{self.part}-part", PromptText).focus()

    def _tell_title(self) -> None:
        inspected = self.inspected
        info, prompt = inspected.info, inspected.prompt
        name = info.spec.name if info else inspected.model
        parts = [one_line(name)] if name else []
        if prompt is not None:
            images = sum(span.tokens for span in prompt.media)
            parts.append(f"prompt {len(prompt.token_ids):,}" + (f" ({images:,} image)" if images else ""))
        if inspected.answer_ids:
            parts.append(f"answer {len(inspected.answer_ids):,} tokens")
        self.query_one("#title", Static).update(f"Inspector · {one_line(inspected.title)}")
        self.query_one("#about", Static).update(" · ".join(parts))

    def _say(self, text: str) -> None:
        said = self.query_one("#said", Static)
        said.update(text)
        said.display = bool(text)

    def _tell_error(self, error: VlmtuiError) -> None:
        self.notify(one_line(str(error)), severity="error", timeout=10, markup=False)
        self.refresh_bindings()

    @work(thread=True, group="apart", exclusive=True)
    def _take_apart(self, inspected: Inspected) -> None:
        self.post_message(self.Ready(inspected, TakenApart.of(inspected)))

    @work(thread=True, group="save")
    def _save(self, inspected: Inspected, part: Part, folder: Path) -> None:
        text = part_text(inspected, part)
        try:
            if not text:
                raise bad_input("There is nothing here to save.")
            path = save_new(folder, part_file(inspected, part), text.encode("utf-8", "replace"))
        except VlmtuiError as error:
            self.post_message(self.Saved(error))
            return
        self.post_message(self.Saved(path))

    @work(group="ask", exclusive=True)
    async def _ask_logprobs(self, inspected: Inspected) -> None:
        try:
            engine = self._engine()
            if engine is None:
                raise engine_died()
            told = await with_logprobs(engine, inspected)
        except VlmtuiError as error:
            self.post_message(self.Asked(error))
            return
        same = "" if told.answer == inspected.answer else "This time the answer is another one: it is not reproducible."
        self.post_message(self.Asked(told, same))

    @work(group="ask", exclusive=True)
    async def _render_again(self, inspected: Inspected) -> None:
        try:
            engine = self._engine()
            if engine is None or self._again is None:
                raise engine_died()
            told = await rendered_again(engine, inspected, self._again())
        except VlmtuiError as error:
            self.post_message(self.Asked(error))
            return
        same = told.text == inspected.prompt_text
        said = "Made again now: the same text as then." if same else "Made again now: it is not the same text as then."
        self.post_message(self.Asked(told, said, "prompt"))

    @work(group="modal")
    async def _view(self, item: MediaItem) -> None:
        from vlmtui.ui.screens.viewer import ViewerScreen

        attachment = item.attachment
        try:
            if attachment.modality == "image" and item.resized:
                attachment = await asyncio.to_thread(resized_attachment, item, self._cache)
        except VlmtuiError as error:
            self._tell_error(error)
            return
        self.app.push_screen(ViewerScreen([attachment], 0, cache=self._cache))
