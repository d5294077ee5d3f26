"""The open conversation: its exchanges (messages with answers), the draft, queued messages, and the running answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vlmtui.domain.conversation import Attachment, Text, Turn
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import Finished, GenerateRequest
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError, bad_input
from vlmtui.reading import is_file
from vlmtui.registry.match import Model
from vlmtui.registry.schema import Family
from vlmtui.session.answers import LiveAnswers
from vlmtui.session.draft import Draft
from vlmtui.session.exchange import (
    AnswerReplaced,
    AttachmentsLeftOut,
    Branch,
    ConversationEvent,
    Exchange,
    Sibling,
    Siblings,
    Subscriber,
    count_attachments,
    turns_until,
)
from vlmtui.session.generation import answer_to, make_request
from vlmtui.session.persistence import LiveConversation, Recorder, title_from_turn
from vlmtui.session.resume import Generation, LoadedConversation, is_of_engine, load_conversation
from vlmtui.session.settings import ChatSettings
from vlmtui.store.records import ConversationId, GenerationRecord, StoredDraft, TurnId
from vlmtui.text import one_line

if TYPE_CHECKING:
    from vlmtui.session.async_store import AsyncStore
    from vlmtui.session.conversation_holder import Teller
    from vlmtui.store.store import Store

NEW = "New chat"


class QueuedMessage(msgspec.Struct, frozen=True):
    """A message that waits until the model has loaded or the running answer has ended."""

    written: StoredDraft
    editing: Exchange | None = None
    """The exchange that it replaces, on a new branch."""

    @property
    def draft(self) -> Draft:
        """The message as a new draft."""
        draft = Draft()
        draft.put(self.written.text, self.written.attachments)
        return draft


class MessageQueue:
    """The queued messages of a conversation, in order. The store keeps them as part of the draft."""

    def __init__(self) -> None:
        self.messages: list[QueuedMessage] = []

    def __bool__(self) -> bool:
        return bool(self.messages)

    @property
    def attachments(self) -> int:
        """The number of attachments in all queued messages."""
        return sum(len(message.written.attachments) for message in self.messages)

    @property
    def editing(self) -> Exchange | None:
        """The exchange whose message the first queued message replaces; None if it replaces none."""
        return self.messages[0].editing if self.messages else None

    def add(self, draft: Draft, editing: Exchange | None) -> None:
        """Append a draft."""
        self.messages.append(QueuedMessage(StoredDraft(text=draft.text, attachments=draft.numbered), editing))

    def take_all(self, draft: Draft) -> Exchange | None:
        """Move all queued messages to the start of a draft. Return the exchange whose message the first one replaces,
        if any."""
        editing, merged = self.editing, self._with(draft, draft.text)
        self.messages.clear()
        draft.put(merged.text, merged.attachments)
        return editing

    def with_draft(self, draft: Draft) -> StoredDraft:
        """Return the queued messages and the draft in the form that is stored: one draft, joined by blank lines."""
        return self._with(draft, draft.text_to_store)

    def _with(self, draft: Draft, text: str) -> StoredDraft:
        waiting = [message.written for message in self.messages]
        drafts = [*waiting, StoredDraft(text=text, attachments=draft.numbered)]
        attachments = {number: item for one in drafts for number, item in one.attachments.items()}
        return StoredDraft(text="\n\n".join(one.text for one in drafts if one.text), attachments=attachments)


class Conversation:
    """The open conversation. It owns its exchanges, and no other class changes them. `opened` is called
    after `open`."""

    def __init__(self, settings: ChatSettings, recorder: Recorder, opened: Callable[[], None] = lambda: None) -> None:
        self.settings = settings
        """The settings of the next request."""
        self._put_aside: tuple[ChatSettings, ChatSettings] | None = None
        """The user's settings, and those of an opened conversation that took their place."""
        self.on_opened = opened
        self.recorder = recorder
        self.draft = Draft()
        self.queue = MessageQueue()
        self.live = LiveConversation()
        self.editing: Exchange | None = None
        """The exchange that the next message replaces, on a new branch."""
        self.subscribers: list[Subscriber] = []
        """Called with every event, in the event loop."""
        self.answers = LiveAnswers(recorder, self._notify)
        """The running answers."""

    def _notify(self, event: ConversationEvent) -> None:
        for subscriber in list(self.subscribers):
            subscriber(event)

    # -- state

    @property
    def id(self) -> ConversationId | None:
        """None until it is stored."""
        return self.live.id

    @property
    def branch(self) -> Branch:
        return self.live.branch

    @property
    def exchanges(self) -> list[Exchange]:
        """The newest exchanges; `branch.load_older` adds older exchanges in front."""
        return self.branch.newest

    @property
    def last(self) -> Exchange | None:
        return self.branch.last

    @property
    def running(self) -> Exchange | None:
        """The exchange whose answer is running."""
        return self.last if self.last is not None and self.last.is_running else None

    @property
    def attachments_sent(self) -> int:
        """The number of attachments in the next prompt before those of the draft."""
        return count_attachments(self.branch.until(self.queue.editing or self.editing)) + self.queue.attachments

    @property
    def last_counted(self) -> Exchange | None:
        """The newest exchange whose prompt's tokens are known; None before the first."""
        return next((one for one in reversed(self.branch.newest) if one.answer.usage.prompt_tokens), None)

    @property
    def context_used(self) -> int | None:
        """Tokens of the newest prompt and its answer; None: the engine does not tell them."""
        if self.last_counted is None:
            return None if self.branch.newest else 0
        usage = self.last_counted.answer.usage
        return usage.prompt_tokens + usage.completion_tokens

    def other_model(self, model: Model | None) -> str:
        """Return the name of the model that answered last, if it is not `model`; otherwise an empty text."""
        record = self.last.record if self.last is not None else None
        name = record.made_by.name if record is not None and record.made_by is not None else ""
        return "" if model is None or name == model.spec.name else one_line(name)

    async def stored_id(self) -> ConversationId:
        """Store what is not stored yet, and return the id. Raises VlmtuiError if there is no message."""
        await self.recorder.flush()
        if self.id is None:
            raise bad_input("There is no message to export yet.")
        return self.id

    def number_of(self, exchange: Exchange) -> int:
        """Return the exchange's number in the conversation, from 1."""
        return self.branch.all.index(exchange) + 1

    def turns_until(self, exchange: Exchange | None = None) -> list[Turn]:
        """Return the turns of a request for an answer to `exchange`, or to the draft (None)."""
        if exchange is not None:
            return turns_until(exchange.above, exchange.sent_user, self.settings.system_prompt)
        return self._turns_to(self.draft, self.editing)

    def preview(self, family: Family) -> GenerateRequest:
        """Return the request that `begin` would send now. Raises VlmtuiError if the family does not accept the
        request."""
        return make_request(family, self.turns_until(), self.settings.sampling)

    # -- sending

    def begin(
        self, model: Model, info: EngineInfo | None = None, *, seed: int | None = None, logprobs: int | None = None
    ) -> Exchange:
        """Move the draft into a new exchange with a request, which `LiveAnswers.answer` then stores and sends. `seed`
        and `logprobs` apply to this request only. Raises VlmtuiError, and then changes nothing."""
        turns = self.turns_until()
        made = self._generation(turns, model, info, seed=seed, logprobs=logprobs)
        exchange = self._add(turns[-1], made, instead_of=self.editing)
        self.leave_edit()
        self._begin(exchange, made)
        return exchange

    def begin_queued(self, model: Model, info: EngineInfo | None = None) -> Exchange:
        """Begin the first queued message like `begin`. It stays queued if VlmtuiError is raised."""
        message = self.queue.messages[0]
        turns = self._turns_to(message.draft, message.editing)
        made = self._generation(turns, model, info)
        exchange = self._add(turns[-1], made, instead_of=message.editing)
        del self.queue.messages[0]
        self._begin(exchange, made)
        return exchange

    def queue_draft(self) -> None:
        """Move the draft to the end of the queue."""
        self.queue.add(self.draft, self.editing)
        self.leave_edit()
        self.draft_changed()

    def take_back_queue(self) -> None:
        """Move all queued messages back into the draft, before its text."""
        self.editing = self.queue.take_all(self.draft) or self.editing
        self.draft_changed()

    def answer_again(self, model: Model, info: EngineInfo | None = None, of: Exchange | None = None) -> Exchange:
        """Begin another answer to an exchange of the branch, by default the last; later exchanges leave the branch.
        Raises VlmtuiError if there is no exchange, or while an answer is running."""
        exchange = of or self.last
        if exchange is None or self.running is not None or exchange not in self.branch.all:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "There is no finished answer to replace.")
        if exchange is not self.last:
            exchange, self.editing = self.branch.end_at(exchange), None
        self._begin(exchange, self._generation(self.turns_until(exchange), model, info))
        self._notify(AnswerReplaced(exchange))
        return exchange

    def repeats_greedily(self, info: EngineInfo | None, of: Exchange | None = None) -> bool:
        """Return whether another answer to an exchange, by default the last, would be generated at temperature 0, as
        its finished answer was by the same engine with the same sampling."""
        exchange = of or self.last
        if exchange is None or info is None or not isinstance(exchange.answer.outcome, Finished):
            return False
        used, record, now = exchange.answer.used, exchange.record, self.settings
        is_same = record is not None and (record.sampling, record.system_prompt) == (now.sampling, now.system_prompt)
        is_greedy = used.is_greedy if used is not None else now.sampling.is_greedy
        return is_same and is_greedy and record is not None and is_of_engine(record, info)

    async def adopt(self, exchange: Exchange, made: Generation) -> None:
        """Add a finished answer to the last exchange, and show it. Raises VlmtuiError if that is not possible now."""
        self._require_last(exchange)
        self._record(exchange, made)
        self._notify(AnswerReplaced(exchange))
        await self.recorder.flush()

    async def fork(self, turn: Turn, made: Generation, *, instead_of: Exchange | None = None) -> Exchange:
        """Append a message that already has its answer. It takes the place of the draft; with `instead_of`, it takes
        the place of that exchange's message, on a new branch. Raises VlmtuiError."""
        if instead_of is None:
            self.require_rest()
            exchange = self._add(turn, made, instead_of=self.editing)
            self.leave_edit()
        else:
            self._require_last(instead_of)
            exchange = self._add(turn, made, instead_of=instead_of)
        self._record(exchange, made)
        await self.recorder.flush()
        return exchange

    async def cancel(self, engine: Engine | None, why: str = "") -> None:
        """Ask the engine to stop the running answer; keep the partial answer. `why`: the reason; empty: the user
        stopped it."""
        if self.running is not None:
            await self.answers.cancel(engine, self.running, why)

    async def stop(self, engine: Engine | None) -> None:
        """Cancel the answer, and wait up to 3 seconds for its end."""
        if self.running is not None:
            await self.answers.stop(engine, self.running)

    # -- opening, branches, editing

    def clear(self) -> None:
        """Start a new conversation. The draft and the queue become its draft. The settings of an opened conversation do
        not stay for it, unless the user has changed them."""
        self.settings, self._put_aside = self._own_settings, None
        self.queue.take_all(self.draft)
        if self.branch.last is not None:
            self.recorder.save_draft(self.live, StoredDraft())
            self.live = LiveConversation()
        self._put_branch(Branch())
        self.draft_changed()

    @property
    def _own_settings(self) -> ChatSettings:
        """The user's settings, as they were before a conversation was opened."""
        own, opened = self._put_aside or (self.settings, None)
        is_unchanged = self.settings == opened and own.family == self.settings.family
        return own if is_unchanged else self.settings

    async def open(self, conversation: ConversationId) -> None:
        """Open a stored conversation with its settings and draft. If it is open already, the current draft stays.
        Raises VlmtuiError."""
        self.require_rest()
        self.draft_changed()
        await self.recorder.flush()
        loaded = await self._read(conversation)
        if self.live.id != conversation:
            self.queue.messages.clear()
            self.draft.put(loaded.draft.text, loaded.draft.attachments)
            self.live = LiveConversation(conversation, draft=loaded.draft)
        self.live.model = loaded.model
        self._put_branch(loaded.branch)
        if loaded.settings is not None:
            opened = msgspec.structs.replace(loaded.settings, kept=self.settings.kept)
            self._put_aside, self.settings = (self._own_settings, opened), opened
        self.on_opened()

    async def step(self, by: int) -> bool:
        """Show the next branch (`by` -1: the previous) of the last exchange with branches: its next answer; if there is
        none, its next message. Return False if there is neither."""
        sibling = self.branch.sibling_beside(by)
        if sibling is not None:
            await self.show_sibling(sibling)
        return sibling is not None

    async def show_branch(self, number: int) -> None:
        """Show answer `number` (from 1) of the last exchange with branches; if its message has only one answer, show
        message `number` instead. Raises VlmtuiError if there is no such branch."""
        await self.show_sibling(self.branch.sibling(number))

    def leave_out_oldest(self) -> Exchange | None:
        """Leave the oldest attachments out of later prompts. Return their exchange; None if all are left out."""
        found = next((exchange for exchange in self.branch.all if exchange.sent_attachments), None)
        return None if found is None else self._leave_out(found, True)

    def take_in_again(self) -> Exchange | None:
        """Undo the last `leave_out_oldest`. Return its exchange; None if no attachments are left out."""
        found = next((exchange for exchange in reversed(self.branch.all) if exchange.is_left_out), None)
        return None if found is None else self._leave_out(found, False)

    def _leave_out(self, exchange: Exchange, left_out: bool) -> Exchange:
        exchange.is_left_out = left_out
        self.recorder.save_left_out(exchange)
        self._notify(AttachmentsLeftOut(exchange))
        return exchange

    def attachments_by_number(self) -> dict[int, Attachment]:
        """Return the attachments of the next prompt by their number in it."""
        sent = [one for exchange in self.branch.until(self.editing) for one in exchange.sent_attachments]
        return dict(enumerate(sent, 1)) | self.draft.numbered

    def draft_changed(self, model: str = "") -> None:
        """Store the draft within a second. `model`: the loaded model's name, stored if no model has answered yet."""
        self.live.model = self.live.model or model
        self.recorder.save_draft(self.live, self.queue.with_draft(self.draft))

    def begin_edit(self, number: int | None = None) -> Exchange:
        """Put message `number` (from 1; None: the last) into the draft; sending it branches. Raises VlmtuiError."""
        self.require_rest()
        everything = self.branch.all
        number = len(everything) if number is None else number
        if not 1 <= number <= len(everything):
            raise bad_input(f"There is no message {number} to edit." if everything else "There is no message yet.")
        exchange = everything[number - 1]
        self.branch.load(exchange)
        self.editing = exchange
        self.draft.put_turn(exchange.sent_user, above=count_attachments(everything[: number - 1]))
        return exchange

    def leave_edit(self) -> None:
        """Stop editing a sent message, and clear the draft."""
        self.editing = None
        self.draft.clear()

    def require_rest(self) -> None:
        """Raise VlmtuiError while an answer is running."""
        if self.running is not None:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "Still answering.", remedy=Remedy.STOP_ANSWER)

    def _turns_to(self, draft: Draft, editing: Exchange | None) -> list[Turn]:
        above = editing.above if editing is not None else self.last
        return turns_until(above, Turn("user", draft.parts or (Text(""),)), self.settings.system_prompt)

    def _require_last(self, exchange: Exchange) -> None:
        self.require_rest()
        if exchange is not self.last:
            message = "Only the conversation's last message can be given another answer."
            raise VlmtuiError(ErrorKind.BAD_USAGE, message, remedy=Remedy.EDIT_EARLIER)

    def _add(self, turn: Turn, made: Generation, *, instead_of: Exchange | None) -> Exchange:
        """Append a new exchange, on a new branch if it replaces another."""
        if instead_of is None:
            exchange = Exchange(turn, made.answer, above=self.last)
        else:
            count = instead_of.user_siblings.count + 1
            siblings = Siblings(count, count)
            exchange = Exchange(turn, made.answer, above=instead_of.above, user_siblings=siblings)
        self.branch.end_with(exchange, instead_of=instead_of)
        return exchange

    def _put_branch(self, branch: Branch) -> None:
        """Make a branch the current one, and stop editing."""
        self.live.branch, self.editing = branch, None

    def _generation(
        self,
        turns: list[Turn],
        model: Model,
        info: EngineInfo | None,
        *,
        seed: int | None = None,
        logprobs: int | None = None,
    ) -> Generation:
        """Return a request for these turns with an empty answer. Raises VlmtuiError."""
        request = self.settings.request(model.family, turns, seed=seed, logprobs=logprobs)
        return Generation(request, answer_to(request, model.family), model, info)

    def _begin(self, exchange: Exchange, made: Generation) -> None:
        self.answers.begin(self.live, exchange, self._put(exchange, made))
        self.draft_changed()

    def _record(self, exchange: Exchange, made: Generation) -> None:
        self.recorder.begin(self.live, exchange, self._put(exchange, made))
        self.draft_changed()

    def _put(self, exchange: Exchange, made: Generation) -> GenerationRecord:
        self.live.model = made.model.spec.name
        record = made.record(self.settings)
        exchange.put_answer(made.answer, made.request, made.info, record)
        return record

    async def show_sibling(self, sibling: Sibling) -> None:
        """Show the branch that this sibling belongs to. Raises VlmtuiError while an answer is running."""

        def pick(store: Store) -> TurnId:
            siblings = store.siblings(sibling.of)
            return siblings[min(sibling.number, len(siblings)) - 1]

        await self._activate(pick)

    async def show_turn(self, turn: TurnId) -> None:
        """Show the branch with a stored turn. Raises VlmtuiError while an answer is running, if it is another
        branch."""
        if not any(turn in (exchange.user_id, exchange.answer_id) for exchange in self.branch.all):
            await self._activate(lambda store: turn)

    async def _activate(self, pick: Callable[[Store], TurnId]) -> None:
        self.require_rest()
        if not await self.recorder.flush() and self.recorder.is_waiting(self.live):
            raise bad_input("Can't switch branches: the newest turns are not saved yet.")

        def activate(store: Store) -> ConversationId:
            turn = pick(store)
            store.activate(turn)
            return store.turn(turn).conversation

        loaded = await self._read(await self.recorder.store.run(activate))
        self._put_branch(loaded.branch)

    async def _read(self, conversation: ConversationId) -> LoadedConversation:
        return await self.recorder.store.run(partial(load_conversation, conversation=conversation))


class Head(NamedTuple):
    """The heading of a conversation on screen."""

    title: str
    is_imported: bool = False
    """True if it was imported from a document and not continued since."""


async def head_of(conversation: Conversation) -> Head:
    """Return the heading: the stored title, or else the first words of the first message."""
    exchanges = conversation.branch.all
    known = title_from_turn(exchanges[0].user) if exchanges else NEW
    identity = conversation.id
    if identity is None:
        return Head(known)
    try:
        stored = await conversation.recorder.store.run(lambda store: store.conversation(identity))
    except VlmtuiError:
        return Head(known)
    return Head(stored.title or known, stored.imported)


async def export_conversation(store: AsyncStore, conversation: ConversationId, name: str, teller: Teller) -> None:
    """Write a stored conversation to a new file, in the format of its suffix, and report the path. Raises
    VlmtuiError."""
    from vlmtui.export.conversation import format_of, write_document
    from vlmtui.store.document import document_of

    path = Path(name).expanduser()
    if is_file(path):
        raise bad_input(f"{one_line(name)} already exists.", hint="Choose another name.")
    document = await store.run(lambda store: document_of(store, conversation))
    for damaged in await asyncio.to_thread(write_document, document, path, format_of(path)):
        text = f"The stored file of {one_line(damaged)} is damaged, so the export is without it."
        teller.tell(text, severity="warning")
    teller.tell(f"Written: {one_line(str(path))}")
