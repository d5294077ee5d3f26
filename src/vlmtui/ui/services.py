"""What the app is given from outside. Built by `bootstrap`, or by a test with a scripted engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vlmtui.engine.interface import EngineCleanup, EngineHost
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.session.async_store import AsyncStore

if TYPE_CHECKING:
    from vlmtui.config.settings import Settings
    from vlmtui.domain.engine import LoadSpec
    from vlmtui.store.records import ConversationId


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """How long the app waits for people, folders and disks, in seconds."""

    quit_again: float = 2.0
    """Within so long, a second Ctrl+C ends the app."""
    inbox: float = 1.0
    """From one look into the inbox folder to the next."""
    retry_write: float = 3.0
    """From one attempt to write into a store that cannot be written to the next."""


class Services(msgspec.Struct, frozen=True):
    """Everything with a life of its own that the app uses."""

    paths: Paths
    registry: Registry
    host: EngineHost
    settings: Settings
    store: AsyncStore
    """Closed by the app when it ends."""
    keep_alive_s: float | None
    """How long an engine stays once the app has gone; None: for ever."""
    cleanup: EngineCleanup | None = None
    """Finds engines that are left over and ends them; None where the engines are not ours to end."""
    initial_model: str | None = None
    """Load this at once instead of showing the picker."""
    resume: ConversationId | None = None
    """Go on with this conversation."""
    resume_spec: LoadSpec | None = None
    """The model to load with it, where `initial_model` names none."""
    delays: Delays = Delays()
