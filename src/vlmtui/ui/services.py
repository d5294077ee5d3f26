"""What the app and plain mode need from outside, and what they report. Built by `bootstrap`, or by a test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from vlmtui.engine.interface import EngineHost, ModelReader
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.conversation_holder import ConversationHolder, Teller
from vlmtui.session.engines import AppEngines

if TYPE_CHECKING:
    from vlmtui.config.settings import Settings
    from vlmtui.domain.engine import BackendChoice
    from vlmtui.session.recovery import InterruptedAnswers
    from vlmtui.session.resume import ResumePoint
    from vlmtui.store.records import ConversationId


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """The app's waiting times, in seconds."""

    quit_again: float = 2.0
    """A second Ctrl+C within this time quits."""
    inbox: float = 1.0
    """Interval between checks of the inbox folder."""
    retry_write: float = 3.0
    """Interval between attempts to write to a store that fails."""


class ExitReport(msgspec.Struct, frozen=True):
    """What remains after the app or plain mode exits."""

    model: str | None
    """The user's name for the model loaded last."""
    stays: bool
    """True if the engine stays loaded."""
    keep_alive_s: float | None
    """The seconds for which it stays loaded; None: forever."""
    conversation: ConversationId | None = None
    """The conversation shown last, if it is stored."""


class Services(msgspec.Struct, frozen=True):
    """The services that the app and plain mode use."""

    paths: Paths
    registry: Registry
    host: EngineHost
    settings: Settings
    store: AsyncStore
    """Closed by the app at exit."""
    keep_alive_s: float | None
    """Seconds that an engine stays loaded after the app exits; None: forever."""
    reader: ModelReader | None = None
    """Reads models without an engine; None: only with one."""
    initial_model: str | None = None
    """The model to load at once, instead of showing the list of models."""
    initial_backend: BackendChoice | None = None
    """The kind of engine that loads it; None: the best of its record."""
    served: Model | None = None
    """A server's model to use at once."""
    resumed: ResumePoint | None = None
    """The conversation to continue; its model is loaded unless `served` or `initial_model` is set."""
    delays: Delays = Delays()

    def first_model(self) -> Model | None:
        """Return the model to load at once: the one the user named, or the one of the conversation to continue. Raises
        VlmtuiError."""
        if self.served is not None:
            return self.served
        if self.initial_model is not None:
            return resolve(self.registry, self.initial_model, self.initial_backend)
        if self.resumed is None or not self.resumed.names_a_model:
            return None
        from vlmtui.session.resume import resumed_model

        return resumed_model(self.registry, self.settings.engines, self.resumed)

    def conversation_holder(self, teller: Teller, controller: AppEngines) -> ConversationHolder:
        """Return what will own the app's conversation."""
        return ConversationHolder(
            teller,
            controller,
            store=self.store,
            settings=self.settings,
            paths=self.paths,
            retry_s=self.delays.retry_write,
        )

    def interrupted_answers(
        self,
        holder: ConversationHolder,
        *,
        show: Callable[[bool], Awaitable[None]],
        load: Callable[[Model], None],
    ) -> InterruptedAnswers:
        """Return what completes the answers that went on while the app was closed."""
        from vlmtui.session.recovery import InterruptedAnswers

        return InterruptedAnswers(
            holder,
            host=self.host,
            registry=self.registry,
            show=show,
            load=load,
            opens_another=self.resumed is not None,
        )
