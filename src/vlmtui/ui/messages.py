"""Messages that several screens handle."""

from __future__ import annotations

from textual.message import Message


class EngineChanged(Message):
    """The engine controller changed: load progress, ready, failed, or the engine died."""

    bubble = False


class EngineLogGrew(Message):
    """`AppEngines.log` has new lines. Posted at most ten times a second."""

    bubble = False
