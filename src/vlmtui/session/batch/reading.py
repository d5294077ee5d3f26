"""Where items come from: JSON Lines (OpenAI's batch format and a short form), files with a question, or one medium
asked about N times. A million lines are read in bounded memory."""

from __future__ import annotations

import glob
import hashlib
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.conversation import Role
from vlmtui.domain.parameters import PARAMETERS
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.paths import looks_like_media
from vlmtui.media.web_address import is_url
from vlmtui.reading import decode_json
from vlmtui.session.batch.item import (
    BadItem,
    BatchItem,
    Expectation,
    Item,
    ItemMessage,
    MediaSource,
    failed_at_line,
    question_messages,
    unknown_field,
)
from vlmtui.text import human_bytes, one_line, quoted

LINE_MAX = 200_000_000
"""Most bytes of a line; pictures may be in it as base64."""
_CHUNK = 1 << 20
_ID_MAX = 512
_LOGPROBS_MAX = 20
_MODALITIES: tuple[Modality, ...] = ("image", "video", "audio")
_MEDIA = tuple(name for modality in _MODALITIES for name in (f"{modality}s", modality))
_SHORT = ("id", *_MEDIA, "prompt", "system", "messages", "raw", "sampling", "expect")
_OPENAI = ("custom_id", "method", "url", "body", "expect")
_ROLES = ("system", "developer", "user", "assistant")
_ENDPOINTS = ("/v1/chat/completions", "/chat/completions")
_STOPS: dict[str, Any] = {"stop": tuple[str, ...], "stop_token_ids": tuple[int, ...], "skip_special_tokens": bool}
_ALIASES = {"max_completion_tokens": "max_tokens"}
_PASSED_OVER = ("model", "messages", "stream", "stream_options", "n", "user", "logprobs", "top_logprobs", "metadata")
QUESTIONS: dict[Modality, tuple[str, ...]] = {
    "image": (
        "What is the content of this image?",
        "Describe the content of this image in detail.",
        "What's in the image?",
        "Where is this image taken?",
    ),
    "video": ("Why is this video funny?",),
}
"""The questions of vLLM's example `vision_language.py`."""


class BatchReader:
    """The items of an open file of JSON Lines. Iterate once; blocking, and no more than one line is held.

    base: the folder that relative file names start at. size: the file's bytes, 0 if unknown.
    """

    def __init__(self, file: BinaryIO, *, base: Path, size: int = 0) -> None:
        self._file = file
        self._base = base
        self.size = size
        self.read = 0
        """Bytes read so far."""
        self.models: set[str] = set()
        """The models that lines of the OpenAI format name, a few of them. They are not asked."""

    def __iter__(self) -> Iterator[Item]:
        number = 0
        while data := self._file.readline(LINE_MAX + 1):
            number += 1
            self.read += len(data)
            if len(data) > LINE_MAX:
                error = bad_input(f"The line is too long: the limit is {human_bytes(LINE_MAX)}.")
                yield _bad(error, number, data[:_CHUNK])
                while data and not data.endswith(b"\n"):
                    data = self._file.readline(_CHUNK)
                    self.read += len(data)
            elif data.strip():
                yield self._item(data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data, number)

    def _item(self, data: bytes, number: int) -> Item:
        try:
            fields = decode_json(data, dict[str, Any])
        except ValueError as error:
            return _bad(bad_input("Not a JSON object.", detail=str(error)), number, data)
        try:
            is_openai = "custom_id" in fields or "body" in fields
            return self._openai(fields, number) if is_openai else self._short(fields, number)
        except VlmtuiError as error:
            named = fields.get("custom_id", fields.get("id"))
            return _bad(error, number, data, named if isinstance(named, str) and 0 < len(named) <= _ID_MAX else None)

    def _openai(self, fields: Mapping[str, Any], line: int) -> BatchItem:
        _require_known(fields, _OPENAI)
        method, url, body = fields.get("method", "POST"), fields.get("url", _ENDPOINTS[0]), fields.get("body")
        if method != "POST" or url not in _ENDPOINTS:
            raise bad_input(f"Only POST {_ENDPOINTS[0]} is answered, not {quoted(f'{method} {url}')}.")
        if not isinstance(body, dict):
            raise bad_input("The field body is missing.")
        if body.get("n") not in (None, 1):
            hint = "Write the item n times, with other seeds."
            raise bad_input("n is more than 1: an item has one answer.", hint=hint)
        if isinstance(model := body.get("model"), str) and len(self.models) < 8:
            self.models.add(model)
        sampling, _ = read_sampling({name: value for name, value in body.items() if name not in _PASSED_OVER})
        logprobs = read_sampling({"logprobs": body.get("top_logprobs") or 0})[1] if body.get("logprobs") else None
        return BatchItem(
            line=line,
            id=_id(fields.get("custom_id"), "custom_id"),
            messages=tuple(self._messages(body.get("messages"))),
            sampling=sampling,
            logprobs=logprobs,
            expect=_expectation(fields.get("expect")),
        )

    def _short(self, fields: Mapping[str, Any], line: int) -> BatchItem:
        _require_known(fields, _SHORT)
        given = [name for name in ("prompt", "messages", "raw") if fields.get(name) is not None]
        if len(given) != 1:
            found = " and ".join(given) if given else "none of them"
            raise bad_input(f"An item has one of prompt, messages and raw, not {found}.")
        media = tuple(self._media(fields))
        messages: tuple[ItemMessage, ...] = ()
        if given == ["messages"]:
            if media:
                raise bad_input("With messages, images, videos and sounds are parts of a message.")
            messages = tuple(self._messages(fields["messages"]))
        elif given == ["prompt"]:
            system = _text(fields.get("system") or "", "system")
            messages = question_messages(_text(fields["prompt"], "prompt"), media, system)
        sampling = fields.get("sampling") or {}
        if not isinstance(sampling, dict):
            raise bad_input('The field sampling is an object, such as {"temperature": 0.7}.')
        numbers, logprobs = read_sampling(sampling)
        return BatchItem(
            line=line,
            id=_id(fields.get("id"), "id"),
            messages=messages,
            raw=_text(fields["raw"], "raw") if given == ["raw"] else None,
            media=media if given == ["raw"] else (),
            sampling=numbers,
            logprobs=logprobs,
            expect=_expectation(fields.get("expect")),
        )

    def _media(self, fields: Mapping[str, Any]) -> Iterator[MediaSource]:
        for modality in _MODALITIES:
            for name in (f"{modality}s", modality):
                value = fields.get(name)
                for one in value if isinstance(value, list) else [] if value is None else [value]:
                    yield self._source(one, modality)

    def _source(self, value: object, modality: Modality) -> MediaSource:
        """Return the medium that a path, a web address or a data URL names."""
        if not isinstance(value, str) or not value:
            raise bad_input(f"The {modality} is a path, a web address or a data URL, not {quoted(repr(value))}.")
        if value.startswith("data:"):
            head, comma, encoded = value.partition(",")
            if not comma or not head.endswith(";base64"):
                raise bad_input(f"Can't read the data URL of the {modality}: it is not base64.")
            if head.startswith("data:video/jpeg"):
                raise bad_input("A video as a list of frames can't be read.", hint="Give the video file.")
            return MediaSource(modality=modality, encoded=encoded)
        if is_url(value):
            return MediaSource(modality=modality, place=value.strip())
        if "\0" in value:
            raise bad_input(f"{quoted(value)} is not a path.")
        path = value.removeprefix("file://")
        return MediaSource(modality=modality, place=os.path.join(self._base, os.path.expanduser(path)))  # noqa: PTH111, PTH118  (a path may be any text)

    def _messages(self, value: object) -> Iterator[ItemMessage]:
        if not isinstance(value, list) or not value:
            raise bad_input("The field messages is a list of at least one message.")
        for message in value:
            if not isinstance(message, dict):
                raise bad_input("A message is an object with role and content.")
            role, content = message.get("role"), message.get("content")
            if role not in _ROLES:
                raise bad_input(f"The role of a message is system, user or assistant, not {quoted(str(role))}.")
            parts = [content] if isinstance(content, str) else content
            if not isinstance(parts, list):
                raise bad_input("The content of a message is a text or a list of parts.")
            found = tuple(part if isinstance(part, str) else self._part(part) for part in parts)
            yield ItemMessage(cast(Role, "system" if role == "developer" else role), found)

    def _part(self, part: object) -> str | MediaSource:
        if not isinstance(part, dict):
            raise bad_input("A part of a message is an object with type.")
        kind = part.get("type")
        if kind in ("text", "input_text"):
            return _text(part.get("text"), "text")
        if kind == "input_audio":
            sound = part.get("input_audio")
            data = sound.get("data") if isinstance(sound, dict) else None
            return MediaSource(modality="audio", encoded=_text(data, "data of input_audio"))
        modality = next((one for one in _MODALITIES if kind in (one, f"{one}_url")), None)
        if modality is None:
            known = "text, image_url, video_url, audio_url or input_audio"
            raise bad_input(f"A part of type {quoted(str(kind))} can't be sent: {known}.")
        value = part.get(f"{modality}_url", part.get(modality))
        return self._source(value.get("url") if isinstance(value, dict) else value, modality)


def read_sampling(values: Mapping[str, Any]) -> tuple[dict[str, object], int | None]:
    """Return fields of `Sampling`, and the number of log-probabilities. Raises VlmtuiError."""
    found: dict[str, object] = {}
    logprobs = values.get("logprobs")
    if logprobs is not None and (type(logprobs) is not int or not 0 <= logprobs <= _LOGPROBS_MAX):
        raise bad_input(f"logprobs must lie between 0 and {_LOGPROBS_MAX}.")
    for given, value in values.items():
        name = _ALIASES.get(given, given)
        if name == "logprobs" or value is None:
            continue
        if name in PARAMETERS:
            found[name] = _number(name, value)
        elif name in _STOPS:
            try:
                found[name] = msgspec.convert([value] if isinstance(value, str) else value, _STOPS[name])
            except msgspec.ValidationError as error:
                raise bad_input(f"Can't read {name}.", detail=str(error)) from error
        else:
            raise unknown_field(given, (*PARAMETERS, *_STOPS, "logprobs", *_ALIASES))
    return found, logprobs


def items_over_files(patterns: Sequence[tuple[Modality, str]], prompts: Sequence[str]) -> Iterator[BatchItem]:
    """Yield an item for each file of the patterns and each prompt. Its id is the file's name as the pattern gives it,
    with `#2` behind it for the second prompt. Raises VlmtuiError for a pattern without files."""
    number = 0
    for modality, pattern in patterns:
        before = number
        for name in _files(pattern):
            place = name if is_url(name) else os.path.abspath(name)  # noqa: PTH100  (links must stay)
            item_id = os.fsencode(name).decode("utf-8", "backslashreplace")
            for count, prompt in enumerate(prompts, start=1):
                number += 1
                messages = question_messages(prompt, (MediaSource(modality=modality, place=place),))
                yield BatchItem(line=number, id=item_id if count == 1 else f"{item_id}#{count}", messages=messages)
        if number == before:
            raise bad_input(f"There is no {modality} in {one_line(pattern)}.")


def repeated_items(
    count: int,
    source: MediaSource,
    questions: Sequence[str],
    *,
    repeat_probability: float | None = None,
    seed: int | None = None,
) -> Iterator[BatchItem]:
    """Yield `count` items over one medium, the questions in turn (`--num-prompts` of vLLM's example).

    With `repeat_probability`, an item has the picture of the one before with that probability, and otherwise one whose
    first pixel is changed to (number // 65536, number // 256, number % 256). The same `seed` makes the same choices, so
    that a batch can go on; the items' own seeds count up from it, as equal items would get equal answers."""
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


def _files(pattern: str) -> Iterator[str]:
    """Yield the file of that name, or the media files of a folder or that match, by name; a web address is itself."""
    path = Path(os.path.expanduser(pattern))  # noqa: PTH111  (Path's fails on ~nobody)
    if is_url(pattern) or path.is_file():
        yield pattern if is_url(pattern) else str(path)
        return
    wanted = str(path / "*") if path.is_dir() else str(path)
    for name in sorted(glob.iglob(wanted, recursive=True)):  # noqa: PTH207  (a pattern may be absolute)
        if looks_like_media(Path(name)):
            yield name


def _bad(error: VlmtuiError, line: int, data: bytes, item_id: str | None = None) -> BadItem:
    digest = hashlib.blake2b(data, digest_size=8).hexdigest()
    return BadItem(line=line, failure=failed_at_line(error, line), digest=digest, id=item_id)


def _number(name: str, value: object) -> int | float:
    parameter = PARAMETERS[name]
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    is_number = isinstance(value, int | float) and (is_whole or parameter.kind is float)
    if not isinstance(value, int | float) or isinstance(value, bool) or not is_number:
        kind = "a whole number" if parameter.kind is int else "a number"
        raise bad_input(f"{parameter.label} must be {kind}, not {quoted(repr(value))}.")
    number = parameter.kind(value)
    if problem := parameter.problem(number):
        raise bad_input(f"{problem}.")
    return number


def _expectation(value: object) -> Expectation | None:
    if value is None:
        return None
    if isinstance(value, str):
        return Expectation(exact=value)
    if not isinstance(value, dict) or not value:
        raise bad_input("expect is a text, or an object with exact, contains, regex or json_schema.")
    _require_known(value, Expectation.__struct_fields__)
    try:
        found = msgspec.convert(value, Expectation)
    except msgspec.ValidationError as error:
        raise bad_input("Can't read expect.", detail=str(error)) from error
    found.require_valid()
    return found


def _require_known(fields: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in fields:
        if name not in known:
            raise unknown_field(name, known)


def _id(value: object, name: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        raise bad_input(f"The field {name} is missing: a text that no other item has.")
    if len(value) > _ID_MAX:
        raise bad_input(f"The field {name} has {len(value)} characters; the limit is {_ID_MAX}.")
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise bad_input(f"The field {name} is a text.")
    return value
