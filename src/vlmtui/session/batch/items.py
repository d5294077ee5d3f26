"""Reads the items of a batch: JSON Lines (OpenAI's batch format or a short form), or files with questions."""

from __future__ import annotations

import glob
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import msgspec

from vlmtui.domain.conversation import Modality, Role
from vlmtui.domain.generation import Failure
from vlmtui.domain.sampling import PARAMETERS, Sampling
from vlmtui.domain.template import EFFORT, TEMPLATE
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.paths import is_url, looks_like_media
from vlmtui.reading import decode_json, is_file, is_folder, unreadable
from vlmtui.session.structured import Kind, check_answer
from vlmtui.text import human_bytes, one_line, quoted

LINE_MAX = 200_000_000
"""Most bytes of a line, which may contain images as base64."""
_KINDS = {"regex": "regular expression", "schema": "JSON Schema"}
_CHUNK = 1 << 20
_ID_MAX = 512
_SHOWN_MAX = 200
_LOGPROBS_MAX = 20
_SAMPLING = frozenset({*PARAMETERS, "stop", "stop_token_ids", "skip_special_tokens"})
"""The fields of `Sampling` that an item may set."""
_NOT_SAMPLING = frozenset(
    {
        "model", "messages", "stream", "stream_options", "n", "user", "logprobs", "top_logprobs", "metadata",
        "max_completion_tokens",
    }
)  # fmt: skip
"""The other fields of an OpenAI request that are read here or have no effect."""


class MediaSource(msgspec.Struct, frozen=True, kw_only=True):
    """An image, video or audio of an item: a file, a web address, or its bytes."""

    modality: Modality
    place: str = ""
    """An absolute path, with `#page=N` for a page of a document and `#sound` for a video's audio track, or an http
    address. Hostile text."""
    encoded: str = ""
    """Its bytes as base64, instead of a `place`."""
    pixel: tuple[int, int, int] | None = None
    """The colour to replace the image's first pixel with, 0 to 255 each."""


class ItemMessage(msgspec.Struct, frozen=True):
    """A message: text and media in order."""

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
        """Raise VlmtuiError for a regular expression or a JSON Schema that can't be used."""
        self._holds(None)

    def holds(self, answer: str) -> bool:
        """Return True if an answer meets the conditions. Raises VlmtuiError if checking takes too long."""
        said = answer.strip()
        if self.exact is not None and said != self.exact.strip():
            return False
        if self.contains is not None and self.contains not in answer:
            return False
        return self._holds(answer)

    def _holds(self, answer: str | None) -> bool:
        """Return whether an answer meets the regular expression and the schema; without an answer, True if they can be
        used. Raises VlmtuiError if they can't, or if checking takes too long."""
        conditions: tuple[tuple[Kind, object, str | None], ...] = (
            ("regex", self.regex, answer),
            ("schema", self.json_schema, None if answer is None else _without_fence(answer)),
        )
        for kind, wanted, said in conditions:
            if wanted is None:
                continue
            checked = check_answer(kind, wanted, said)
            if checked.fits is None:
                raise bad_input(f"expect has a {_KINDS[kind]} that can't be checked.", detail=checked.message)
            if not checked.fits:
                return False
        return True

    @property
    def text(self) -> str:
        """The exact text, or all conditions as JSON."""
        if self.exact and self == Expectation(exact=self.exact):
            return self.exact
        return msgspec.json.encode(self).decode()


def _without_fence(answer: str) -> str:
    """Return the content of an answer that is one fenced code block, without or with `json` as its language; else the
    answer."""
    said = answer.strip()
    if not (said.startswith("```") and said.endswith("\n```")):
        return said
    language, line_break, content = said[3:-4].partition("\n")
    return content if line_break and language.strip() in ("", "json") else said


class BatchItem(msgspec.Struct, frozen=True, kw_only=True):
    line: int
    """The item's line in the file, from 1; its number if there is no file."""
    id: str
    messages: tuple[ItemMessage, ...] = ()
    raw: str | None = None
    """A raw prompt, sent as it is, instead of messages."""
    media: tuple[MediaSource, ...] = ()
    """The media of a raw prompt, in the order of their placeholders."""
    sampling: Mapping[str, object] = {}
    """Fields of `Sampling` that this item sets."""
    variables: Mapping[str, object] = {}
    """Variables of the chat template that this item sets."""
    logprobs: int | None = None
    expect: Expectation | None = None

    @property
    def sources(self) -> tuple[MediaSource, ...]:
        """The media of all messages, in order."""
        found = [part for message in self.messages for part in message.parts if isinstance(part, MediaSource)]
        return (*found, *self.media)

    @property
    def question(self) -> str:
        """The text of the last message, or the raw prompt."""
        if self.raw is not None:
            return self.raw
        return "".join(part for part in self.messages[-1].parts if isinstance(part, str))

    def without_media(self) -> BatchItem:
        """Return a copy with the question's text alone, and without the bytes of media, which take much memory."""
        messages = question_messages(self.question, ()) if self.raw is None else ()
        media = tuple(msgspec.structs.replace(source, encoded="") for source in self.sources)
        return msgspec.structs.replace(self, messages=messages, media=media)


class BadItem(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is not an item, and why."""

    line: int
    failure: Failure
    id: str | None = None
    """The item's id, if it has one and no other item has the same."""


Item = BatchItem | BadItem


def question_messages(text: str, media: tuple[MediaSource, ...], system: str = "") -> tuple[ItemMessage, ...]:
    """Return one question with its media before the text."""
    question = ItemMessage("user", (*media, text))
    return (ItemMessage("system", (system,)), question) if system else (question,)


def failed_at_line(error: VlmtuiError, line: int) -> Failure:
    """Return an error as a failure whose message begins with the line number."""
    message = f"Line {line}: {error.message}"
    return Failure.of(VlmtuiError(error.kind, message, detail=error.detail, hint=error.hint))


class _Url(msgspec.Struct):
    url: str


class _Sound(msgspec.Struct):
    data: str


class _Part(msgspec.Struct):
    """A part of a message in OpenAI's format. `type` is the name of the field that is set."""

    type: Literal["text", "image_url", "video_url", "audio_url", "input_audio"]
    text: str | None = None
    image_url: str | _Url | None = None
    video_url: str | _Url | None = None
    audio_url: str | _Url | None = None
    input_audio: _Sound | None = None


class _Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part]


class _OpenAiLine(msgspec.Struct, forbid_unknown_fields=True):
    custom_id: str
    body: dict[str, Any]
    method: Literal["POST"] = "POST"
    url: Literal["/v1/chat/completions"] = "/v1/chat/completions"
    expect: str | Expectation | None = None


class _ShortLine(msgspec.Struct, forbid_unknown_fields=True):
    id: str | int
    prompt: str | None = None
    messages: list[_Message] | None = None
    raw: str | None = None
    system: str = ""
    images: str | list[str] = []
    videos: str | list[str] = []
    audios: str | list[str] = []
    sampling: dict[str, Any] = {}
    expect: str | Expectation | None = None


class BatchReader:
    """The items of an open JSON Lines file. Iterate once; blocking. Holds one line at a time.

    base: the folder that relative paths start at. size: the file's size in bytes; 0: unknown."""

    def __init__(self, file: BinaryIO, *, base: Path, size: int = 0) -> None:
        self._file = file
        self._base = base
        self.size = size
        self.read = 0
        """Bytes read so far."""

    def __iter__(self) -> Iterator[Item]:
        number = 0
        while data := self._file.readline(LINE_MAX + 1):
            number += 1
            self.read += len(data)
            if len(data) > LINE_MAX:
                error = bad_input(f"The line is too long: the limit is {human_bytes(LINE_MAX)}.")
                yield BadItem(line=number, failure=Failure.of(error))
                while data and not data.endswith(b"\n"):
                    data = self._file.readline(_CHUNK)
                    self.read += len(data)
            elif data.strip():
                yield self._item(data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data, number)

    def _item(self, data: bytes, number: int) -> Item:
        name = None
        try:
            fields = decode_json(data, dict[str, Any])
            named = fields.get("custom_id", fields.get("id"))
            name = named if isinstance(named, str) and 0 < len(named) <= _ID_MAX else None
            if "custom_id" in fields or "body" in fields:
                return self._made(_short_form(msgspec.convert(fields, _OpenAiLine)), number)
            return self._made(msgspec.convert(fields, _ShortLine), number)
        except ValueError as error:  # msgspec's, too
            wrong = bad_input(f"It is not an item: {one_line(str(error))}.")
        except VlmtuiError as error:
            wrong = error
        return BadItem(line=number, failure=Failure.of(wrong), id=name)

    def _made(self, given: _ShortLine, line: int) -> BatchItem:
        if sum(one is not None for one in (given.prompt, given.messages, given.raw)) != 1:
            raise bad_input("An item has one of prompt, messages and raw.")
        lists: dict[Modality, str | list[str]] = {"image": given.images, "video": given.videos, "audio": given.audios}
        media = tuple(
            self._source(one, modality)
            for modality, found in lists.items()
            for one in ([found] if isinstance(found, str) else found)
        )
        messages: tuple[ItemMessage, ...] = ()
        if given.messages is not None:
            if media:
                raise bad_input("With messages, images, videos and sounds are parts of a message.")
            messages = self._messages(given.messages)
        elif given.prompt is not None:
            messages = question_messages(given.prompt, media, given.system)
        values = dict(given.sampling)
        variables = _variables_of(values)
        sampling, logprobs = _sampling_of(values)
        if not 0 < len(id := str(given.id)) <= _ID_MAX:
            raise bad_input(f"The id has {len(id)} characters; it has 1 to {_ID_MAX}.")
        expect = Expectation(exact=given.expect) if isinstance(given.expect, str) else given.expect
        if expect is not None:
            expect.require_valid()
        return BatchItem(
            line=line,
            id=id,
            messages=messages,
            raw=given.raw,
            media=media if given.raw is not None else (),
            sampling=sampling,
            variables=variables,
            logprobs=logprobs,
            expect=expect,
        )

    def _messages(self, messages: Sequence[_Message]) -> tuple[ItemMessage, ...]:
        if not messages:
            raise bad_input("An item has at least one message.")
        found = []
        for one in messages:
            role = "system" if one.role == "developer" else one.role
            parts = (one.content,) if isinstance(one.content, str) else tuple(map(self._part, one.content))
            found.append(ItemMessage(role, parts))
        return tuple(found)

    def _part(self, part: _Part) -> str | MediaSource:
        value = getattr(part, part.type)
        if value is None:
            raise bad_input(f"A part of type {part.type} has no {part.type}.")
        if part.type == "text":
            return str(value)
        if part.type == "input_audio":
            return MediaSource(modality="audio", encoded=value.data)
        modality = cast(Modality, part.type.removesuffix("_url"))
        return self._source(value.url if isinstance(value, _Url) else value, modality)

    def _source(self, value: str, modality: Modality) -> MediaSource:
        """Return the medium that a path, a web address or a data URL names."""
        if value.startswith("data:"):
            head, comma, encoded = value.partition(",")
            if not comma or not head.endswith(";base64"):
                raise bad_input(f"Can't read the data URL of the {modality}: it is not base64.")
            return MediaSource(modality=modality, encoded=encoded)
        if is_url(value):
            return MediaSource(modality=modality, place=value.strip())
        if not value or "\0" in value:
            raise bad_input(f"{quoted(value)} is not a path.")
        path = value.removeprefix("file://")
        return MediaSource(modality=modality, place=os.path.join(self._base, os.path.expanduser(path)))  # noqa: PTH111, PTH118  (a path may be any text)


def _short_form(given: _OpenAiLine) -> _ShortLine:
    body = given.body
    if body.get("n") not in (None, 1):
        raise bad_input("n is more than 1: an item has one answer.", hint="Write the item n times, with other seeds.")
    sampling = {name: value for name, value in body.items() if name not in _NOT_SAMPLING}
    if (most := body.get("max_completion_tokens")) is not None:
        sampling["max_tokens"] = most
    if body.get("logprobs"):
        sampling["logprobs"] = body.get("top_logprobs") or 0
    messages = msgspec.convert(body.get("messages"), list[_Message])
    return _ShortLine(id=given.custom_id, messages=messages, sampling=sampling, expect=given.expect)


def _variables_of(values: dict[str, Any]) -> dict[str, object]:
    """Remove the template's variables from the values of an item, and return them. Raises VlmtuiError."""
    variables = values.pop(TEMPLATE, None) or {}
    if not isinstance(variables, dict):
        raise bad_input(f"{TEMPLATE} must be an object: a value for each variable of the chat template.")
    effort = values.pop(EFFORT, None)
    return variables if effort is None else {EFFORT: effort, **variables}


def _sampling_of(values: Mapping[str, Any]) -> tuple[dict[str, object], int | None]:
    """Return the fields of `Sampling`, and the number of log-probabilities. Raises VlmtuiError and ValueError."""
    given = {name: value for name, value in values.items() if value is not None}
    logprobs = given.pop("logprobs", None)
    if logprobs is not None and (type(logprobs) is not int or not 0 <= logprobs <= _LOGPROBS_MAX):
        raise bad_input(f"logprobs must lie between 0 and {_LOGPROBS_MAX}.")
    if unknown := [name for name in given if name not in _SAMPLING]:
        raise bad_input(
            f"Unknown sampling parameter {quoted(unknown[0])}.",
            hint=f"Known: {', '.join((*_SAMPLING, TEMPLATE, EFFORT))}.",
        )
    if isinstance(given.get("stop"), str):
        given["stop"] = [given["stop"]]
    sampling = msgspec.convert(given, Sampling)
    if problem := sampling.problem():
        raise bad_input(f"{problem}.")
    return {name: getattr(sampling, name) for name in given}, logprobs


def items_over_files(patterns: Sequence[tuple[Modality, str]], question: str) -> Iterator[BatchItem]:
    """Return an item for each file, with its name as the id. Raises VlmtuiError if a pattern matches no file."""
    found: list[tuple[Modality, str]] = []
    for modality, pattern in patterns:
        names = list(_files(pattern))
        if not names:
            _require_listed(Path(os.path.expanduser(pattern)))  # noqa: PTH111  (Path's fails on ~nobody)
            raise bad_input(f"There is no {modality} in {one_line(pattern)[:_SHOWN_MAX]}.")
        found += [(modality, name) for name in names]
    return (_item_about(number, *one, question) for number, one in enumerate(found, 1))


def _item_about(number: int, modality: Modality, name: str, question: str) -> BatchItem:
    place = name if is_url(name) else os.path.abspath(name)  # noqa: PTH100  (links must stay)
    return BatchItem(
        line=number,
        id=os.fsencode(name).decode("utf-8", "backslashreplace"),
        messages=question_messages(question, (MediaSource(modality=modality, place=place),)),
    )


def repeated_items(
    count: int,
    source: MediaSource,
    questions: Sequence[str],
    *,
    repeat_probability: float | None = None,
    seed: int | None = None,
) -> Iterator[BatchItem]:
    """Yield `count` items about one medium, which use the questions in turn (`--num-prompts`, after vLLM's example
    script).

    With `repeat_probability`, an item has the same image as the item before it with that probability; otherwise the
    image's first pixel is changed to (number // 65536, number // 256, number % 256), by the item's number. The same
    `seed` makes the same choices; item N is sampled with seed + N, since equal items would get equal answers."""
    choose = random.Random(seed if seed is not None else 0)
    width = len(str(count - 1))
    for number in range(count):
        if repeat_probability is not None and choose.random() >= repeat_probability:
            pixel = (number // 65536 % 256, number // 256 % 256, number % 256)
            source = MediaSource(modality=source.modality, place=source.place, pixel=pixel)
        yield BatchItem(
            line=number + 1,
            id=f"prompt-{number:0{width}}",
            messages=question_messages(questions[number % len(questions)], (source,)),
            sampling={} if seed is None else {"seed": seed + number},
        )


def _require_listed(path: Path) -> None:
    """Raise VlmtuiError if the system does not let a folder be listed, or refuses the path. A pattern passes."""
    try:
        next(path.iterdir(), None) if is_folder(path) else path.stat()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def _files(pattern: str) -> Iterator[str]:
    """Yield the file of this name, or the media files that are in this folder or match this pattern, sorted. Yield a
    web address unchanged."""
    path = Path(os.path.expanduser(pattern))  # noqa: PTH111  (Path's fails on ~nobody)
    if is_url(pattern) or is_file(path):
        yield pattern if is_url(pattern) else str(path)
        return
    wanted = str(path / "*") if is_folder(path) else str(path)
    for name in sorted(glob.iglob(wanted, recursive=True)):  # noqa: PTH207  (a pattern may be absolute)
        if looks_like_media(Path(name)):
            yield name
