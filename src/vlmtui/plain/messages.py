"""Sends messages, and shows their answers."""

from __future__ import annotations

from collections.abc import Mapping

from vlmtui.domain.conversation import Turn
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError, bad_input
from vlmtui.media.describe import attachment_facts
from vlmtui.plain.answer_lines import AnswerLines
from vlmtui.plain.attachments import Attachments
from vlmtui.plain.models import Models
from vlmtui.plain.parts import Parts, RunCommand
from vlmtui.session.cost import Cost
from vlmtui.session.death_counts import Suspect
from vlmtui.session.draft_cost import draft_cost
from vlmtui.session.events import AnswerEnded, AnswerReplaced, ConversationEvent
from vlmtui.session.exchange import Exchange
from vlmtui.text import is_number, one_line

_SHOWN_EXCHANGES = 3


class Messages:
    """The conversation: messages, answers, branches."""

    def __init__(self, parts: Parts, models: Models, attachments: Attachments) -> None:
        self._parts = parts
        self._models = models
        self._attachments = attachments
        self._shows_reasoning = False
        self._written: AnswerLines | None = None
        """The newest answer of the conversation that was shown last."""

    @property
    def commands(self) -> Mapping[str, RunCommand]:
        return {
            "stop": self.stop,
            "regenerate": self.regenerate,
            "edit": self.edit,
            "branch": self.show_branch,
            "new_chat": self.new_chat,
            "toggle_thinking": self.toggle_reasoning,
        }

    async def send(self, line: str) -> None:
        """Send a line with the attachments of the draft. Raises VlmtuiError; then the draft stays."""
        parts, chat = self._parts, self._parts.chat
        self._attachments.take_line(line)
        await self._attachments.offer_named()
        chat.require_rest()
        await self._models.wait_until_ready()
        parts.controller.require_engine()
        await self.check_room()
        suspect = chat.suspect(Turn("user", chat.draft.parts))
        if suspect is not None and not await self._is_sure(suspect):
            return
        exchange = chat.begin(parts.controller.require_model(), parts.controller.info)
        await self.answer(exchange)

    async def check_room(self) -> None:
        """Raise VlmtuiError if the draft is known to be too long for the model."""
        cost = await draft_cost(self._parts.chat, self._parts.controller)
        if isinstance(cost, Cost) and cost.is_too_much:
            raise VlmtuiError(ErrorKind.CONTEXT_TOO_LONG, cost.text, remedy=Remedy.SHRINK_MESSAGE)

    async def answer(self, exchange: Exchange) -> None:
        """Send an exchange that was begun, and show its answer. Ctrl+C stops it; the partial answer stays."""
        parts = self._parts
        engine = parts.controller.require_engine()
        lines = self.lines_of(exchange)
        with parts.work.stopping(lambda: parts.chat.cancel(parts.controller.engine)):
            await parts.chat.answer(engine, exchange)
        lines.end(exchange.marks())
        if exchange.answer.failure is None:
            parts.controller.answered()

    def lines_of(self, exchange: Exchange) -> AnswerLines:
        """Show an exchange's answer from now on."""
        return AnswerLines(self._parts.output, exchange.answer, shows_reasoning=self._shows_reasoning)

    async def regenerate(self, argument: str) -> None:
        """Generate another answer to the last message."""
        parts, chat = self._parts, self._parts.chat
        await self._models.wait_until_ready()
        parts.controller.require_engine()
        suspect = await chat.suspect_again()
        if suspect is not None and not await self._is_sure(suspect):
            return
        await self.answer(chat.answer_again(parts.controller.require_model(), parts.controller.info))

    async def stop(self, argument: str) -> None:
        """Stop an answer that goes on from an earlier session."""
        chat = self._parts.chat
        if chat.running is None:
            self._parts.output.tell("No answer is running. Ctrl+C stops one while it is written.")
        await chat.stop(self._parts.controller.engine)

    async def edit(self, argument: str) -> None:
        """Put an earlier message into the draft; sending it creates a branch."""
        if argument and not is_number(argument):
            raise bad_input("/edit takes the number of a message.")
        chat = self._parts.chat
        exchange = chat.begin_edit(int(argument) if argument else None)
        self._parts.draft_changed()
        number = chat.number_of(exchange)
        self._parts.output.tell(f"Editing message {number}: sending it creates a branch. /new leaves it as it is.")

    async def new_chat(self, argument: str) -> None:
        """Start a new conversation, or leave the message that is being edited as it is."""
        chat = self._parts.chat
        chat.require_rest()
        if chat.editing is not None:
            chat.leave_edit()
            self._parts.output.tell("The message stays as it is.")
            return
        chat.clear()
        self._parts.output.tell("A new conversation; the draft stays.")

    async def show_branch(self, argument: str) -> None:
        """Show the branch with this number."""
        if not is_number(argument):
            raise bad_input("/branch takes a number.")
        await self._parts.chat.show_branch(int(argument))
        self.show_conversation()

    async def toggle_reasoning(self, argument: str) -> None:
        """Show or hide reasoning, and show the last answer's."""
        self._shows_reasoning = not self._shows_reasoning
        self._parts.output.tell(f"Reasoning is {'shown' if self._shows_reasoning else 'hidden'} from now on.")
        last = self._parts.chat.last
        if last is not None and self._shows_reasoning and (known := last.answer.parts(last.answer.text).thinking):
            self._parts.output.lines(["Reasoning:", known])

    def follow(self, event: ConversationEvent) -> None:
        """Go on with an answer that was taken over from an earlier session, after `show_conversation`."""
        match event:
            case AnswerReplaced(exchange) if exchange.is_running and self._written is not None:
                self._parts.output.line("The answer goes on; Ctrl+C stops it.")
                self._written.go_on_with(exchange.answer)
            case AnswerEnded(exchange) if self._written is not None:
                self._written.end(exchange.marks())

    def is_shown(self, exchange: Exchange | None) -> bool:
        """Return whether the answer that was written last has all of this one's text."""
        return exchange is not None and self._written is not None and self._written.has(exchange.answer)

    def show_conversation(self, newest: int = _SHOWN_EXCHANGES) -> None:
        """Write the newest messages and answers."""
        output, chat = self._parts.output, self._parts.chat
        everything = chat.all_exchanges()
        shown = everything[-newest:]
        if len(everything) > len(shown):
            output.tell(f"{len(everything) - len(shown):,} earlier messages; /inspect NUMBER shows one.")
        for exchange in shown:
            output.line(f"{chat.number_of(exchange)} You: {exchange.user.text}")
            output.lines(
                f"  {item.modality} {one_line(item.name)}, {attachment_facts(item)}"
                for item in exchange.user.attachments
            )
            self._written = self.lines_of(exchange)
            self._written.end(exchange.marks())

    async def _is_sure(self, suspect: Suspect) -> bool:
        name = f" Suspected: {one_line(suspect.attachment.name)}." if suspect.attachment else ""
        return await self._parts.output.confirm(
            f"This message killed the engine {suspect.deaths} times.{name} Send it again?"
        )
