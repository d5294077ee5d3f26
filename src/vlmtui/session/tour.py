"""The tour: what a newcomer does first, in steps that are over once they were done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec

from vlmtui.domain.conversation import Media, Text, Turn
from vlmtui.errors import VlmtuiError
from vlmtui.files import write_private
from vlmtui.reading import read_json

_BYTES_MAX = 10_000
_SEARCHED_MIN = 3
"""Fewest letters of a search: with one alone it begins while the word is still being typed."""


class FileAttached(msgspec.Struct, frozen=True):
    """A file was attached to the message being written."""


class TurnAnswered(msgspec.Struct, frozen=True):
    """The model has answered this message of the user."""

    turn: Turn


class ComparisonAnswered(msgspec.Struct, frozen=True):
    """Chat template and raw prompt both have their answer."""


class RawPromptChecked(msgspec.Struct, frozen=True):
    """The raw prompt was edited and checked."""

    has_findings: bool
    """Whether something is wrong with it."""


class InspectorPartShown(msgspec.Struct, frozen=True):
    """The inspector shows a part of the prompt."""

    part: str


class FanOutAnswered(msgspec.Struct, frozen=True):
    """All answers of a fan-out have ended."""


class ConversationsFound(msgspec.Struct, frozen=True):
    """A search through the conversations has ended."""

    query: str
    count: int


class ConversationChosen(msgspec.Struct, frozen=True):
    """A stored conversation is being opened."""


Deed = (
    FileAttached
    | TurnAnswered
    | ComparisonAnswered
    | RawPromptChecked
    | InspectorPartShown
    | FanOutAnswered
    | ConversationsFound
    | ConversationChosen
)
"""Something that the user did."""


class TourStep(msgspec.Struct, frozen=True):
    """One thing to do."""

    id: str
    """Stable: the place at which an interrupted tour continues."""
    title: str
    text: str
    """How to do it; `{id}` stands for the key of that action."""
    is_done: Callable[[Deed], bool]


def _has_picture_inside(turn: Turn) -> bool:
    """Return whether a picture stands between words."""
    kinds = "".join("t" if isinstance(part, Text) else "m" for part in turn.parts if _is_filled(part))
    return "tmt" in kinds.replace("mm", "m")


def _is_filled(part: Text | Media) -> bool:
    return isinstance(part, Media) or bool(part.text.strip())


STEPS = (
    TourStep(
        "attach",
        "Attach a picture",
        "Press {attach}, type “circle”, and press Enter. The picture stands in your message as [Image #1].",
        lambda deed: isinstance(deed, FileAttached),
    ),
    TourStep(
        "ask",
        "Ask about it",
        "Type “What is in this image?” and press Enter to send it.",
        lambda deed: isinstance(deed, TurnAnswered) and bool(deed.turn.attachments),
    ),
    TourStep(
        "place",
        "Put a picture between the words",
        "Type “Tell me what” and a space. Press {attach}, type “two”, press Enter. Type “is here?” and press Enter. "
        "The model gets the picture exactly where it stands.",
        lambda deed: isinstance(deed, TurnAnswered) and _has_picture_inside(deed.turn),
    ),
    TourStep(
        "compare",
        "Compare the chat template with a raw prompt",
        "Press {compare}. It shows the prompt that the model's chat template makes; beside it is a raw prompt that "
        "you can edit. Press {comparison.send} to send both.",
        lambda deed: isinstance(deed, ComparisonAnswered),
    ),
    TourStep(
        "break",
        "Break a placeholder",
        "Press {sides.next_view}: that is the raw prompt. Press {editor.first}, then ↓, then Delete three times. "
        "The placeholder of a picture is torn now, and a finding below says so.",
        lambda deed: isinstance(deed, RawPromptChecked) and deed.has_findings,
    ),
    TourStep(
        "mend",
        "Mend it",
        "The model would read the rest of the torn token as plain text. Press {comparison.fix}, and it is whole again.",
        lambda deed: isinstance(deed, RawPromptChecked) and not deed.has_findings,
    ),
    TourStep(
        "tokens",
        "Look at the tokens",
        "Press {comparison.leave} to go back to the chat. Press {inspect}, then {inspector.tokens}: every token that "
        "the model was given, those of the pictures among them.",
        lambda deed: isinstance(deed, InspectorPartShown) and deed.part == "tokens",
    ),
    TourStep(
        "fan_out",
        "Ask several ways at once",
        "Press {inspector.close} to go back to the chat. Type “/fan temperature=0,1,2” and press Enter: three answers "
        "to your last message.",
        lambda deed: isinstance(deed, FanOutAnswered),
    ),
    TourStep(
        "search",
        "Find a conversation",
        "Press {answers.leave} to go back to the chat, and {new_chat} for an empty one. Press {conversations}, then "
        "{conversation_list.search}, and type “circle”.",
        lambda deed: isinstance(deed, ConversationsFound) and len(deed.query) >= _SEARCHED_MIN and deed.count > 0,
    ),
    TourStep(
        "come_back",
        "Come back to it",
        "Press Enter: the conversation opens as you left it. Everything is stored as you go, drafts too.",
        lambda deed: isinstance(deed, ConversationChosen),
    ),
)
END = (
    "That was the tour. {leader} shows which keys work where you are, {help} lists all of them. "
    "{quit} quits; vlmtui alone opens the app with your own conversations."
)
"""What stands where the next step would."""


class Tour:
    """Where someone is in the tour."""

    def __init__(self, file: Path, done: int = 0) -> None:
        """`file` remembers the step; `done`: how many steps are over."""
        self.done = done
        self._file = file
        self._subscribers: list[Callable[[], None]] = []

    @classmethod
    def read(cls, file: Path) -> Tour:
        """Return the tour at the step at which it was left; from the beginning if that is unknown. Blocks."""
        try:
            at = read_json(file, bytes_max=_BYTES_MAX)
        except VlmtuiError:
            return cls(file)
        return cls(file, next((number for number, step in enumerate(STEPS) if step.id == at), 0))

    def write(self) -> None:
        """Remember the step to do next; a finished tour begins again. Blocks. Raises VlmtuiError."""
        write_private(self._file, json.dumps(self.step.id if self.step is not None else "").encode() + b"\n")

    @property
    def step(self) -> TourStep | None:
        """The step to do now; None at the end."""
        return STEPS[self.done] if self.done < len(STEPS) else None

    def subscribe(self, subscriber: Callable[[], None]) -> Callable[[], None]:
        """Call `subscriber` when a step is done. Return a function that unsubscribes."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def take(self, deed: Deed) -> None:
        """Go on to the next step if this was the present one."""
        if self.step is None or not self.step.is_done(deed):
            return
        self.done += 1
        for subscriber in list(self._subscribers):
            subscriber()
