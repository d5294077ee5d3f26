"""What the parts of plain mode share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from vlmtui.config.settings import Settings
from vlmtui.engine.interface import EngineCleanup, EngineHost, ModelReader
from vlmtui.paths import Paths
from vlmtui.plain.interruptible import Interruptible
from vlmtui.plain.output import PlainOutput
from vlmtui.registry.loader import Registry
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.conversation import Conversation
from vlmtui.session.conversation_holder import ConversationHolder
from vlmtui.session.engine_controller import EngineController

if TYPE_CHECKING:
    from vlmtui.domain.backend_choice import BackendChoice
    from vlmtui.registry.match import Model
    from vlmtui.session.resume import ResumePoint


RunCommand = Callable[[str], Coroutine[Any, Any, None]]
"""Runs with the command's argument. Raises VlmtuiError."""


class PlainServices(msgspec.Struct, frozen=True, kw_only=True):
    """What plain mode needs from outside."""

    paths: Paths
    settings: Settings
    registry: Registry
    host: EngineHost
    store: AsyncStore
    """Closed with the session."""
    reader: ModelReader | None = None
    cleanup: EngineCleanup | None = None
    model: str | None = None
    """The model to load at once."""
    backend: BackendChoice | None = None
    served: Model | None = None
    """A server's model to use."""
    resumed: ResumePoint | None = None
    """The conversation to continue."""


class Parts:
    """The session's state: engine, conversation, output. Lives in the session's thread."""

    def __init__(self, services: PlainServices, output: PlainOutput, controller: EngineController) -> None:
        self.services = services
        self.output = output
        self.controller = controller
        self.work = Interruptible()
        self.holder = ConversationHolder(
            output, controller, store=services.store, settings=services.settings, paths=services.paths
        )
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def chat(self) -> Conversation:
        """The conversation. Raises VlmtuiError before the first model is chosen."""
        if self.holder.chat is None:
            self.controller.require_model()
        return self.holder.require_chat()

    def draft_changed(self) -> None:
        """Store the draft within a second."""
        model = self.controller.model
        self.chat.draft_changed(model.spec.name if model is not None else "")

    def start(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        """Run something beside the commands, until the session ends."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def end_tasks(self) -> None:
        """End what `start` has started."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
