"""The records that the store reads and writes; all are frozen."""

from __future__ import annotations

from typing import Annotated, Literal, NewType

import msgspec

from vlmtui.domain.conversation import Attachment, Part, Role, Turn
from vlmtui.domain.engine import DEFAULT_BACKEND, BackendName, PinnedVersion
from vlmtui.domain.generation import Failure, FinishReason, Timings, Usage
from vlmtui.domain.sampling import Sampling
from vlmtui.domain.thinking import ThinkingTags, Thought
from vlmtui.domain.times import LAST_MS

ConversationId = NewType("ConversationId", str)
"""13 characters that sort by creation time."""
TurnId = NewType("TurnId", int)
"""Unique within a database and never reused; later turns have greater ids."""
TurnState = Literal["running", "complete", "stopped", "failed", "interrupted"]
"""Only answers can be other than `complete`. `interrupted`: the process that wrote it died."""
EndState = Literal["complete", "stopped", "failed", "interrupted"]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=LAST_MS)]
"""Milliseconds since 1970-01-01 UTC."""
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""An integer within the range that every JSON parser supports."""


class StoredModel(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the model that answered. A stored conversation contains nothing else that says which model to
    load."""

    name: str
    """Its display name."""
    model: str
    """A repository id, a local folder, or a server's name for it."""
    family: str | None = None
    revision: str | None = None
    backend: BackendName = DEFAULT_BACKEND
    pinned: PinnedVersion | None = None
    server: str = ""
    """The address of the server; empty: the model ran on the machine of the conversation."""


class GenerationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determined an answer: enough to repeat the request."""

    model: str
    """A repository id or a local folder."""
    revision: str | None = None
    family: str | None = None
    record_sha256: str = ""
    """Hex SHA-256 of the model family's TOML record at that time."""
    engine: str = ""
    """The engine's name, `vLLM`; empty if none was loaded."""
    engine_version: str = ""
    mode: Literal["chat", "raw"] = "chat"
    prompt: str = ""
    """The prompt text as the model got it; empty until the engine reports it."""
    sampling: Sampling = msgspec.field(default_factory=Sampling)
    seed: int | None = None
    """The seed used, if `sampling` sets none."""
    attachments: tuple[str, ...] = ()
    """SHA-256 of every attachment, in prompt order."""
    media_tokens: tuple[Natural | None, ...] = ()
    """The prompt's tokens of each of `attachments`, None if unknown; empty until the engine reports the prompt."""
    system_tokens: Natural = 0
    """The prompt's tokens up to the end of the system prompt; 0 if unknown."""
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    """The engine arguments actually used."""
    system_prompt: str = ""
    request_id: str = ""
    """The request's id in the engine, valid while the engine keeps the answer."""
    thinking: ThinkingTags | None = None
    """The tags around the reasoning of the family's models; None: the common tags."""
    made_by: StoredModel | None = None
    """The model; None: not recorded."""
    adapter: str = ""
    """The folder of the LoRA adapter that answered; empty: none, or the engine's own."""
    imported: bool = False
    """True if the answer came with an imported conversation: then only `made_by` and the sampling are used."""


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts and timings of an answer, and how it ended."""

    usage: Usage = msgspec.field(default_factory=Usage)
    timings: Timings = msgspec.field(default_factory=Timings)
    finish_reason: FinishReason | None = None
    stop: str | None = None
    """The stop string, or the text of the stop token, that ended it."""
    thought: Thought | None = None
    """The answer's reasoning, if it is complete."""


class ConversationData(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that a conversation has both in its table and in documents. Each field is a column."""

    title: str
    model: str
    """The model's display name."""
    created_ms: Milliseconds
    updated_ms: Milliseconds
    """When a turn was last added or ended; later than that of any conversation changed earlier."""
    pinned: bool = False


class ConversationRecord(ConversationData, frozen=True, kw_only=True):
    """A conversation without its turns."""

    id: ConversationId
    imported: bool = False
    """True if it came from a document and no message was added here since."""
    deleted_ms: Milliseconds | None = None
    """Set: hidden until it is restored or erased."""
    length: int = 0
    """Number of turns in the active branch."""
    active_root: TurnId | None = None
    """The first turn of the active branch."""
    leaf: TurnId | None = None
    """Its last turn: the parent of the next turn."""

    @property
    def messages(self) -> int:
        """The number of messages in the active branch; a message and its answer count as one."""
        return (self.length + 1) // 2


class TurnData(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that a turn has both in its table and in documents. Each field except `parts` is a column of the same
    name."""

    role: Role
    parts: tuple[Part, ...]
    """A single text is stored in the column `text` only."""
    state: TurnState
    created_ms: Milliseconds
    ended_ms: Milliseconds | None = None
    tokens: Natural = 0
    """Number of tokens of the answer so far."""
    left_out: bool = False
    """True if later prompts include this user turn without its attachments."""
    used: Sampling | None = None
    """The sampling that the engine used, every value resolved; None: not recorded."""
    statistics: Statistics | None = None
    failure: Failure | None = None
    generation: GenerationRecord | None = msgspec.field(default=None, name="recipe")
    """The record of how an answer was made; called `recipe` in tables and documents."""


class AnswerData(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored with an answer's text. Its fields mean the same as those of `TurnData` with the same names."""

    state: TurnState = "running"
    tokens: int = 0
    used: Sampling | None = None
    statistics: Statistics | None = None
    failure: Failure | None = None
    generation: GenerationRecord | None = None


class StoredTurn(TurnData, frozen=True, kw_only=True):
    """One turn of the tree."""

    id: TurnId
    conversation: ConversationId
    parent: TurnId | None
    depth: Natural
    """Number of ancestors."""
    active_child: TurnId | None = None
    mode: Literal["chat", "raw"] = "chat"
    """How the answer's prompt was built; the same as in `generation`."""
    position: int = 1
    """The turn's position among its siblings, from 1."""
    siblings: int = 1
    """Number of turns with the same parent, including this one."""

    @property
    def turn(self) -> Turn:
        """The turn as the domain type."""
        return Turn(self.role, self.parts)

    @property
    def text(self) -> str:
        return self.turn.text


class Snippet(msgspec.Struct, frozen=True):
    """Text around a search match. Hostile text."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()
    """Start and end, in characters, of each matched word."""


class ListEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in the list. A search result also has its newest matching turn; None: the title matches."""

    conversation: ConversationRecord
    draft: str = ""
    """The beginning of its unsent draft."""
    attachments: int = 0
    """Number of distinct files, in all branches."""
    turn: TurnId | None = None
    snippet: Snippet | None = None

    @property
    def id(self) -> ConversationId:
        return self.conversation.id


class StoredDraft(msgspec.Struct, frozen=True, kw_only=True):
    """Typed text that is not sent yet, and its attachments."""

    text: str = ""
    attachments: dict[int, Attachment] = msgspec.field(default_factory=dict)
    """Attachments by their number in the text."""


class StoredComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison document stored with a turn."""

    id: int
    turn: TurnId
    created_ms: Milliseconds
    document: object
