"""The data that the store reads and writes, frozen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NewType

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Part, Role, Turn
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import FinishReason, Timings, Usage
from vlmtui.domain.sampling import Sampling
from vlmtui.domain.times import LAST_MS

ConversationId = NewType("ConversationId", str)
"""13 characters that sort by the time of making."""
TurnId = NewType("TurnId", int)
"""Unique among all turns of one database, never used again; later turns have greater ones."""
TurnState = Literal["running", "complete", "stopped", "failed", "interrupted"]
"""Only answers are anything but `complete`. `interrupted`: the process that wrote it died."""
EndState = Literal["complete", "stopped", "failed", "interrupted"]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=LAST_MS)]
"""A time: since 1970, UTC."""
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A number that every reader of JSON can hold."""


class GenerationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that made an answer: enough to ask for it again."""

    model: str
    """A repository id or a local folder."""
    revision: str | None = None
    family: str | None = None
    record_sha256: str = ""
    """Hex digest of the family's record as it was."""
    engine: str = ""
    """What the engine is called, `vLLM`; empty while none was loaded."""
    engine_version: str = ""
    mode: Literal["chat", "raw"] = "chat"
    prompt: str = ""
    """The prompt text as the model was given it; empty until the engine has said so."""
    sampling: Sampling = msgspec.field(default_factory=Sampling)
    seed: int | None = None
    """The seed that was used, where `sampling` left it open."""
    attachments: tuple[str, ...] = ()
    """The SHA-256 of every image and video, in the order that the model was given them."""
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    """The engine's arguments as finally used."""
    system_prompt: str = ""
    request_id: str = ""
    """By which the engine knows it, as long as it keeps it."""
    spec: LoadSpec | None = None
    """Which engine was asked."""


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer cost and how it ended."""

    usage: Usage = msgspec.field(default_factory=Usage)
    timings: Timings = msgspec.field(default_factory=Timings)
    finish_reason: FinishReason | None = None
    stop: str | None = None
    """The stop string, or the text of the stop token, that ended it."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer ended."""

    state: EndState
    statistics: Statistics | None = None
    failure: Failure | None = None


class ConversationData(msgspec.Struct, frozen=True, kw_only=True):
    """What table and document both have of a conversation, each field a column."""

    title: str
    model: str
    """What the user calls the model."""
    created_ms: Milliseconds
    updated_ms: Milliseconds
    """When a turn was last added or ended; greater than that of every conversation changed before."""
    pinned: bool = False


class ConversationRecord(ConversationData, frozen=True, kw_only=True):
    """A conversation without its turns."""

    id: ConversationId
    deleted_ms: Milliseconds | None = None
    """Set: out of sight, until it is undeleted or purged."""
    length: int = 0
    """Turns of the branch that is shown."""
    leaf: TurnId | None = None
    """The last turn of the branch that is shown: the next turn's parent."""


class TurnData(msgspec.Struct, frozen=True, kw_only=True):
    """What table and document both have of a turn, each field but `parts` a column of its name."""

    role: Role
    parts: tuple[Part, ...]
    """Of a text alone the table has it in the column `text` only."""
    state: TurnState
    created_ms: Milliseconds
    ended_ms: Milliseconds | None = None
    tokens: Natural = 0
    """Tokens of the answer so far."""
    left_out: bool = False
    """The user's turn is sent without its attachments from now on."""
    statistics: Statistics | None = None
    failure: Failure | None = None
    generation: GenerationRecord | None = msgspec.field(default=None, name="recipe")
    """How an answer was made; `recipe` in database and documents, as versions before this one called it."""


class StoredTurn(TurnData, frozen=True, kw_only=True):
    """One turn of the tree."""

    id: TurnId
    conversation: ConversationId
    parent: TurnId | None
    depth: Natural
    """How many turns stand above it."""
    active_child: TurnId | None = None
    position: int = 1
    """Which one of its siblings it is, from 1."""
    siblings: int = 1
    """How many turns have this parent, itself counted."""

    @property
    def turn(self) -> Turn:
        """What was said, as every other package takes it."""
        return Turn(self.role, self.parts)

    @property
    def text(self) -> str:
        return self.turn.text


class Snippet(msgspec.Struct, frozen=True):
    """Some words around what was found. Hostile text."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()
    """Start and end, in characters, of each word that was found."""


class ListEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation of the list; of a search, with its newest turn that has all words (None: the title has them)."""

    conversation: ConversationRecord
    draft: str = ""
    """The beginning of what is written in it and not sent yet."""
    turn: TurnId | None = None
    snippet: Snippet | None = None


class Pictures(msgspec.Struct, frozen=True, kw_only=True):
    """The images and videos of a conversation, all branches together."""

    count: int = 0
    """Each file counts once."""
    first: Attachment | None = None


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that a search found."""

    conversation: ConversationId
    turn: TurnId
    role: Role
    snippet: Snippet


class StoredDraft(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed and not sent."""

    text: str = ""
    attachments: dict[int, Attachment] = msgspec.field(default_factory=dict)
    """By the number that stands for it in the text."""


class StoredComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A document that belongs to a turn: the outcome of a comparison run."""

    id: int
    turn: TurnId
    created_ms: Milliseconds
    document: object


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged database was set aside, and what could be read of it was copied over."""

    reason: str
    set_aside: Path
    """The damaged file; it is never looked at again."""
    conversations: int
    """Kept."""
    turns: int
    """Kept."""
    turns_lost: int | None
    """At most so many; None where that cannot be told."""

    @property
    def summary(self) -> str:
        """For a person: what was kept, what was lost, and where the old file is."""
        lost = "unknown how many lost" if self.turns_lost is None else f"at most {self.turns_lost} lost"
        kept = f"{self.turns} turns in {self.conversations} conversations were saved, {lost}"
        return f"The conversation database was damaged ({self.reason}). {kept}. The damaged file is {self.set_aside}."
