"""What the app is given from outside. Built by `bootstrap`, or by a test with a scripted engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vlmtui.engine.interface import EngineHost
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.ui.controllers.keeper import Keeper

if TYPE_CHECKING:
    from vlmtui.config.settings import Settings
    from vlmtui.domain.engine import LoadSpec
    from vlmtui.store.records import ConversationId


class Services(msgspec.Struct, frozen=True):
    """Everything with a life of its own that the app uses."""

    paths: Paths
    registry: Registry
    host: EngineHost
    settings: Settings
    keeper: Keeper
    """Closed by the app when it ends."""
    keep_alive_s: float | None
    """How long an engine stays once the app has gone; None: for ever."""
    initial_model: str | None = None
    """Load this at once instead of showing the picker."""
    resume: ConversationId | None = None
    """Go on with this conversation."""
    resume_spec: LoadSpec | None = None
    """The model to load with it, where `initial_model` names none."""
