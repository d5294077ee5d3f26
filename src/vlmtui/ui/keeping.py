"""The app's part of keeping: what is told of the store, going on with a conversation, coming back, leaving."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import msgspec
from textual import work
from textual.screen import Screen

from vlmtui.errors import VlmtuiError
from vlmtui.registry.match import Model
from vlmtui.ui.controllers.engine import EngineController, EngineState
from vlmtui.ui.orderly import OrderlyApp
from vlmtui.ui.services import Services
from vlmtui.ui.text import one_line

if TYPE_CHECKING:
    from vlmtui.domain.engine import LoadSpec
    from vlmtui.engine.interface import Engine
    from vlmtui.store.records import ConversationId
    from vlmtui.store.store import Store
    from vlmtui.ui.controllers.chat import ChatController
    from vlmtui.ui.controllers.recording import Recorder
    from vlmtui.ui.controllers.resuming import Held
    from vlmtui.ui.screens.chat import ChatScreen
    from vlmtui.ui.screens.conversations import ConversationsScreen

_SETTLE_S = 3.0
_LOOKS = 3
"""How often whoever holds an answer is looked for: an engine that ends just then leaves it behind as a file."""


class ExitReport(msgspec.Struct, frozen=True):
    """What is left behind when the app ends."""

    model: str | None
    """What the user calls the model that was loaded last."""
    stays: bool
    """Whether its engine stays loaded."""
    keep_alive_s: float | None
    """For how long, in seconds; None: for ever."""
    conversation: ConversationId | None = None
    """The one that was shown last, if anything of it is stored."""


class KeepingApp(OrderlyApp[ExitReport | None]):
    """Has one conversation, which outlives the chat screen."""

    services: Services
    engine_controller: EngineController

    def __init__(self) -> None:
        super().__init__()
        self.chat_controller: ChatController | None = None
        """The conversation; another model can go on with it."""
        self._recorder: Recorder | None = None
        self._engine_moved = asyncio.Event()

    @abstractmethod
    def run_action_id(self, id: str, argument: str = "") -> None:
        """Run an action of the table: the active screen's own, else the app's."""

    @abstractmethod
    def load(self, model: Model) -> None:
        """Load a model, or go on with it where it is loaded, without a question."""

    @abstractmethod
    def choose(self, model: Model) -> None:
        """Load a model, after what has to be decided before."""

    @abstractmethod
    def show_chat(self) -> None:
        """Show the chat alone."""

    def open_conversation(self, conversation: ConversationId) -> None:
        """Go on with a stored conversation, with the model that is loaded; where there is none, with its own."""
        self._open_conversation(conversation)

    def action_cleanup(self) -> None:
        """End workers that cannot be used any more."""
        self._clean_up()

    def action_conversations(self) -> None:
        """Show what is stored."""
        from vlmtui.ui.screens.conversations import ConversationsScreen
        from vlmtui.ui.screens.loading import LoadingScreen

        if not isinstance(self.screen, ConversationsScreen | LoadingScreen):
            chat, cache = self.chat_controller, self.services.paths.cache / "thumbnails"
            open_id = chat.conversation if chat is not None else None
            self.push_screen(ConversationsScreen(self.services.keeper, cache=cache, open_id=open_id))

    def on_conversations_screen_conversation_chosen(self, event: ConversationsScreen.ConversationChosen) -> None:
        self.open_conversation(event.id)

    def on_conversations_screen_new_chat_wanted(self) -> None:
        from vlmtui.ui.screens.conversations import ConversationsScreen

        if isinstance(self.screen, ConversationsScreen):  # the key may come twice at once
            self.pop_screen()
            self.call_later(self.run_action_id, "new_chat")

    def action_undelete(self) -> None:
        """Bring back the conversation that was deleted last."""
        self._undelete()

    def chat(self) -> ChatController:
        """The conversation; a new one where there is none."""
        from vlmtui.ui.controllers.chat import ChatController
        from vlmtui.ui.screens.chat import initial_settings

        if self.chat_controller is None:
            model = self.engine_controller.model
            settings = initial_settings(self.services, model.family.sampling if model else None)
            self.chat_controller = ChatController(settings, self.recorder())
        return self.chat_controller

    def recorder(self) -> Recorder:
        """What writes into the store."""
        from vlmtui.ui.controllers.recording import Recorder

        if self._recorder is None:
            self._recorder = Recorder(self.services.keeper, on_trouble=self._store_trouble)
        return self._recorder

    def engine_moved(self) -> None:
        """The engine controller has changed."""
        self._engine_moved.set()
        self._engine_moved = asyncio.Event()

    # -- coming

    @work(group="keeping")
    async def begin_keeping(self) -> None:
        """At the start, once something is shown: the conversation to go on with, and what went on meanwhile."""
        try:
            if self.services.resume is not None:
                await self.chat().open(self.services.resume)
                await self._show_opened()
            await self._come_back()
        except VlmtuiError as error:
            self._tell_error(error)
        self._tell_recovery()

    @work(group="keeping")
    async def look_for_leftovers(self) -> None:
        """Later: whether dead ends of ours hold memory."""
        found = await self.services.host.leftovers()
        if found:
            names = ", ".join(one_line(worker.name) for worker in found)
            text = f"Left over from before, of no use and holding memory: {names}. /cleanup ends them."
            self.notify(text, severity="warning", timeout=30, markup=False)

    async def _come_back(self) -> None:
        """Answers that went on while nobody was there: the newest is shown, the others are stored."""
        if not await self.services.keeper.run(_has_interrupted):
            return
        from vlmtui.ui.controllers.resuming import find_held, interrupted

        host = self.services.host
        for turn, title in await interrupted(self.services.keeper):
            for _ in range(_LOOKS):
                held = await find_held(turn, title, host)
                if held is None or await self._bring_back(held):
                    break

    async def _bring_back(self, held: Held) -> bool:
        """False where whoever had it does not have it any more."""
        from vlmtui.ui.controllers.resuming import fetch

        told = f"An answer went on while you were away: {one_line(held.title)}"
        if self._may_show(held):
            self.notify(told, timeout=15, markup=False)
            return await self._go_on_with(held)
        is_fetched = await fetch(held, self.services.host, self.recorder())
        if is_fetched:
            self.notify(told, timeout=15, markup=False)
        return is_fetched

    def _may_show(self, held: Held) -> bool:
        """Whether nothing else is wanted, or has been begun."""
        chat, model = self.chat_controller, self.engine_controller.model
        if chat is not None and chat.running is not None:
            return False
        if chat is not None and chat.conversation == held.turn.conversation:
            return True
        is_free = chat is None or (chat.conversation is None and not chat.draft.text)
        return self.services.resume is None and is_free and (model is None or held.spec in (None, model.spec))

    async def _go_on_with(self, held: Held) -> bool:
        """Show it, and take in what has come of it since. False where its engine does not have it any more."""
        from vlmtui.ui.controllers.resuming import held_model

        chat, keeper = self.chat(), self.services.keeper
        await keeper.run(lambda store: store.activate(held.turn.id))
        await chat.open(held.turn.conversation)
        exchange = chat.find(held.turn.id)
        if exchange is None:
            return True
        if held.spec is None:
            if await chat.take_over(exchange) is not None:
                chat.restore(self.services.host, exchange, held.events)
            await self._show_opened()
            return True
        self.load(held_model(self.services.registry, held.spec))
        await self._show_opened()
        engine = await self._engine_of(held.spec)
        if engine is None:
            return False
        if chat.find(held.turn.id) is not exchange:
            return True
        old = await chat.take_over(exchange)
        if old is None:
            return True
        screen = self._chat_screen_shown()
        if screen is not None:
            await screen.show_answer_again(exchange)
        await chat.resume(engine, exchange, old)
        screen = self._chat_screen_shown()
        is_back = exchange.answer is not old
        if screen is not None and not is_back:
            await screen.show_answer_again(exchange)
        elif screen is not None:
            screen.post_message(screen.AnswerOver(exchange))
        return is_back

    async def _engine_of(self, spec: LoadSpec) -> Engine | None:
        """The engine of that spec, once it is loaded; None where it could not be."""
        controller = self.engine_controller
        while controller.model is None or controller.model.spec != spec or controller.state is EngineState.LOADING:
            await self._engine_moved.wait()
        return controller.engine if controller.is_loaded else None

    @work(group="keeping")
    async def _open_conversation(self, conversation: ConversationId) -> None:
        from vlmtui.ui.controllers.resuming import stored_model, to_resume

        chat = self.chat()
        try:
            if chat.conversation != conversation:
                await chat.open(conversation)
            await self._show_opened()
            if self.engine_controller.model is None:
                found = await self.services.keeper.run(lambda store: to_resume(store, conversation))
                self.choose(stored_model(self.services.registry, found.spec, found.model))
        except VlmtuiError as error:
            self._tell_error(error)
        self._tell_recovery()

    @work(group="keeping")
    async def _undelete(self) -> None:
        from vlmtui.ui.controllers.conversation_list import undelete_last

        try:
            found = await undelete_last(self.services.keeper)
        except VlmtuiError as error:
            self._tell_error(error)
            return
        self.notify(f"“{one_line(found.title) or 'untitled'}” is back among the conversations.", markup=False)

    async def _show_opened(self) -> None:
        """Show the conversation that was opened, as soon as there is a model."""
        screen = self._chat_screen_shown()
        if screen is not None:
            while self.screen is not screen:
                self.pop_screen()
            await screen.show_conversation()
            screen.tell_limits()
        elif self.engine_controller.is_loaded:
            self.show_chat()

    def _chat_screen_shown(self) -> ChatScreen | None:
        from vlmtui.ui.screens.chat import ChatScreen

        return next((screen for screen in self._stack() if isinstance(screen, ChatScreen)), None)

    def _stack(self) -> list[Screen[Any]]:
        return list(self.screen_stack) if self.is_running else []

    # -- telling

    def _store_trouble(self, error: VlmtuiError | None) -> None:
        self._tell_recovery()
        if not self.is_running:
            return
        if error is None:
            self.notify("Everything is saved again; nothing was lost.", timeout=10, markup=False)
            return
        text = f"{error} The conversation goes on in memory, and is saved as soon as that is possible."
        self.notify(one_line(text), severity="error", timeout=30, markup=False)

    def _tell_recovery(self) -> None:
        recovered = self.services.keeper.take_recovery()
        if recovered is not None and self.is_running:
            self.notify(one_line(recovered.summary), severity="warning", timeout=60, markup=False)

    def _tell_error(self, error: VlmtuiError) -> None:
        self.notify(one_line(str(error)), severity="error", timeout=15, markup=False)

    @work(group="modal")
    async def _clean_up(self) -> None:
        from vlmtui.ui.screens.confirm import ConfirmScreen

        host = self.services.host
        found = await host.leftovers()
        if not found:
            self.notify("There is nothing to end.", markup=False)
            return
        names = ", ".join(f"{one_line(worker.name)} (pid {worker.pid})" for worker in found)
        if not await self.push_screen_wait(ConfirmScreen(f"End {names}?", yes="End them")):
            return
        for worker in found:
            try:
                await host.stop_worker(worker.endpoint)
            except VlmtuiError as error:
                self._tell_error(error)
        self.notify(f"Ended: {names}", markup=False)

    # -- going

    async def bring_to_rest(self, *, stops: bool) -> bool:
        """Before the app goes: the running answer ends (`stops`) or goes on without us, and everything is written.
        False where something could not be written."""
        chat, recorder = self.chat_controller, self._recorder
        if chat is None or recorder is None:
            return True
        if stops:
            await chat.stop(self.engine_controller.engine)
        else:
            chat.detach()
        chat.draft_changed()
        await recorder.settle(_SETTLE_S if stops else 0.0)
        return recorder.trouble is None

    async def leave_unsaved(self) -> bool:
        """Whether the user wants to leave though something could not be written."""
        from vlmtui.ui.screens.confirm import ConfirmScreen

        assert self._recorder is not None
        why = self._recorder.trouble.message if self._recorder.trouble else ""
        question = f"{one_line(why)} What was said since then is lost when you leave now."
        return not await self.push_screen_wait(ConfirmScreen(question, yes="Stay", no="Leave, and lose it"))

    async def close_keeper(self) -> None:
        """The last writes."""
        if self._recorder is not None:
            await self._recorder.close()
        await self.services.keeper.close()


def _has_interrupted(store: Store) -> bool:
    """Whether answers may have gone on without us; marks those whose process has gone."""
    store.mark_interrupted()
    return bool(store.interrupted(1))
