"""The items of a batch as they are read, before their media are opened, and their expected answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.conversation import Role
from vlmtui.domain.failure import Failure
from vlmtui.errors import VlmtuiError, bad_input


class MediaSource(msgspec.Struct, frozen=True, kw_only=True):
    """An image, a video or a sound that an item names: a file, a web address, or its bytes."""

    modality: Modality
    place: str = ""
    """An absolute path, with `#page=N` where the file has pages and `#sound` for a video's audio
    track, or an http address. Hostile text."""
    encoded: str = ""
    """Base64 of its bytes, instead of a place."""
    pixel: tuple[int, int, int] | None = None
    """Replace the first pixel of the image by this colour, 0 to 255 each."""


class ItemMessage(msgspec.Struct, frozen=True):
    """One message: text and media in order."""

    role: Role
    parts: tuple[str | MediaSource, ...]


class Expectation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Conditions on the answer; all that are set must hold."""

    exact: str | None = None
    """The answer without surrounding white space."""
    contains: str | None = None
    regex: str | None = None
    """Found anywhere in the answer."""
    json_schema: dict[str, object] | None = None
    """A JSON Schema that the answer, read as JSON, satisfies."""

    def require_valid(self) -> None:
        """Raise VlmtuiError for a regular expression or a JSON Schema that is none."""
        if self.regex is not None:
            try:
                re.compile(self.regex)
            except (re.error, OverflowError, RecursionError) as error:
                raise bad_input("expect has an invalid regular expression.", detail=str(error)) from error
        if self.json_schema is not None:
            from jsonschema import Draft202012Validator, SchemaError  # slow to import, and rarely needed

            try:
                Draft202012Validator.check_schema(self.json_schema)
            except SchemaError as error:
                raise bad_input("expect has an invalid JSON Schema.", detail=error.message) from error

    def holds(self, answer: str) -> bool:
        """Check an answer. None satisfies a schema that refers to one elsewhere."""
        said = answer.strip()
        if self.exact is not None and said != self.exact.strip():
            return False
        if self.contains is not None and self.contains not in answer:
            return False
        if self.regex is not None and re.search(self.regex, answer) is None:
            return False
        return self.json_schema is None or _satisfies(said, self.json_schema)

    @property
    def text(self) -> str:
        """The expectation for people: the exact text, or all of it as JSON."""
        if self.exact and self == Expectation(exact=self.exact):
            return self.exact
        return msgspec.json.encode(self).decode()


class BatchItem(msgspec.Struct, frozen=True, kw_only=True):
    """One question of a batch."""

    line: int
    """Where it begins in the file, from 1; of other inputs, its number."""
    id: str
    messages: tuple[ItemMessage, ...] = ()
    raw: str | None = None
    """A raw prompt, sent as it is, instead of messages."""
    media: tuple[MediaSource, ...] = ()
    """The media of a raw prompt, in the order of their placeholders."""
    sampling: Mapping[str, object] = {}
    """Fields of `Sampling` that this item sets."""
    logprobs: int | None = None
    expect: Expectation | None = None

    @property
    def sources(self) -> tuple[MediaSource, ...]:
        """All its media, in order."""
        found = [part for message in self.messages for part in message.parts if isinstance(part, MediaSource)]
        return (*found, *self.media)

    @property
    def question(self) -> str:
        """The text of the last message, or the raw prompt."""
        if self.raw is not None:
            return self.raw
        return "".join(part for part in self.messages[-1].parts if isinstance(part, str))

    def without_media(self) -> BatchItem:
        """Return the item with its question alone: media in its line take much memory."""
        messages = question_messages(self.question, ()) if self.raw is None else ()
        return msgspec.structs.replace(self, messages=messages, media=())


class BadItem(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is not an item, and why."""

    line: int
    failure: Failure
    id: str | None = None
    """Its id, if it has one that no other item has."""


Item = BatchItem | BadItem


def question_messages(text: str, media: tuple[MediaSource, ...], system: str = "") -> tuple[ItemMessage, ...]:
    """Return one question with its media before the text."""
    question = ItemMessage("user", (*media, text))
    return (ItemMessage("system", (system,)), question) if system else (question,)


def failed_at_line(error: VlmtuiError, line: int) -> Failure:
    """Return the failure with its line number at the front."""
    message = f"Line {line}: {error.message}"
    return Failure.of(VlmtuiError(error.kind, message, detail=error.detail, hint=error.hint))


def _satisfies(answer: str, schema: dict[str, object]) -> bool:
    from jsonschema import Draft202012Validator
    from referencing import Registry  # an empty one: a schema never makes us fetch another
    from referencing.exceptions import Unresolvable

    fenced = re.fullmatch(r"```(?:json)?\s*\n(.*)\n```", answer, re.DOTALL)
    try:
        value = json.loads(fenced[1] if fenced else answer)
        return bool(Draft202012Validator(schema, registry=Registry()).is_valid(value))
    except (ValueError, RecursionError, ArithmeticError, Unresolvable):
        return False
