"""The user's turn that is compared: what is sent with it, what is kept with it, which answer it has. No widgets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Turn, assistant_turn, system_turn
from vlmtui.domain.engine import EngineInfo, GenerateRequest
from vlmtui.engine.session import Answer, PromptMode
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.replay import Comparison, from_json
from vlmtui.registry.match import Model
from vlmtui.ui.controllers.chat import ChatController, Exchange
from vlmtui.ui.controllers.exchange import Siblings
from vlmtui.ui.controllers.recipes import recipe_of

_LOOK_EVERY_S = 0.005


class KeptComparison(msgspec.Struct, frozen=True):
    """A comparison out of the store."""

    created_ms: int
    """Milliseconds since 1970, UTC."""
    document: Comparison


@dataclass(eq=False, slots=True)
class ComparedTurn:
    """A turn of the conversation, or the draft that becomes one once it is sent."""

    chat: ChatController
    exchange: Exchange | None = None
    """None: the draft."""
    has_adopted: bool = False
    """Whether it was given one of the compared answers."""

    @classmethod
    def of(cls, chat: ChatController) -> ComparedTurn:
        """The draft; with none, the last turn, to be asked again. Raises VlmtuiError when there is neither."""
        if chat.draft.pending:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "A file is still being looked at.")
        if chat.draft.words.strip() or chat.draft.attachments:
            return cls(chat)
        if not chat.exchanges:
            hint = "Write a message first: it is asked with the chat template and with a raw prompt."
            raise VlmtuiError(ErrorKind.BAD_USAGE, "There is nothing to compare yet.", hint=hint)
        return cls(chat, chat.exchanges[-1])

    @property
    def is_last(self) -> bool:
        """Whether the conversation ends with it: only then its answer can be another one."""
        return self.exchange is not None and self.chat.exchanges[-1:] == [self.exchange]

    def turns(self) -> tuple[Turn, ...]:
        """What is sent: the system prompt, what was said before, and the turn itself."""
        chat = self.chat
        if self.exchange is not None:
            above, asked = self.exchange.above, self.exchange.user
        else:
            last = chat.exchanges[-1] if chat.exchanges else None
            above = chat.editing.above if chat.editing is not None else last
            asked = Turn("user", chat.draft.parts)
        turns = [asked]
        while above is not None:
            if above.is_remembered:
                turns += [assistant_turn(above.answer.text), above.sent_user]
            above = above.above
        system = chat.settings.system_prompt
        return (*([system_turn(system)] if system.strip() else []), *reversed(turns))

    async def until_begun(self) -> None:
        """Wait until the turn is stored, as its request does; not where it cannot be, and was sent without."""
        exchange = self.exchange
        while exchange is not None and exchange.is_running and exchange.user_id is None and not exchange.answer.prompt:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_EVERY_S)
        await asyncio.sleep(_LOOK_EVERY_S)  # its request goes out just after it is stored

    async def until_over(self) -> None:
        """Wait until the turn has its answer."""
        while self.exchange is not None and self.exchange.is_running:  # noqa: ASYNC110  (nobody tells it)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def keep(self, document: Comparison, attachments: Iterable[Attachment]) -> None:
        """Store a comparison with the turn. Raises VlmtuiError where that is not possible now."""
        exchange, items = self.exchange, tuple(attachments)
        await self.chat.record()
        turn = exchange.user_id if exchange is not None else None
        if turn is None:
            raise VlmtuiError(ErrorKind.INTERNAL, "The comparison could not be kept: its message is not stored yet.")
        await self.chat.recorder.keeper.run(lambda store: store.add_comparison(turn, document, items))

    async def kept(self) -> list[KeptComparison]:
        """The comparisons that were stored with the turn, the newest first. Those of another make are left out."""
        turn = self.exchange.user_id if self.exchange is not None else None
        if turn is None:
            return []
        stored = await self.chat.recorder.keeper.run(lambda store: store.comparisons(turn))
        found: list[KeptComparison] = []
        for one in reversed(stored):
            try:
                document = from_json(msgspec.json.encode(one.document))
            except VlmtuiError:
                continue
            found.append(KeptComparison(one.created_ms, document))
        return found

    async def adopt(
        self, answer: Answer, request: GenerateRequest, mode: PromptMode, model: Model, info: EngineInfo | None
    ) -> Exchange:
        """Make an answer that is over the turn's own, beside those that it had. Raises VlmtuiError where another turn
        follows, or one is being answered."""
        exchange, chat = self.exchange, self.chat
        if exchange is None or not self.is_last or exchange.is_running:
            message = "Only the conversation's last message can be given another answer."
            raise VlmtuiError(ErrorKind.BAD_USAGE, message, hint="Alt+E goes back to an earlier one.")
        exchange.earlier.append(exchange.answer)
        count = exchange.answer_siblings.count + 1
        exchange.answer_siblings = Siblings(count, count)
        exchange.answer, exchange.answer_id, exchange.request = answer, None, request
        recipe = recipe_of(model, info, request, chat.settings, mode=mode)
        exchange.recipe = msgspec.structs.replace(recipe, seed=request.sampling.seed)
        chat.recorder.begin(chat.live, exchange, exchange.recipe)
        self.has_adopted = True
        await chat.record()
        return exchange
