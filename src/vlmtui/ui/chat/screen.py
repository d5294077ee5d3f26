"""The chat, also while its model loads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, assert_never

from textual import on
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen
from textual.worker import WorkType

from vlmtui.domain.conversation import VideoSampling
from vlmtui.domain.generation import Finished
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.session.conversation import Conversation
from vlmtui.session.dials import ParameterHelp, parameter_help
from vlmtui.session.engines import EngineState
from vlmtui.session.exchange import (
    AnswerEnded,
    AnswerReplaced,
    AttachmentsLeftOut,
    ConversationEvent,
    Exchange,
    RequestSent,
)
from vlmtui.session.prompt_history import PromptHistory
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings, method_of
from vlmtui.ui.chat.attachments import AttachmentSources, MessageAttachments
from vlmtui.ui.chat.blocks import Marked, Part
from vlmtui.ui.chat.composer import Composer, ComposerPanel
from vlmtui.ui.chat.conversation_actions import Branches, Settings
from vlmtui.ui.chat.frame import ChatFrame, EditingBar, LoadCard, QueueBar, StatusBar
from vlmtui.ui.chat.part import ChatPart
from vlmtui.ui.chat.prompt_cost import PromptCost
from vlmtui.ui.chat.transcript import MessageCursor, Transcript, marked_of
from vlmtui.ui.chat.turn_sender import TurnSender
from vlmtui.ui.messages import EngineChanged
from vlmtui.ui.terminal.key_queue import Steps, run_before_keys
from vlmtui.ui.widgets.attachment_view import AttachmentView
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.search_bar import SearchBar

if TYPE_CHECKING:
    from vlmtui.session.comparison import ComparedMessage
    from vlmtui.store.records import TurnId
    from vlmtui.ui.app import VlmtuiApp
    from vlmtui.ui.chat.inspections import Inspections

_WIDE = 110
"""Columns from which on the side pane is shown."""


class ChatScreen(Screen[None]):
    """Transcript, composer with attachments, and status line. `parts` run most of the user's actions."""

    CSS_PATH = "screen.tcss"
    AUTO_FOCUS = "Composer"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]
    SCOPE = "chat"
    BINDINGS = bindings(SCOPE)

    class ConversationChanged(Message):
        """The conversation reported an event, e.g. the end of an answer."""

        def __init__(self, event: ConversationEvent) -> None:
            super().__init__()
            self.event = event

    def __init__(self, app: VlmtuiApp, chat: Conversation) -> None:
        super().__init__()
        self.main_app = app
        self.services = app.services
        self.engines = app.engines
        self.chat = chat
        self.prompt_cost = PromptCost(self)
        self.sender = TurnSender(self)
        self.sources = AttachmentSources(self)
        self.attachments = MessageAttachments(self)
        self._changing: object = None
        """The state for which the footer was refreshed last."""
        self._filled = asyncio.Event()
        """Set once the screen shows its conversation."""

    @cached_property
    def inspections(self) -> Inspections:
        """Imported at the first action, too."""
        from vlmtui.ui.chat.inspections import Inspections

        return Inspections(self)

    @cached_property
    def parts(self) -> tuple[ChatPart, ...]:
        """The parts with methods `action_ID`. Some are imported at the first action: they would delay the first
        paint."""
        from vlmtui.ui.chat.comparisons import Comparisons, FanOuts

        return (
            self.sender,
            self.sources,
            self.attachments,
            FanOuts(self),
            Comparisons(self),
            self.inspections,
            Branches(self),
            Settings(self),
        )

    def compose(self) -> ComposeResult:
        paths = self.services.paths
        yield (frame := ChatFrame(self.chat, self.engines, cache=paths.thumbnails))
        yield MessageCursor(self.chat, frame.transcript)
        prompts = PromptHistory(paths.state / "prompts.jsonl")
        yield ComposerPanel(prompts, self.chat.draft, paths, self.known_parameters)
        yield StatusBar(self.engines, self.chat)
        yield FooterBar()

    async def on_mount(self) -> None:
        self.chat.subscribers.append(self._post_event)
        self.screen_layout_refresh_signal.subscribe(self, self._keep_notes_above_composer)
        self.query_one(Composer).focus()
        await self._fill_transcript()
        self.call_later(self.show_status)

    async def _mount_bars(self) -> None:
        """Mount the bars that are hidden at first, after the first paint, which they would delay."""
        if self.query(SearchBar):
            return
        load = LoadCard(self.chat, self.engines, lambda: self.main_app.models.last_load_s)
        await self.mount(SearchBar(), load, EditingBar(self.chat), QueueBar(), before=self.panel)
        await self.panel.mount_bars()
        await self.query_one(ChatFrame).mount_bars()
        self.show_editing()
        self.attachments.tell_limits()
        self._filled.set()
        self._engine_changed()
        self.panel.call_later(self.main_app.take_keys)

    def _keep_notes_above_composer(self, _: Screen[object]) -> None:
        below = self.size.height - self.query_one(ChatFrame).region.bottom
        for notes in self.query("ToastRack"):
            if notes.styles.margin.bottom != below:
                notes.styles.margin = (0, 0, below, 0)

    def on_screen_resume(self) -> None:
        """Update the title, which another screen may have changed."""
        self.query_one(ChatFrame).show_title_soon()
        if not self.is_filled:  # again if another screen has left before it was drawn: the callback was lost with it
            self.call_after_refresh(self._mount_bars)

    def on_unmount(self) -> None:
        if self._post_event in self.chat.subscribers:
            self.chat.subscribers.remove(self._post_event)

    @on(Composer.Submitted)
    def _submitted(self, event: Composer.Submitted) -> None:
        if not event.text.strip() and self.engines.model is None:
            self.main_app.action_models()

    @on(ComposerPanel.MessageWritten)
    async def _message_written(self) -> None:
        await self.main_app.perform(self.sender.send)

    @on(ComposerPanel.CommandGiven)
    def _command_given(self, event: ComposerPanel.CommandGiven) -> None:
        action, argument = event.command
        if action is None:
            hint = "/help lists them; // sends a text that begins with a slash."
            self.main_app.tell_error(bad_input(f"There is no command {one_line(argument)}.", hint=hint))
            return
        self.panel.clear_words()
        self.take_composer_text()
        self.main_app.run_action_id(action.id, argument)

    @on(ComposerPanel.DraftChanged)
    def _draft_changed(self) -> None:
        model = self.engines.model
        self.chat.draft_changed(model.spec.name if model is not None else "")
        self.prompt_cost.draft_changed()

    @on(ComposerPanel.FileChecked)
    def _file_checked(self, event: ComposerPanel.FileChecked) -> None:
        if isinstance(event.outcome, VlmtuiError):
            self.main_app.tell_error(event.outcome)
        else:
            self.attachments.tell_taken(event.outcome)

    @on(Composer.ScrollWanted)
    def _scroll_wanted(self, event: Composer.ScrollWanted) -> None:
        self.transcript.page(event.pages)

    @on(Composer.SelectionWanted)
    async def action_select_message(self) -> None:
        """Select the newest message or answer. If there is none, put the last sent message into the composer."""
        if not await self._cursor.begin():
            self.query_one(Composer).recall()

    def action_recall(self) -> None:
        self.query_one(Composer).recall()

    def action_copy_answer(self) -> None:
        """Copy the selected message, or else the last answer, through the terminal (OSC 52)."""
        marked = self.marked
        newest = next((item.answer.text for item in reversed(self.chat.exchanges) if item.answer.text), "")
        text = marked.text if marked is not None else newest
        if not text:
            self.main_app.tell(
                "There is no answer to copy yet." if marked is None else "There is no text to copy here."
            )
            return
        self.app.copy_to_clipboard(text)
        self.main_app.tell(f"Copied {len(text):,} characters.")

    def action_toggle_thinking(self) -> None:
        if not self.transcript.toggle_reasoning():
            self.main_app.tell("No answer on this screen has reasoning.")

    def action_jump_end(self) -> None:
        self.transcript.show_end()

    def action_search(self) -> None:
        if self.chat.exchanges and self.is_filled:
            self._cursor.leave()
            self._load_all()
            self.query_one(SearchBar).open(self.transcript)
        else:
            self.main_app.tell("There is nothing to search yet.")

    async def action_search_again(self, back: bool) -> None:
        """Select the message with the next or previous match."""
        self.query_one(SearchBar).find(self.transcript, back=back)
        await self._select_hit()

    @on(SearchBar.Accepted)
    async def _select_hit(self) -> None:
        """Select the message with the match that was found last."""
        hit = self.transcript.hit
        marked = marked_of(hit.block) if hit is not None else None
        if marked is not None:
            await self._cursor.select(marked)
            self.transcript.show_hit()

    async def land(self, turn: TurnId, words: str) -> None:
        """Select a stored message or answer of the branch, and highlight words in it."""
        parts = ((exchange, part) for exchange in self.chat.branch.all for part in Part)
        marked = next((found for one in parts if (found := Marked(*one)).turn == turn), None)
        if marked is not None:
            self._load_all()
            await self._cursor.select(marked)
            self.start(partial(self._show_match, marked, words), "match", exclusive=True)

    async def _show_match(self, marked: Marked, words: str) -> None:
        """Highlight words, and show their first match in a selected message, if it has one."""
        await self.transcript.has_size.wait()
        self.query_one(SearchBar).look_for(words, self.transcript, self.transcript.block_of(marked))
        hit = self.transcript.hit
        await self._cursor.select(marked)
        if hit is not None and marked_of(hit.block) == marked:
            self.transcript.show_hit()

    def _load_all(self) -> None:
        """Load the older exchanges into the transcript, for a search."""
        self.chat.branch.load_older(self.chat.branch.older)
        self.transcript.add_older(self.chat.exchanges)

    @on(Transcript.Selected)
    async def _clicked(self, event: Transcript.Selected) -> None:
        """Select the clicked message or answer, or show the neighbouring branch."""
        await self._cursor.select(event.marked)
        if event.branch:
            await self.action_run("branch_before" if event.branch < 0 else "branch_after")

    @on(Composer.Interrupted)
    def _interrupted(self) -> None:
        selected = self.get_selected_text()
        if selected:
            self.clear_selection()  # the next Ctrl+C stops the answer
            self.app.copy_to_clipboard(selected)
        elif self.chat.running is not None:
            self.sender.action_stop()
        else:
            self.main_app.interrupt()

    def on_attachment_view_clicked(self, event: AttachmentView.Clicked) -> None:
        event.stop()
        self.inspections.open_image(event.attachments[event.at])

    @on(Transcript.OlderWanted)
    async def _older_wanted(self, event: Transcript.OlderWanted) -> None:
        self.chat.branch.load_older(event.limit)
        self.transcript.add_older(self.chat.exchanges)

    @on(ConversationChanged)
    async def _conversation_changed(self, changed: ConversationChanged) -> None:
        match changed.event:
            case RequestSent():
                return
            case AnswerReplaced(exchange):
                self.transcript.restart(exchange)
            case AnswerEnded(exchange):
                self.transcript.finish(exchange)
                if isinstance(exchange.answer.outcome, Finished):
                    self.engines.answered()
                else:
                    self.sender.action_take_back()
                self.sender.send_queued()
            case AttachmentsLeftOut():
                pass
            case _:
                assert_never(changed.event)
        self.transcript.renumber(self.chat.branch.attachments_above)
        self.panel.number_above(self.chat.attachments_sent)
        self.prompt_cost.count_soon()
        self.query_one(ChatFrame).show_title_soon()
        self._changing = None  # a key may have refreshed the footer meanwhile
        self.show_status()

    @on(EngineChanged)
    def _engine_changed(self) -> None:
        if not self.is_filled:
            return
        self.prompt_cost.count_soon()  # an estimate becomes a count, or vice versa
        self.query_one(ChatFrame).show_welcome()
        self.query_one(LoadCard).show()
        self.sender.send_queued()
        if self.engines.state is EngineState.READY:
            from vlmtui.ui.document.markdown_lines import load_parsers

            self.start(partial(asyncio.to_thread, load_parsers), "parsers")
            self.query_one(StatusBar).ask()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "run" or parameters[0] not in self._impossible_actions

    @property
    def _impossible_actions(self) -> frozenset[str]:
        """The ids of actions that can't run now: the footer hides them, and their keys do nothing."""
        answering, editing = self.chat.running is not None, self.chat.editing is not None
        possible = {
            "stop": answering or (self.engines.can_stop_load and not self.chat.queue and not editing),
            "sample": self._is_empty,
            "take_back": bool(self.chat.queue) and not answering,
            "leave_edit": editing and not answering,
            "new_chat": not answering,
            "earlier_model": bool(self.chat.other_model(self.engines.model)),
        }
        return frozenset(id for id, is_possible in possible.items() if not is_possible)

    @property
    def _is_empty(self) -> bool:
        """True if nothing is said or written, and the model may accept images."""
        model = self.engines.model
        takes = model is None or "image" in model.family.takes
        return takes and not (self.chat.exchanges or self.chat.queue or self.chat.draft.text)

    @property
    def not_in_footer(self) -> frozenset[str]:
        """The ids of actions that the footer hides before the first answer."""
        has_answer = any(exchange.answer.has_text for exchange in self.chat.exchanges)
        return frozenset() if has_answer else frozenset({"compare", "inspect", "fan_out"})

    async def action_run(self, id: str) -> None:
        """Run the method `action_ID` of the screen or of one of its parts."""
        method = method_of(self, id)
        assert method is not None, id
        await self.main_app.perform(method)

    def _post_event(self, event: ConversationEvent) -> None:
        self.post_message(self.ConversationChanged(event))

    @property
    def _cursor(self) -> MessageCursor:
        return self.query_one(MessageCursor)

    @property
    def marked(self) -> Marked | None:
        """The selected message or answer, which actions use if the user gives no number; None: nothing is selected."""
        return self._cursor.marked

    def compared_message(self) -> ComparedMessage:
        """Return the message to compare or fan out: the selected one, or else the draft or the last message. Raises
        VlmtuiError if there is none, or while an answer is running."""
        from vlmtui.session.comparison import ComparedMessage

        if self.marked is None:
            return ComparedMessage.of(self.chat)
        self.chat.require_rest()
        return ComparedMessage(self.chat, self.marked.exchange)

    @property
    def panel(self) -> ComposerPanel:
        return self.query_one(ComposerPanel)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def _is_closing(self) -> bool:
        """True while the screen closes: its widgets are gone, but background work may still run."""
        return not all(self.query(kind) for kind in (StatusBar, Transcript, ComposerPanel, Composer))

    def start(self, steps: Steps, group: str, *, exclusive: bool = False) -> None:
        """Run a coroutine function in the background until the screen closes. `exclusive`: first cancel the others of
        this group."""
        work: WorkType[None] = partial(self.main_app.perform, steps)
        self.run_worker(work, group=group, description=group, exclusive=exclusive)

    def start_dialog(self, steps: Steps) -> None:
        """Run a coroutine function that opens another screen; keys typed ahead wait until it is open."""
        run_before_keys(self, partial(self.main_app.perform, steps))

    def take_composer_text(self) -> None:
        """Copy the composer's text to the draft now: the update that the last key caused may not have run yet."""
        self.chat.draft.text = self.query_one(Composer).text

    @property
    def is_filled(self) -> bool:
        """True once the screen shows its conversation."""
        return self._filled.is_set()

    @property
    def composer_text(self) -> str:
        return self.query_one(Composer).text

    async def show_conversation(self, *, is_open: bool = False) -> None:
        """Show the conversation once the screen is mounted. `is_open`: the conversation was open already, so keep the
        text in the composer, which is newer than the stored draft."""
        await self._filled.wait()
        if not self.is_attached:
            return
        self.transcript.clear()
        await self._fill_transcript()
        if self._is_closing:
            return
        if not is_open and self.query_one(Composer).text != self.chat.draft.text:
            self.show_draft()
        self.show_editing()
        self.prompt_cost.count_soon()
        self.show_queue()

    async def show_exchange(self, exchange: Exchange, *, rebuild: bool) -> None:
        """Show a new exchange (a message and its answer). `rebuild`: the exchange replaces others, so fill the whole
        transcript again."""
        if rebuild:
            self.transcript.clear()
            await self._fill_transcript()
        else:
            self.transcript.append(exchange, media_above=self.chat.branch.attachments_above)
            self.query_one(ChatFrame).show_head()  # hides the welcome panel
        if not self._is_closing:
            self.show_status()

    async def _fill_transcript(self) -> None:
        self.query_one(ChatFrame).show_head()
        if self.chat.exchanges and not self._is_closing:
            self.transcript.append(*self.chat.exchanges, media_above=self.chat.branch.attachments_above)
        for cursor in self.query(MessageCursor):  # none while the screen closes
            await cursor.conversation_shown()

    def show_draft(self) -> None:
        """Show the draft, and whether it edits an earlier message."""
        composer = self.query_one(Composer)
        composer.text = self.chat.draft.text
        composer.move_cursor(composer.document.end)
        composer.focus()
        self.show_editing()

    def known_parameters(self) -> Mapping[str, ParameterHelp]:
        """Return the parameters of the loaded model; empty without one."""
        model, info = self.engines.model, self.engines.info
        if model is None:
            return {}
        return parameter_help(model.family, (info.template_variables if info is not None else None) or {})

    def show_editing(self) -> None:
        """Show whether an earlier message is being edited, and number the draft's attachments after those of the
        messages above it."""
        self.query_one(EditingBar).show()
        self.panel.number_above(self.chat.attachments_sent)
        model = self.engines.model
        if model is not None:
            self.panel.sampling = VideoSampling(num_frames=model.spec.num_frames)
        self.refresh_bindings()

    def show_queue(self) -> None:
        """Show the queued messages, and the reason why they wait."""
        self.query_one(QueueBar).show(self.chat.queue.messages, self.engines)
        self.show_status()

    @on(Transcript.Ticked)
    def show_status(self) -> None:
        self.panel.set_class(self.chat.running is not None, "-busy")
        self.query_one(StatusBar).show()
        self.query_one(ChatFrame).show_facts()
        # Refresh only on changes: Textual's footer never releases the keys that it showed before.
        changing = (self._impossible_actions, self.not_in_footer, self.engines.info)
        if changing != self._changing:
            self._changing = changing
            self.refresh_bindings()
