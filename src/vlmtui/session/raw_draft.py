"""The raw prompt being written in a conversation, and raw prompts saved by name."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import write_private
from vlmtui.paths import Paths
from vlmtui.reading import read_struct, read_whole
from vlmtui.session.persistence import LiveConversation

_NAME = re.compile(r"[^\s./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,79}")
_BYTES_MAX = 10_000_000


@dataclass(eq=False, slots=True)
class RawDraft:
    """The text of the raw prompt's editor. It outlives the screen, so that nothing typed is lost."""

    text: str = ""
    filled: str = ""
    """The text that the editor was last filled with."""
    origin: str = ""
    """Where that came from, for people: `raw template`, `chat template`; empty: nowhere yet, or a saved prompt."""
    saved_as: str = ""
    """The name of the saved prompt that it was loaded from, or saved as; empty: none."""

    @property
    def is_edited(self) -> bool:
        return self.text != self.filled

    def fill(self, text: str, origin: str = "", *, saved_as: str = "") -> None:
        """Replace the text."""
        self.text = self.filled = text
        self.origin, self.saved_as = origin, saved_as


def draft_file(paths: Paths, conversation: str) -> Path:
    """Return the file of a stored conversation's raw prompt."""
    return paths.state / "raw" / f"{conversation}.json"


class RawDrafts:
    """The raw prompt drafts of the conversations, one file each."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._known: dict[LiveConversation, RawDraft] = {}

    async def of(self, conversation: LiveConversation) -> RawDraft:
        """Return the draft from this or an earlier session; otherwise an empty one."""
        draft = self._known.get(conversation)
        if draft is None:
            draft = await asyncio.to_thread(_read_of, self._paths, conversation.id) or RawDraft()
            draft = self._known.setdefault(conversation, draft)
        return draft

    async def write(self, conversation: LiveConversation) -> None:
        """Store the draft, if its conversation is stored. Raises VlmtuiError if that fails."""
        draft, id = self._known.get(conversation), conversation.id
        if draft is not None and id is not None:
            kept = _DraftFile(draft.text, draft.filled, draft.origin, draft.saved_as)
            await asyncio.to_thread(write_private, draft_file(self._paths, id), msgspec.json.encode(kept))


def read_draft(paths: Paths, conversation: str) -> RawDraft | None:
    """Return the draft of a stored conversation; None if there is none or it cannot be read. Blocking."""
    try:
        kept = read_struct(draft_file(paths, conversation), _DraftFile, bytes_max=_BYTES_MAX)
    except VlmtuiError:
        return None
    return RawDraft(kept.text, kept.filled, kept.origin, kept.saved_as)


def _read_of(paths: Paths, conversation: str | None) -> RawDraft | None:
    return read_draft(paths, conversation) if conversation is not None else None


class _DraftFile(msgspec.Struct):
    text: str
    filled: str
    origin: str
    saved_as: str = ""


class SavedPrompts:
    """Raw prompts of one family as files `prompts/FAMILY/NAME.txt` in the config folder."""

    def __init__(self, paths: Paths, family: str) -> None:
        self._folder = paths.config / "prompts" / (family if _NAME.fullmatch(family) else "unlisted")

    def names(self) -> list[str]:
        """Return the names of all saved prompts, sorted."""
        try:
            found = [file.stem for file in self._folder.iterdir() if file.suffix == ".txt" and file.is_file()]
        except OSError:
            return []
        return sorted((name for name in found if _NAME.fullmatch(name)), key=str.casefold)

    def save(self, name: str, text: str) -> str:
        """Save the text atomically, replacing an older prompt with this name. Return the name as saved.

        Raises VlmtuiError for an invalid name, and if the file cannot be written.
        """
        name = name.strip()
        if not _NAME.fullmatch(name) or len(os.fsencode(name)) > 200:
            hint = "A name has up to 80 characters, no slashes, and does not begin with a dot."
            raise bad_input("Not a valid name for a prompt.", hint=hint)
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise bad_input(
                "Can't save the prompt: it contains characters that are not text.", detail=str(error)
            ) from error
        write_private(self._file(name), data, durable=True)
        return name

    def load(self, name: str) -> str:
        """Return the saved text. Raises VlmtuiError if it is gone or not text."""
        data = read_whole(self._file(name), bytes_max=_BYTES_MAX)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise bad_input("The saved prompt is not UTF-8 text.", detail=str(error)) from error

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.txt"
