"""Messages that more than one screen handles. They live here so that no screen has to import the app."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message


@dataclass
class EngineChanged(Message):
    """The engine controller changed: a load got further, became ready or failed, or the engine died."""

    bubble = False


@dataclass
class EngineLogGrew(Message):
    """There are new lines in `EngineController.log`. Comes at most ten times a second."""

    bubble = False
