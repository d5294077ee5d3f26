"""The composer: the text area for writing a message, its menus, and the attachments of the draft."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.style import Style
from rich.text import Text
from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.text_area import EditResult, Location, Selection

from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.mentions import Mention, as_written
from vlmtui.paths import Paths
from vlmtui.session.dials import ParameterHelp
from vlmtui.session.draft import Draft, token_text
from vlmtui.session.prompt_history import PromptHistory
from vlmtui.ui.actions import SCOPES, UNBOUND, Action, SlashCommand, bindings, parse_slash
from vlmtui.ui.chat.attachments import AttachmentBar
from vlmtui.ui.chat.suggestions import (
    Completion,
    ParameterCompletion,
    PathCompletion,
    PathOffer,
    Span,
    SuggestionMenu,
    complete,
    matching_actions,
    matching_parameters,
    path_at,
)
from vlmtui.ui.keys import default_keys, key_bindings
from vlmtui.ui.terminal.key_queue import run_before_keys
from vlmtui.ui.widgets.long_lines import LongLineArea

_AT_ONCE = min(4, max(1, (os.cpu_count() or 1) - 1))
"""Maximum number of files opened at the same time; leaves a CPU core for the screen."""


def _own_keys() -> list[Binding]:
    """Return the bindings of Textual's TextArea, except for F6, F7 and the keys of vlmtui's own editing actions. Each
    binding gets an id, by which the keymap can change its keys."""
    ours = {key for action in SCOPES["editor"].actions for key in default_keys(action.id)} | {"f6", "f7"}
    own = Binding.make_bindings(TextArea.BINDINGS)
    return [replace(binding, id=f"text_area.{binding.key}") for binding in own if binding.key not in ours]


class Composer(LongLineArea, inherit_bindings=False):
    """A multi-line text area. Enter sends, Shift+Enter and Ctrl+J break the line; a pasted line break never sends.

    A token such as `[Image #1]`, which stands for an attachment, acts like one character: the cursor jumps over it, and
    it is deleted whole.
    """

    BINDINGS = [*bindings("editor"), *_own_keys()]
    DEFAULT_CSS = """
    Composer {
        height: auto;
        min-height: 1;
        max-height: 8;
        border: none;
        padding: 0 1;
        background: $surface;
        &:focus { border: none; }
        .text-area--cursor-line { background: $surface; }
        .text-area--placeholder { color: $faint; }
    }
    """

    class Submitted(Message):
        """Enter was pressed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class PathsPasted(Message):
        """The pasted or dropped text consists only of paths of existing files, at least one of them a media file."""

        def __init__(self, paths: list[Path]) -> None:
            super().__init__()
            self.paths = paths

    class ScrollWanted(Message):
        """PageUp (-1) or PageDown (1) was pressed, to scroll the transcript."""

        def __init__(self, pages: int) -> None:
            super().__init__()
            self.pages = pages

    class MenuKey(Message):
        """A key was pressed that belongs to the open menu or question above the composer: `up`, `down`, `tab` or
        `escape`."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    class SelectionWanted(Message):
        """↑ was pressed in an empty composer, to select a message."""

    class Interrupted(Message):
        """Ctrl+C was pressed without selected text."""

    def __init__(self, prompts: PromptHistory, draft: Draft) -> None:
        self.draft = draft
        super().__init__(
            draft.text,
            id="composer",
            compact=True,
            soft_wrap=True,
            tab_behavior="focus",
            show_line_numbers=False,
            placeholder="Message, or / for commands",
        )
        self.prompts = prompts

    def on_mount(self) -> None:
        """Unbind keys of the text area that the user has assigned to other actions."""
        chosen = key_bindings(self.app).chosen("chat", "app")
        self.app.update_keymap({f"text_area.{key}": UNBOUND for key in chosen})
        self.cursor_blink = False  # an idle screen writes nothing to the terminal

    async def on_key(self, event: events.Key) -> None:
        # Textual calls the text area's own handler after this one, unless prevented.
        if self._handle_key(event.key):
            event.stop()
            event.prevent_default()
        elif event.key.startswith("alt+"):
            # The event carries a letter, which the text area would type before bindings are checked.
            event.prevent_default()
        elif event.is_printable and event.character:
            self._insert_gap(event.character)

    async def on_paste(self, event: events.Paste) -> None:
        from vlmtui.media.paths import pasted_media

        paths = await asyncio.to_thread(pasted_media, event.text)
        if paths:
            event.stop()
            event.prevent_default()
            self.post_message(self.PathsPasted(paths))
        else:
            self._insert_gap(event.text[:1])

    def _insert_gap(self, first: str) -> None:
        """Insert a space if the cursor is directly after the attachments at the start of the text, and the user types
        or pastes there. `first`: the first character of the new text."""
        is_behind = not self.selected_text and 0 < self.draft.lead_in(self.text) == self.cursor_offset
        if is_behind and first not in "/@" and not first.isspace():
            self.insert(" ", self.cursor_location)

    @property
    def menu_is_open(self) -> bool:
        """True while a menu or question above the composer takes the arrow keys."""
        return any(menu.display for menu in self.screen.query("SuggestionMenu, PathOffer"))

    def _handle_key(self, key: str) -> bool:
        """Handle a key; return False if the text area should handle it."""
        if key in ("up", "down", "tab", "escape") and self.menu_is_open:
            self.post_message(self.MenuKey(key))
            return True
        match key:
            case "enter":
                self.post_message(self.Submitted(self.text))
            case "shift+enter" | "ctrl+j" | "alt+enter":
                self.insert("\n")
            case "ctrl+c" if not self.selected_text:
                self.post_message(self.Interrupted())
            case "pageup" | "pagedown":
                self.post_message(self.ScrollWanted(-1 if key == "pageup" else 1))
            case "up" if not self.text:
                self.post_message(self.SelectionWanted())
            case "up" if self.cursor_at_first_line:
                return self.recall()
            case "down" if self.cursor_at_last_line:
                return self._recall(self.prompts.newer())
            case _:
                return False
        return True

    def get_line(self, line_index: int) -> Text:
        line = super().get_line(line_index)
        style = Style(color=self.app.theme_variables.get("accent"), bold=True)
        for token in self.draft.tokens_in(line.plain):
            line.stylize(style, token.start, token.end)
        return line

    def delete(self, start: Location, end: Location, *, maintain_selection_offset: bool = True) -> EditResult:
        first, last = self.span_of(start, end)
        for token in self.draft.tokens_in(self.text):
            if token.start < last and first < token.end:
                first, last = min(first, token.start), max(last, token.end)
        start, end = (self.location_of(index) for index in (first, last))
        return super().delete(start, end, maintain_selection_offset=maintain_selection_offset)

    @property
    def path_span(self) -> Span | None:
        """The `@path` at the cursor."""
        return path_at(self.text, self.index_of(self.cursor_location)) if "@" in self.text else None

    def replace_span(self, start: int, end: int, text: str) -> None:
        """Replace the text between two offsets; the cursor moves behind it."""
        self.replace(text, self.location_of(start), self.location_of(end), maintain_selection_offset=False)

    def put_text(self, text: str, cursor: int) -> None:
        """Replace the text; `cursor` is an offset. Clears the undo history."""
        self.text = text
        if cursor:
            self.move_cursor(self.location_of(cursor))

    def remove_start(self, text: str) -> None:
        """Remove a text from the start; the cursor moves to the end of the rest."""
        self.put_text(rest := self.text.removeprefix(text), len(rest))

    @property
    def cursor_offset(self) -> int:
        return self.index_of(self.cursor_location)

    def replace_token(self, old: str, new: str) -> None:
        """Replace an attachment's token wherever it is in the text."""
        at = self.text.find(old)
        while at >= 0 and old != new:
            self.replace(new, self.location_of(at), self.location_of(at + len(old)))
            at = self.text.find(old, at + len(new))

    def validate_selection(self, selection: Selection) -> Selection:
        """Keep both ends of a selection outside of attachments' tokens: an end within a token moves to the token's
        edge, in the direction in which the cursor moves."""
        start, end = selection = super().validate_selection(selection)
        if "[" not in self.text:
            return selection
        came_from = self.index_of(self.selection.end)
        edges = [self._outside(self.index_of(place), came_from) for place in (start, end)]
        return Selection(*(self.location_of(index) for index in edges))

    def _outside(self, index: int, came_from: int) -> int:
        for token in self.draft.tokens_in(self.text):
            if token.start < index < token.end:
                return token.end if came_from <= token.start else token.start
        return index

    def recall(self) -> bool:
        """Show the previous sent message; False if there is none."""
        return self._recall(self.prompts.older(self.text))

    def _recall(self, text: str | None) -> bool:
        """Show a message of the history, after the draft's attachments, which stay. Return False if `text` is None."""
        if text is None:
            return False
        tokens = "" if self.draft.tokens_in(text) else self.draft.only_tokens()
        self.text = tokens + " " * bool(tokens and text.strip() and not text[0].isspace()) + text
        self.move_cursor(self.document.end)
        return True


class ComposerPanel(Vertical):
    """The composer with its menus and attachments. Opens attached files, and tells slash commands from messages."""

    DEFAULT_CSS = """
    ComposerPanel {
        height: auto;
        #composer-row { height: auto; margin: 1 2 0 2; border-left: outer $accent; background: $surface; }
        &.-busy #composer-row { border-left: outer $faint; }
    }
    """

    class MessageWritten(Message):
        """Send the draft: Enter was pressed, and all its files are loaded."""

    class CommandGiven(Message):
        """Enter was pressed after a slash command, which may be unknown."""

        def __init__(self, command: SlashCommand) -> None:
            super().__init__()
            self.command = command

    class DraftChanged(Message):
        """Text or attachments changed."""

    class FileChecked(Message):
        """A file was opened and attached, or can't be attached."""

        def __init__(self, outcome: Attachment | VlmtuiError) -> None:
            super().__init__()
            self.outcome = outcome

    def __init__(
        self,
        prompts: PromptHistory,
        draft: Draft,
        paths: Paths,
        parameters: Callable[[], Mapping[str, ParameterHelp]],
    ) -> None:
        """`parameters`: returns the parameters that `/set` takes for the loaded model."""
        super().__init__()
        self._parameters = parameters
        self._prompts = prompts
        self._draft = draft
        self._paths = paths
        self._menu = SuggestionMenu()
        self.bar = AttachmentBar(cache=paths.thumbnails)
        self._path_offer = PathOffer()
        self._composer = Composer(prompts, draft)
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._to_send: str | None = None
        """The text for which Enter was pressed while files were loading."""
        self._written_as: dict[int, str] = {}
        """The text that the user typed for files that are loading, by attachment number."""
        self._numbers_above = 0
        self.sampling = VideoSampling()
        """The default sampling of videos."""

    def compose(self) -> ComposeResult:
        with Vertical(id="composer-row"):
            yield self._composer

    async def mount_bars(self) -> None:
        """Mount the menus and the attachments, which are hidden at first."""
        await self.mount(self._menu, self.bar, self._path_offer, before="#composer-row")
        self._composer.move_cursor(self._composer.document.end)
        await self._show_attachments()

    @on(Composer.Submitted)
    def _submitted(self, event: Composer.Submitted) -> None:
        chosen, typed = self._menu.chosen, self._draft.without_tokens(event.text).strip()
        complete = chosen.slash if isinstance(chosen, Action) else getattr(chosen, "text", "").strip()
        if chosen is not None and (isinstance(chosen, PathCompletion) or complete != typed):
            self._insert_choice(chosen)
            return
        command = parse_slash(self._draft.words)
        if command is not None:
            self.post_message(self.CommandGiven(command))
        elif event.text.strip():
            self._draft.text = event.text
            self._send_or_ask()

    def _send_or_ask(self) -> None:
        """Send the draft; if it names files, ask first whether to attach them."""
        offer, text = self._path_offer, self._draft.blanked
        if offer.is_open:
            offer.leave_as_text(text)
            offer.ask([])
        if offer.is_due(text):
            run_before_keys(self, self._find_mentions)
        else:
            self._send()

    async def _find_mentions(self) -> None:
        offer, text = self._path_offer, self._draft.blanked
        try:
            mentions = await offer.find(text)
        except TimeoutError:
            offer.leave_as_text(text)
            self.notify("Reading these files takes too long. Enter sends the message as text.")
            return
        if mentions and self._draft.blanked == text:
            self._menu.show_commands([])
            offer.ask(mentions, self._draft)
        elif self._draft.blanked == text:
            self._send()

    def _send(self) -> None:
        if self._draft.pending:
            self._to_send = self._draft.words
            self.notify("Your message is sent once its files are read.")
        else:
            self.post_message(self.MessageWritten())

    def _attach_mentions(self, mentions: list[Mention]) -> None:
        """Replace the paths in the text with tokens, and open the files."""
        text = self._draft.text
        places = [(one, [(self._reserve(source), source) for source in one.sources]) for one in mentions]
        for one, staged in reversed(places):
            tokens = "".join(token_text(number) for number, _ in staged)
            self._composer.replace_span(one.start, one.end, tokens)
        for one, staged in places:
            if len(staged) == 1:
                self._written_as[staged[0][0]] = text[one.start : one.end]
            for number, source in staged:
                self._open_file(number, source)
        self._composer.move_cursor(self._composer.document.end)

    @on(Composer.Changed)
    async def _changed(self, event: Composer.Changed) -> None:
        self._draft.text = event.text_area.text
        self._renumber()
        if not self._path_offer.asks_about(self._draft):
            self._path_offer.ask([])
            self._suggest()
        await self._show_attachments()
        self.post_message(self.DraftChanged())

    @on(Composer.PathsPasted)
    def _paths_pasted(self, event: Composer.PathsPasted) -> None:
        self.attach(event.paths)

    def file_checked(self, number: int, outcome: Attachment | VlmtuiError) -> None:
        """Attach an opened file. If it can't be attached, put back the text that the user typed for it."""
        written = self._written_as.pop(number, "")
        if isinstance(outcome, Attachment):
            self._draft.fill(number, outcome)
            self._composer.replace_token(token_text(number), token_text(number, outcome))
        else:
            self._to_send = None
            self._composer.replace_token(token_text(number), written)
            self._draft.drop(number)
        self._draft.text = self._composer.text
        self.post_message(self.FileChecked(outcome))
        self.call_later(self._send_waiting)

    @on(Composer.MenuKey)
    def _menu_key(self, event: Composer.MenuKey) -> None:
        event.stop()
        if self._path_offer.is_open:
            self._answer_offer(event.key)
            return
        match event.key:
            case "up":
                self._menu.action_cursor_up()
            case "down":
                self._menu.action_cursor_down()
            case "tab" if self._menu.chosen:
                self._insert_choice(self._menu.chosen)
            case _:
                self._menu.show_commands([])

    def _answer_offer(self, key: str) -> None:
        mentions = [one for one in self._path_offer.mentions_in(self._draft) if one.sources]
        self._path_offer.ask([])
        if key == "tab":
            self._attach_mentions(mentions)

    @on(OptionList.OptionSelected)
    def _menu_clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self._menu.chosen is not None:
            self._insert_choice(self._menu.chosen)

    def attach(self, sources: Iterable[Path | str]) -> None:
        """Insert a token for each source at the cursor, and open the files; a string is a web address."""
        for source in sources:
            number = self._reserve(source)
            self._composer.insert(token_text(number))
            self._open_file(number, source)

    def write(self, text: str) -> None:
        """Insert text at the cursor."""
        self._composer.insert(text)

    def number_above(self, number: int) -> None:
        """Number the draft's attachments from `number` + 1. `number`: how many attachments the messages above have."""
        self._numbers_above = number
        if self._composer.text == self._draft.text:  # otherwise a pending update will renumber
            self._renumber()

    def detach(self, number: int) -> bool:
        """Remove attachment `number` from the text; False if there is none."""
        tokens = [token for token in self._draft.tokens if token.number == number]
        for token in reversed(tokens):
            self._composer.replace_token(self._draft.text[token.start : token.end], "")
        return bool(tokens)

    def replace(self, number: int, attachment: Attachment) -> None:
        """Replace the attachment with this number."""
        old = next((token for token in self._draft.tokens if token.number == number), None)
        self._draft.fill(number, attachment)
        if old is not None:
            self._composer.replace_token(self._draft.text[old.start : old.end], token_text(number, attachment))
        self.call_later(self._show_attachments)
        self.post_message(self.DraftChanged())

    def replace_with_several(self, number: int, attachments: Sequence[Attachment]) -> None:
        """Replace an attachment with several attachments."""
        old = next((token for token in self._draft.tokens if token.number == number), None)
        if old is None:
            return
        fresh = {self._reserve(): attachment for attachment in attachments}
        for added, attachment in fresh.items():
            self._draft.fill(added, attachment)
        texts = (token_text(added, attachment) for added, attachment in fresh.items())
        self._composer.replace_token(self._draft.text[old.start : old.end], "".join(texts))

    def take_text(self, words: str, text: str | None = None) -> None:
        """Remove the sent `text` (None: all text) from the composer; what the user has typed since then stays. `words`:
        the message to add to the history."""
        self._prompts.add(words)
        self._composer.remove_start(self._composer.text if text is None else text)

    def clear_words(self) -> None:
        """Remove a command from the composer, and add it to the history. Attachments stay."""
        self._prompts.add(self._draft.words)
        self._composer.text = self._draft.only_tokens()
        self._composer.move_cursor(self._composer.document.end)

    @work(group="stage")
    async def _open_file(self, number: int, source: Path | str) -> None:
        from vlmtui.media.stage import stage_source

        media, downloads = self._paths.media, self._paths.cache / "downloads"
        try:
            async with self._slots:
                outcome: Attachment | VlmtuiError = await stage_source(source, media, downloads, self.sampling)
        except VlmtuiError as error:
            outcome = error
        except OSError as error:
            outcome = bad_input(f"Can't read {source}.", detail=str(error))
        self.file_checked(number, outcome)

    def _send_waiting(self) -> None:
        """Send the message for which Enter was pressed while files were loading, unless it has changed since."""
        if self._to_send is None or self._draft.pending:
            return
        waited, self._to_send = self._to_send, None
        if waited == self._draft.words:
            self.post_message(self.MessageWritten())

    async def _show_attachments(self) -> None:
        shown = {token.number: token.attachment for token in self._draft.tokens if token.attachment is not None}
        await self.bar.show(shown, pending=len(self._draft.pending))

    def _reserve(self, source: Path | str = "") -> int:
        """Return a new number for an attachment. If an earlier attachment had this number, clear the undo history,
        which may contain the earlier attachment's token."""
        if self._draft.knows(self._draft.next_number(self._numbers_above)):
            self._composer.history.clear()
        return self._draft.reserve(self._numbers_above, written=as_written(source))

    def _renumber(self) -> None:
        """Number the attachments in the order of the text, as the prompt does."""
        cursor = self._draft.renumber(self._numbers_above, self._composer.cursor_offset)
        if cursor is not None:
            self._composer.put_text(self._draft.text, cursor)

    def _suggest(self) -> None:
        """Offer paths after an `@`, or else the slash commands that begin with the text."""
        span = self._composer.path_span
        if span is not None:
            self._find_paths(span)
        elif parameters := matching_parameters(self._draft.words, self._parameters):
            self._menu.show_parameters(parameters)
        else:
            self._menu.show_commands(matching_actions(self._draft.words))

    @work(group="paths", exclusive=True)
    async def _find_paths(self, span: Span) -> None:
        found = await asyncio.to_thread(complete, span.fragment, Path.cwd())
        if span == self._composer.path_span:
            self._menu.show_paths(found)

    def _insert_choice(self, chosen: Completion) -> None:
        """Insert the menu's command, parameter, folder or file."""
        if isinstance(chosen, Action):
            self._insert_command(chosen)
        elif isinstance(chosen, ParameterCompletion):
            self._composer.text = self._draft.only_tokens() + chosen.text
            self._composer.move_cursor(self._composer.document.end)
        else:
            self._insert_path(chosen)

    def _insert_path(self, candidate: PathCompletion) -> None:
        """Complete a folder, or attach a file in place of the typed path."""
        span = self._composer.path_span
        self._menu.show_paths([])
        if span is None:
            return
        self._composer.replace_span(span.start, span.end, candidate.mention if candidate.is_folder else "")
        if not candidate.is_folder:
            self.attach([candidate.path])

    def _insert_command(self, action: Action) -> None:
        """Complete the command; run it at once if it takes no argument."""
        typed = f"{action.slash} " if action.argument else action.slash
        self._composer.text = self._draft.only_tokens() + typed
        self._composer.move_cursor(self._composer.document.end)
        if not action.argument:
            self.post_message(self.CommandGiven(SlashCommand(action, "")))
