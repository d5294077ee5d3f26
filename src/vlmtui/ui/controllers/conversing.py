"""A conversation as a whole: opened, cleared, its branches, its draft. No widgets here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Media, Turn
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.store.records import ConversationId, StoredDraft, StoredTurn, TurnId
from vlmtui.ui.controllers.answering import Answering
from vlmtui.ui.controllers.chat_settings import ChatSettings
from vlmtui.ui.controllers.draft import Draft, token_text
from vlmtui.ui.controllers.exchange import Exchange, exchanges_of
from vlmtui.ui.controllers.opening import Opened, read_conversation
from vlmtui.ui.controllers.recording import Recorder
from vlmtui.ui.controllers.writing import LiveConversation

if TYPE_CHECKING:
    from vlmtui.store.store import Store


class Conversing(Answering):
    """One conversation at a time, and what is written to go on with it."""

    def __init__(self, settings: ChatSettings, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.settings = settings
        self.draft = Draft()
        self.editing: Exchange | None = None
        """The exchange that the next message takes the place of, on a branch of its own."""
        self._older: list[Exchange] = []
        """Those above `exchanges`, the oldest first."""
        self._kept_draft = StoredDraft()

    @property
    def conversation(self) -> ConversationId | None:
        """None until something of it is stored."""
        return self.live.id

    @property
    def staged(self) -> list[Attachment]:
        """What would be sent with the next message, in order."""
        return self.draft.attachments

    @property
    def older(self) -> int:
        """How many exchanges there are above `exchanges`."""
        return len(self._older)

    @property
    def attachments_above(self) -> int:
        """How many attachments there are above `exchanges`."""
        return _count(self._older)

    @property
    def attachments_sent(self) -> int:
        """How many attachments the conversation has before the message that is written."""
        return _count(self._before())

    def draft_changed(self, model: str = "") -> None:
        """Keep what is written, within a second. `model`: which one it is written to, where none was asked yet."""
        self.live.model = self.live.model or model
        draft = StoredDraft(text=self.draft.text, attachments=self.draft.numbered)
        if draft != self._kept_draft:
            self._kept_draft = draft
            self.recorder.keep_draft(self.live, draft)

    def clear(self) -> None:
        """A new conversation; what is staged and written goes along."""
        if self._kept_draft != StoredDraft() and (self.exchanges or self._older):
            self.recorder.keep_draft(self.live, StoredDraft())
            self._kept_draft = StoredDraft()
        if self.exchanges or self._older:
            self.live = LiveConversation()
        self.exchanges, self._older, self.editing = [], [], None
        self.draft_changed()

    async def open(self, conversation: ConversationId) -> None:
        """Go on with a stored conversation: its newest turns, settings and draft. Raises VlmtuiError where there is
        none, or an answer is under way."""
        self._need_rest()
        self.draft_changed()
        await self.recorder.flush()
        opened = await self._read(conversation)
        self.live = LiveConversation(conversation, opened.model)
        self._show(opened)
        self.draft.put(opened.draft.text, opened.draft.attachments)
        self._kept_draft = opened.draft
        if opened.settings is not None:
            self.settings = opened.settings

    async def lone_exchange(self, answer: StoredTurn) -> Exchange | None:
        """A stored answer and its question, in no conversation that is shown."""
        parent = answer.parent
        if parent is None:
            return None
        question = await self.recorder.keeper.run(lambda store: store.turn(parent))
        self.live = LiveConversation(answer.conversation)
        return next(exchanges_of([question, answer]), None)

    def find(self, answer: TurnId) -> Exchange | None:
        """The exchange of a stored answer, on the branch that is shown."""
        return next((item for item in [*self._older, *self.exchanges] if item.answer_id == answer), None)

    async def load_older(self, limit: int) -> list[Exchange]:
        """Put up to `limit` older exchanges before those that are here; these, the oldest first."""
        at = max(0, len(self._older) - limit)
        self._older, loaded = self._older[:at], self._older[at:]
        self.exchanges = [*loaded, *self.exchanges]
        return loaded

    async def step(self, by: int) -> bool:
        """Show the next branch (-1: the one before) of the last exchange that has several: first of its answers, then
        of its message. False where there is none."""
        exchange = self._branching()
        if exchange is None:
            return False
        for turn, place in (
            (exchange.answer_id, exchange.answer_siblings),
            (exchange.user_id, exchange.user_siblings),
        ):
            if turn is not None and 1 <= place.position + by <= place.count:
                await self._show_sibling(turn, place.position + by)
                return True
        return False

    async def show_branch(self, number: int) -> None:
        """Show the answer of that number, of the last exchange that has several; where it has one answer, the message
        of that number. Raises VlmtuiError where there is none."""
        exchange = self._branching()
        if exchange is None:
            raise bad_input("The conversation has no branches.", hint="Ctrl+R and Alt+E make one.")
        answers = exchange.answer_siblings.count > 1
        turn = exchange.answer_id if answers else exchange.user_id
        place = exchange.answer_siblings if answers else exchange.user_siblings
        if turn is None or not 1 <= number <= place.count:
            raise bad_input(f"There are {place.count} branches here, and no number {number}.")
        await self._show_sibling(turn, number)

    async def begin_edit(self, number: int | None = None) -> Exchange:
        """Take the message of that number (from 1; None: the last) into the draft; sending it makes a new branch.
        Raises VlmtuiError where there is none, or an answer is under way."""
        self._need_rest()
        everything = [*self._older, *self.exchanges]
        number = len(everything) if number is None else number
        if not 1 <= number <= len(everything):
            raise bad_input(f"There is no message {number} to edit." if everything else "Nothing was said yet.")
        exchange = everything[number - 1]
        if number <= len(self._older):
            await self.load_older(len(self._older) - number + 1)
        self.editing = exchange
        self.draft.put(*_written(exchange.user, above=_count(everything[: number - 1])))
        return exchange

    def number_of(self, exchange: Exchange) -> int:
        """Which one of the conversation's messages it has, from 1."""
        return [*self._older, *self.exchanges].index(exchange) + 1

    def leave_edit(self) -> None:
        """Leave the message as it is; the draft is empty."""
        self.editing = None
        self.draft.clear()

    def _branching(self) -> Exchange | None:
        found = (item for item in reversed([*self._older, *self.exchanges]) if item.branches())
        return next(found, None)

    async def _show_sibling(self, turn: TurnId, number: int) -> None:
        self._need_rest()
        if not await self.recorder.flush() and self.recorder.is_waiting(self.live):
            raise bad_input("The newest turns could not be saved yet, so no other branch can be shown.")

        def activate(store: Store) -> ConversationId:
            siblings = store.siblings(turn)
            store.activate(siblings[min(number, len(siblings)) - 1])
            return store.turn(turn).conversation

        self._show(await self._read(await self.recorder.keeper.run(activate)))

    async def _read(self, conversation: ConversationId) -> Opened:
        return await self.recorder.keeper.run(partial(read_conversation, conversation=conversation))

    def _show(self, opened: Opened) -> None:
        self.exchanges, self._older, self.editing = opened.exchanges, opened.older, None

    def _need_rest(self) -> None:
        if self.running is not None:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "An answer is under way: Esc stops it.")

    def _before(self) -> list[Exchange]:
        """Everything above the message that is written."""
        everything = [*self._older, *self.exchanges]
        return everything[: everything.index(self.editing)] if self.editing in everything else everything


def _count(exchanges: list[Exchange]) -> int:
    return sum(len(exchange.user.attachments) for exchange in exchanges)


def _written(turn: Turn, *, above: int) -> tuple[str, dict[int, Attachment]]:
    """A turn as it is written: tokens for the attachments, with numbers above `above`."""
    pieces: list[str] = []
    attachments: dict[int, Attachment] = {}
    for part in turn.parts:
        if isinstance(part, Media):
            number = above + len(attachments) + 1
            attachments[number] = part.attachment
            pieces.append(token_text(number, part.attachment))
        else:
            pieces.append(part.text)
    text = "".join(pieces)
    if turn.text.startswith("/"):
        at = text.index("/")
        text = f"{text[:at]}/{text[at:]}"
    return text, attachments
