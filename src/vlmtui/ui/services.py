"""What the app and plain mode get from `bootstrap` or a test, and the report that they return at exit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.engine import REMOTE_BACKEND
from vlmtui.engine.interface import EngineHost, ModelReader
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, Preset, resolve, with_preset
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.conversation_holder import ConversationHolder, Teller
from vlmtui.session.engines import AppEngines

if TYPE_CHECKING:
    from vlmtui.config.settings import Settings
    from vlmtui.domain.engine import BackendChoice, EngineStatus
    from vlmtui.session.recovery import InterruptedAnswers
    from vlmtui.session.resume import ResumePoint
    from vlmtui.store.records import ConversationId


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting times of the app, in seconds."""

    quit_again: float = 2.0
    """A second Ctrl+C within this time quits."""
    retry_write: float = 3.0
    """Interval between attempts to write to a store that fails."""


class ExitReport(msgspec.Struct, frozen=True):
    """What the command prints when the app or plain mode has ended: how to continue, and whether the model stays
    loaded."""

    model: str | None
    """The name of the last loaded model, as the user gave it."""
    stays: bool
    """True if the engine stays loaded."""
    keep_alive_s: float | None
    """Seconds that it stays loaded; None: forever."""
    conversation: ConversationId | None = None
    """The last conversation, if it is stored."""

    @staticmethod
    def of(model: str | None, stays: EngineStatus | None, conversation: ConversationId | None) -> ExitReport:
        """`stays`: the status of the engine if it stays loaded. A server's model does not stay because of vlmtui."""
        if stays is not None and stays.spec.backend == REMOTE_BACKEND:
            stays = None
        keep_alive_s = stays.keep_alive_s if stays is not None else 0.0
        return ExitReport(model, stays is not None, keep_alive_s, conversation)


class Services(msgspec.Struct, frozen=True):
    """What the app and plain mode need: folders, settings, engines, store, and what to open first."""

    paths: Paths
    registry: Registry
    host: EngineHost
    settings: Settings
    store: AsyncStore
    """Closed by the app at exit."""
    keep_alive_s: float | None
    """Seconds that an engine stays loaded after the app exits; None: forever."""
    reader: ModelReader | None = None
    """Reads tokenizers and templates without an engine; None: that is impossible."""
    initial_model: str | None = None
    """The name of a model to load first; None: none."""
    initial_backend: BackendChoice | None = None
    """The kind of engine that loads it; None: the best one of the model family's record."""
    initial_preset: Preset | None = None
    """The preset of its engine arguments; None: those of its record."""
    served: Model | None = None
    """A model of a vLLM server to use first."""
    resumed: ResumePoint | None = None
    """The conversation to continue; its model is loaded unless `served` or `initial_model` is set."""
    delays: Delays = Delays()

    def first_model(self) -> Model | None:
        """Return the model of the command line or of the conversation to continue. Raises VlmtuiError."""
        if self.served is not None:
            return self.served
        if self.initial_model is not None:
            model = resolve(self.registry, self.initial_model, self.initial_backend)
            return with_preset(model, self.initial_preset)
        if self.resumed is None or not self.resumed.names_a_model:
            return None
        from vlmtui.session.resume import resumed_model

        return resumed_model(self.registry, self.settings.engines, self.resumed)

    def conversation_holder(self, teller: Teller, controller: AppEngines) -> ConversationHolder:
        """Return a new owner of the conversation, for the app or for plain mode."""
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
        """Return an object that fetches the rest of interrupted answers, which an engine continued while no app was
        running.

        `show`: shows the conversation; its argument is True if the conversation is open already. `load`: loads a model.
        """
        from vlmtui.session.recovery import InterruptedAnswers

        return InterruptedAnswers(
            holder,
            host=self.host,
            registry=self.registry,
            show=show,
            load=load,
            opens_another=self.resumed is not None,
        )
