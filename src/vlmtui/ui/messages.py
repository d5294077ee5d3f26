"""Messages that several screens handle."""

from __future__ import annotations

from textual.message import Message


class EngineChanged(Message):
    """The engine's state or load progress changed."""

    bubble = False


class EngineLogGrew(Message):
    """`AppEngines.log` has new lines. Posted at most ten times a second."""

    bubble = False
