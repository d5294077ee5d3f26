"""What the app needs from outside. Built by `bootstrap`, or by a test with a scripted engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vlmtui.engine.interface import EngineCleanup, EngineHost, ModelReader
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.session.async_store import AsyncStore

if TYPE_CHECKING:
    from vlmtui.config.settings import Settings
    from vlmtui.domain.backend_choice import BackendChoice
    from vlmtui.domain.engine import LoadSpec
    from vlmtui.store.records import ConversationId


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """The app's waiting times, in seconds."""

    quit_again: float = 2.0
    """A second Ctrl+C within this time quits."""
    inbox: float = 1.0
    """Interval between checks of the inbox folder."""
    batch: float = 1.0
    """Interval between looks at the file of a batch."""
    retry_write: float = 3.0
    """Interval between attempts to write to a store that fails."""


class Services(msgspec.Struct, frozen=True):
    """The services that the app uses."""

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
    cleanup: EngineCleanup | None = None
    """Finds and stops leftover engines; None if they are not ours to stop."""
    initial_model: str | None = None
    """The model to load at once, instead of showing the list of models."""
    initial_backend: BackendChoice | None = None
    """The kind of engine that loads it; None: the best of its record."""
    resume: ConversationId | None = None
    """The conversation to continue."""
    resume_spec: LoadSpec | None = None
    """Its model, if `initial_model` is not set."""
    delays: Delays = Delays()
