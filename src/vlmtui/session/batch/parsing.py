"""Reads one line of a batch: the OpenAI batch format, and vlmtui's short form."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.conversation import Role
from vlmtui.domain.parameters import PARAMETERS
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.web_address import is_url
from vlmtui.session.batch.item import BatchItem, Expectation, ItemMessage, MediaSource, unknown_field
from vlmtui.text import quoted

ID_MAX = 512
LOGPROBS_LIMIT = 20
_MODALITIES: tuple[Modality, ...] = ("image", "video", "audio")
_MEDIA = tuple(name for modality in _MODALITIES for name in (f"{modality}s", modality))
_SHORT = ("id", *_MEDIA, "prompt", "system", "messages", "raw", "sampling", "expect")
_OPENAI = ("custom_id", "method", "url", "body", "expect")
_ROLES = ("system", "developer", "user", "assistant")
_ENDPOINTS = ("/v1/chat/completions", "/chat/completions")
_STOPS = ("stop", "stop_token_ids", "skip_special_tokens")
_ALIASES = {"max_completion_tokens": "max_tokens"}
_PASSED_OVER = ("model", "messages", "stream", "stream_options", "n", "user", "logprobs", "top_logprobs", "metadata")
_EXPECTATIONS = ("exact", "contains", "regex", "json_schema")


class LineReader:
    """Turns a decoded line into an item. `base`: the folder that relative file names start at."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.models: set[str] = set()
        """The models that lines of the OpenAI format name."""

    def read(self, fields: Mapping[str, Any], line: int) -> BatchItem:
        """Return the item. Raises VlmtuiError without its line number."""
        if "custom_id" in fields or "body" in fields:
            return self._openai(fields, line)
        return self._short(fields, line)

    def _openai(self, fields: Mapping[str, Any], line: int) -> BatchItem:
        _require_known(fields, _OPENAI)
        method, url, body = fields.get("method", "POST"), fields.get("url", _ENDPOINTS[0]), fields.get("body")
        if method != "POST" or url not in _ENDPOINTS:
            raise bad_input(f"Only POST {_ENDPOINTS[0]} is answered, not {quoted(f'{method} {url}')}.")
        if not isinstance(body, dict):
            raise bad_input("The field body is missing.")
        sampling, logprobs = _body_sampling(body)
        if isinstance(model := body.get("model"), str) and len(self.models) < 8:
            self.models.add(model)
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
        media = tuple(self.media(fields))
        messages: tuple[ItemMessage, ...] = ()
        if given == ["messages"]:
            if media:
                raise bad_input("With messages, images, videos and sounds are parts of a message.")
            messages = tuple(self._messages(fields["messages"]))
        elif given == ["prompt"]:
            messages = question_messages(
                _text(fields["prompt"], "prompt"), media, _text(fields.get("system") or "", "system")
            )
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

    def media(self, fields: Mapping[str, Any]) -> Iterator[MediaSource]:
        """Yield the media of the fields `images`, `image`, `videos`, `video`, `audios` and `audio`."""
        for modality in _MODALITIES:
            for name in (f"{modality}s", modality):
                value = fields.get(name)
                values = value if isinstance(value, list) else [] if value is None else [value]
                for one in values:
                    yield self.source(one, modality)

    def source(self, value: object, modality: Modality) -> MediaSource:
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
        match part.get("type"):
            case "text" | "input_text":
                return _text(part.get("text"), "text")
            case "input_audio":
                sound = part.get("input_audio")
                data = sound.get("data") if isinstance(sound, dict) else None
                return MediaSource(modality="audio", encoded=_text(data, "data of input_audio"))
            case kind:
                modality = next((one for one in _MODALITIES if kind in (one, f"{one}_url")), None)
                if modality is None:
                    known = "text, image_url, video_url, audio_url or input_audio"
                    raise bad_input(f"A part of type {quoted(str(kind))} can't be sent: {known}.")
                value = part.get(f"{modality}_url", part.get(modality))
                return self.source(value.get("url") if isinstance(value, dict) else value, modality)


def find_id(fields: Mapping[str, Any]) -> str | None:
    """Return the id of a line that is otherwise wrong, or None."""
    value = fields.get("custom_id", fields.get("id"))
    return value if isinstance(value, str) and 0 < len(value) <= ID_MAX else None


def question_messages(text: str, media: tuple[MediaSource, ...], system: str = "") -> tuple[ItemMessage, ...]:
    """Return one question with its media before the text."""
    question = ItemMessage("user", (*media, text))
    return (ItemMessage("system", (system,)), question) if system else (question,)


def read_sampling(values: Mapping[str, Any]) -> tuple[dict[str, object], int | None]:
    """Return fields of `Sampling`, and the number of log-probabilities. Raises VlmtuiError."""
    found: dict[str, object] = {}
    logprobs = values.get("logprobs")
    if logprobs is not None and (type(logprobs) is not int or not 0 <= logprobs <= LOGPROBS_LIMIT):
        raise bad_input(f"logprobs must lie between 0 and {LOGPROBS_LIMIT}.")
    for given, value in values.items():
        name = _ALIASES.get(given, given)
        if name == "logprobs" or value is None:
            continue
        if name in PARAMETERS:
            found[name] = _number(name, value)
        elif name in _STOPS:
            found[name] = _stop(name, value)
        else:
            raise unknown_field(given, (*PARAMETERS, *_STOPS, "logprobs", *_ALIASES))
    return found, logprobs


def _body_sampling(body: Mapping[str, Any]) -> tuple[dict[str, object], int | None]:
    if body.get("n") not in (None, 1):
        raise bad_input("n is more than 1: an item has one answer.", hint="Write the item n times, with other seeds.")
    try:
        found, _ = read_sampling({name: value for name, value in body.items() if name not in _PASSED_OVER})
    except VlmtuiError as error:
        if error.message.startswith("Unknown field"):
            name = next(one for one in body if one not in _PASSED_OVER and quoted(one) in error.message)
            raise unknown_field(name, (*PARAMETERS, *_STOPS, *_ALIASES, *_PASSED_OVER)) from error
        raise
    top = body.get("top_logprobs") or 0
    if not body.get("logprobs"):
        return found, None
    _, logprobs = read_sampling({"logprobs": top})
    return found, logprobs


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


def _stop(name: str, value: object) -> object:
    try:
        match name:
            case "stop":
                return msgspec.convert([value] if isinstance(value, str) else value, tuple[str, ...])
            case "stop_token_ids":
                return msgspec.convert(value, tuple[int, ...])
            case _:
                return msgspec.convert(value, bool)
    except msgspec.ValidationError as error:
        raise bad_input(f"Can't read {name}.", detail=str(error)) from error


def _expectation(value: object) -> Expectation | None:
    if value is None:
        return None
    if isinstance(value, str):
        return Expectation(exact=value)
    if not isinstance(value, dict) or not value:
        raise bad_input("expect is a text, or an object with exact, contains, regex or json_schema.")
    _require_known(value, _EXPECTATIONS)
    try:
        found = msgspec.convert(value, Expectation)
    except msgspec.ValidationError as error:
        raise bad_input("Can't read expect.", detail=str(error)) from error
    from vlmtui.session.batch.scoring import check_expectation

    check_expectation(found)
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
    if len(value) > ID_MAX:
        raise bad_input(f"The field {name} has {len(value)} characters; the limit is {ID_MAX}.")
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise bad_input(f"The field {name} is a text.")
    return value
