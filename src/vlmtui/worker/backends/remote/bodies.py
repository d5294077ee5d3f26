"""The request bodies for a model server, and the texts and places of the tokens in its answers."""

from __future__ import annotations

import asyncio
import base64
import difflib
import io
import random
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from vlmtui.domain.conversation import (
    Attachment,
    ChatPrompt,
    MessagesPrompt,
    Modality,
    RawPrompt,
    Text,
    Turn,
)
from vlmtui.domain.dials import PROCESSOR
from vlmtui.domain.generation import MediaSpan, Request, Token, Vocabulary
from vlmtui.domain.sampling import Sampling
from vlmtui.domain.template import EFFORT, TEMPLATE
from vlmtui.domain.thinking import COMMON_TAGS, ThinkingTags
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.thinking import split_thinking
from vlmtui.reading import read_whole
from vlmtui.worker.backends.remote.http_api import ServerApi, ServerError, Unanswered
from vlmtui.worker.backends.remote.probe import CHAT, GENERATE, ServerFacts
from vlmtui.worker.hf.template_variables import template_variables

_AT_ONCE = 16
"""The most simultaneous requests for the texts of tokens."""
_DEAF_TIMES = 10
"""The pause after a request for a token's text has timed out, as a multiple of the timeout. Without a pause, each of
hundreds of tokens would wait for its own timeout if the server hangs."""


class TokenTexts:
    """Asks a server for the texts of tokens and the tokens of texts, and caches them."""

    def __init__(self, api: ServerApi, model: str) -> None:
        self._api = api
        self._model = model
        self._known: dict[int, Token] = {}
        self._special: dict[str, int | None] = {}
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._deaf_until_s = float("-inf")
        """The `time.monotonic()` before which no request is sent, since the last one timed out."""

    async def entries(self, ids: Iterable[int]) -> Vocabulary:
        """Return the tokens with these ids. Leaves out tokens whose text the server does not send in time, because
        waiting would delay the answer."""
        wanted = set(ids)
        await asyncio.gather(*(self._ask(one) for one in wanted - self._known.keys()))
        return {one: self._known[one] for one in wanted if one in self._known}

    async def text_of(self, ids: Sequence[int], seconds: float) -> str:
        """Return these tokens decoded together, with special tokens. Raises VlmtuiError, also if the server does not
        answer within `seconds`."""
        found = await self._api.post("/detokenize", {"model": self._model, "tokens": list(ids)}, seconds=seconds)
        text: Any = found.get("prompt") if isinstance(found, dict) else None
        return text if isinstance(text, str) else ""

    async def ids_of(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the token ids of a text. Raises VlmtuiError."""
        body = {"model": self._model, "prompt": text, "add_special_tokens": add_special_tokens}
        found = await self._api.post("/tokenize", body)
        tokens = found.get("tokens") if isinstance(found, dict) else None
        return [one for one in tokens if isinstance(one, int)] if isinstance(tokens, list) else []

    async def id_of(self, text: str) -> int | None:
        """Return the id of the token with this text; None if the text is not exactly one token. Raises VlmtuiError."""
        if text not in self._special:
            ids = await self.ids_of(text, add_special_tokens=False)
            self._special[text] = ids[0] if len(ids) == 1 else None
        return self._special[text]

    async def _ask(self, token_id: int) -> None:
        async with self._gate:
            if time.monotonic() < self._deaf_until_s:
                return
            try:
                text = await self.text_of([token_id], self._api.stall_s)
            except VlmtuiError as error:
                if isinstance(error, Unanswered):
                    self._deaf_until_s = time.monotonic() + _DEAF_TIMES * self._api.stall_s
                return
        self._known[token_id] = Token(text=text, special=is_special(text))


class AnswerText:
    """Decodes an answer that the server sends as token ids without text."""

    def __init__(self, texts: TokenTexts, seconds: float) -> None:
        """`seconds`: the time limit for decoding one text."""
        self._texts = texts
        self._seconds = seconds
        self._ids: list[int] = []
        self._shown = 0
        """The number of characters that `add` has returned."""

    async def add(self, ids: Sequence[int]) -> str:
        """Return the text that these tokens add. An incomplete character comes with a later token."""
        known = await self._texts.entries(ids)
        self._ids += [one for one in ids if not (one in known and known[one].special)]
        text = (await self._texts.text_of(self._ids, self._seconds)).rstrip("\ufffd") if self._ids else ""
        fresh, self._shown = text[self._shown :], max(self._shown, len(text))
        return fresh


def is_special(text: str) -> bool:
    """Return True if a text looks like a special token, such as `<|im_end|>` or `[INST]`. Needed because servers do not
    report which tokens are special."""
    return len(text) > 2 and text[0] + text[-1] in ("<>", "[]") and not any(map(str.isspace, text))


def spans_between(
    written: Sequence[int], given: Sequence[int], attachments: Sequence[Attachment]
) -> tuple[MediaSpan, ...]:
    """Return where the media are in a prompt. `written`: the token ids with one placeholder for each attachment.
    `given`: the ids after the placeholders were expanded. Empty unless there is one span per attachment."""
    return spans_at(_added(written, given), given, attachments)


def spans_at(
    runs: Sequence[tuple[int, int]], given: Sequence[int], attachments: Sequence[Attachment]
) -> tuple[MediaSpan, ...]:
    """Return a span for each run (start, end) of tokens in `given`. Empty unless there is one run per attachment."""
    if len(runs) != len(attachments):
        return ()
    numbers: Counter[Modality] = Counter()
    spans: list[MediaSpan] = []
    for (start, end), item in zip(runs, attachments, strict=True):
        spans.append(_span(item.modality, numbers[item.modality], start, given[start:end]))
        numbers[item.modality] += 1
    return tuple(spans)


def expansions(ids: Sequence[int], vocabulary: Vocabulary, written: str) -> list[tuple[int, int]] | None:
    """Return the runs (start, end) of tokens in `ids` that a placeholder was expanded to. `written`: the text with one
    placeholder for each attachment.

    Returns None if the texts of the other tokens do not add up to `written`, or if two placeholders are adjacent, so
    that their runs cannot be separated.
    """
    runs: list[tuple[int, int]] = []
    position = 0
    for index, token in enumerate(ids):
        text = vocabulary[token].text if token in vocabulary else ""
        if text and written.startswith(text, position):
            position += len(text)
        elif index == 0 or token != ids[index - 1]:
            return None
        elif runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        elif index > 1 and token == ids[index - 2]:
            return None
        else:
            runs.append((index - 1, index + 1))
    return runs if position == len(written) else None


def _added(written: Sequence[int], given: Sequence[int]) -> list[tuple[int, int]]:
    """Return the runs (start, end) of tokens that are only in `given`, not in `written`; found with difflib."""
    runs: list[tuple[int, int]] = []
    matcher = difflib.SequenceMatcher(None, written, given, autojunk=False)
    for operation, _, _, start, end in matcher.get_opcodes():
        if operation == "equal" or start == end:
            continue
        # difflib may match the first token of a repeated placeholder as equal.
        while start > 0 and given[start - 1] == given[start] and (not runs or runs[-1][1] < start):
            start -= 1
        while end < len(given) and given[end] == given[end - 1]:
            end += 1
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    return runs


def reported_spans(placeholders: object, ids: Sequence[int]) -> tuple[MediaSpan, ...]:
    """Return the spans in vLLM's field `mm_placeholders`, such as `{"image": [{"offset": 6, "length": 36}]}`."""
    spans: list[MediaSpan] = []
    for modality in get_args(Modality):
        listed = placeholders.get(modality) if isinstance(placeholders, dict) else None
        for index, one in enumerate(listed if isinstance(listed, list) else ()):
            match one:
                case {"offset": int(offset), "length": int(length)} if 0 <= offset < offset + length <= len(ids):
                    spans.append(_span(modality, index, offset, ids[offset : offset + length]))
    return tuple(sorted(spans, key=lambda span: span.offset))


def _span(modality: Modality, index: int, offset: int, ids: Sequence[int]) -> MediaSpan:
    """Return the span of an item with these tokens. Its most common token is counted as the image or video itself."""
    tokens = Counter(ids).most_common(1)[0][1]
    return MediaSpan(modality=modality, index=index, offset=offset, length=len(ids), tokens=tokens)


_FILE_MAX = 500_000_000
_VERBATIM = "{{ raw }}"
"""A chat template that outputs the raw prompt in its variable `raw` unchanged."""
_FROM_MESSAGES = "{%- set messages = raw_messages -%}"
"""A line before a chat template: it renders `raw_messages` instead of the chat's messages, which only hold media."""
_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp", b"GIF8": "image/gif"}


class MediaPart(msgspec.Struct, frozen=True):
    """An image, video or audio for a request to a server."""

    modality: str
    url: str | None
    """A data URL: an image file; a video's frames as (lossless) PNG files; audio as WAV, mono, 16 kHz, 16 bits.
    None: the server's cache has the content."""
    uuid: str
    """The key in the server's cache; empty for a server without one."""
    frames: dict[str, object] | None = None
    """The times of a video's frames, for servers that accept `media_io_kwargs`."""

    @property
    def part(self) -> dict[str, Any]:
        """The attachment as a content part of a chat message."""
        kind = f"{self.modality}_url"
        part: dict[str, Any] = {"type": kind, kind: {"url": self.url} if self.url is not None else None}
        return {**part, "uuid": self.uuid} if self.uuid else part

    @property
    def content_part(self) -> dict[str, Any]:
        """The attachment as an entry of the field `content_parts`, for a request that sends the prompt as token ids."""
        return {"type": f"{self.modality}_url", "url": self.url, "uuid": self.uuid}


async def read_media(attachments: Sequence[Attachment]) -> list[MediaPart]:
    """Read attachments one after another. Raises VlmtuiError naming an unreadable file."""
    return [await asyncio.to_thread(_read, attachment) for attachment in attachments]


def messages_of(turns: Sequence[Turn], media: Sequence[MediaPart]) -> list[dict[str, Any]]:
    """Return the turns as chat messages, with the next of `media` for each attachment."""
    left = iter(media)

    def content(turn: Turn) -> str | list[dict[str, Any]]:
        if not turn.attachments:
            return turn.text
        return [{"type": "text", "text": one.text} if isinstance(one, Text) else next(left).part for one in turn.parts]

    return [{"role": turn.role, "content": content(turn)} for turn in turns]


def without_reasoning(turn: Turn, tags: ThinkingTags) -> Turn:
    """Return an answer without its reasoning, which later requests must not repeat; other turns unchanged."""
    answer = split_thinking(turn.text, tags, over=True).answer if turn.role == "assistant" else ""
    return Turn(turn.role, (Text(answer),)) if answer and not turn.attachments else turn


def raw_chat(
    prompt: RawPrompt | MessagesPrompt,
    media: Sequence[MediaPart],
    own_template: str,
    variables: Mapping[str, object],
) -> dict[str, Any]:
    """Return the fields of a chat request for a raw prompt with media. The request brings a chat template that writes
    the prompt unchanged.

    The tokenizer adds its BOS token, as to every raw prompt. A MessagesPrompt is rendered with the template in it or,
    if it has none, with `own_template`, the model's. `variables`: for that template. Raises
    VlmtuiError(NO_CHAT_TEMPLATE) if there is no template.
    """
    given: dict[str, object]
    if isinstance(prompt, RawPrompt):
        template, given = _VERBATIM, {"raw": prompt.text}
    else:
        written_by = prompt.chat_template or own_template
        if not written_by:
            message = "The model's chat template is not known, so the raw prompt can't be written."
            raise VlmtuiError(ErrorKind.NO_CHAT_TEMPLATE, message, hint="Write the raw prompt yourself.")
        given = {**variables, "raw_messages": msgspec.to_builtins(prompt.messages)}
        template = _FROM_MESSAGES + written_by
    return {
        "messages": [{"role": "user", "content": [one.part for one in media]}],
        "chat_template": template,
        "chat_template_kwargs": given,
        "add_special_tokens": True,
    }


def sampling_body(sampling: Sampling, stop_token_ids: Sequence[int]) -> dict[str, Any]:
    """Return the sampling parameters by vLLM's names. The server uses its defaults for missing ones."""
    body: dict[str, Any] = {**sampling.numbers(), "skip_special_tokens": sampling.skip_special_tokens}
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if stop_token_ids:
        body["stop_token_ids"] = list(stop_token_ids)
    return {**body, **{name: value for name, value in sampling.extra.items() if name != TEMPLATE}}


def _read(attachment: Attachment) -> MediaPart:
    if attachment.modality == "image":
        content = read_whole(Path(attachment.path), bytes_max=_FILE_MAX)
        kind = next((name for head, name in _TYPES.items() if content.startswith(head)), "image/png")
        return MediaPart("image", f"data:{kind};base64,{base64.b64encode(content).decode()}", attachment.sha256)
    return _audio(attachment) if attachment.modality == "audio" else _video(attachment)


def _audio(attachment: Attachment) -> MediaPart:
    import wave

    from vlmtui.worker.hf.media_items import AUDIO_RATE, load_item

    item = load_item(attachment)
    samples = (item.data * 32767).round().clip(-32768, 32767).astype("<i2")
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(AUDIO_RATE)
        file.writeframes(samples.tobytes())
    return MediaPart("audio", f"data:audio/wav;base64,{base64.b64encode(written.getvalue()).decode()}", item.uuid)


def _video(attachment: Attachment) -> MediaPart:
    from PIL import Image

    from vlmtui.worker.hf.media_items import load_item

    item = load_item(attachment)
    frames, about = item.data
    images: list[str] = []
    for frame in frames:
        written = io.BytesIO()
        Image.fromarray(frame).save(written, "PNG", compress_level=1)
        images.append(base64.b64encode(written.getvalue()).decode())
    times = {name: about[name] for name in ("fps", "frames_indices", "total_num_frames", "duration")}
    return MediaPart("video", f"data:video/jpeg;base64,{','.join(images)}", item.uuid, times)


_COMPLETIONS = "/v1/completions"
_SEED_MAX = 2**31 - 1
_MISSED = "Cache miss"
"""Part of vLLM's error if a request names an image by its id and vLLM's cache no longer has it."""
_KNOWN_MAX = 10_000
_KEEPS_IMAGES = (0, 32)
"""The first version of vLLM in which images by id were tested."""


class RequestBodies:
    """Builds the bodies of requests to one server. An image that is in the server's cache is sent as an id only."""

    def __init__(self, model: str, texts: TokenTexts, facts: ServerFacts, tags: ThinkingTags = COMMON_TAGS) -> None:
        self._tags = tags
        self._model = model
        self._texts = texts
        self._facts = facts
        self._known: set[str] = set()
        """The ids of the images that the server has received."""
        self._keeps_images = _release(facts.version) >= _KEEPS_IMAGES
        self._told: dict[str, object] = {"return_prompt_text": True}
        """Asks for the prompt's text with an answer."""

    def remember(self, media: Sequence[MediaPart]) -> None:
        """Note that the server has received these media."""
        if self._keeps_images and len(self._known) < _KNOWN_MAX:
            self._known |= {one.uuid for one in media if one.modality == "image"}

    def missed(self, error: ServerError) -> bool:
        """Return True if the server rejected a request because its cache no longer has an image.

        From then on all images are sent with their content, because a server may have several front-end processes, each
        with its own cache.
        """
        if _MISSED not in error.detail:
            return False
        self._known.clear()
        self._keeps_images = False
        return True

    def tells_less(self, error: ServerError) -> bool:
        """Return True if the server rejects the question for the prompt's text, as vLLM's Rust front end does. It is
        asked no more."""
        is_refused = "return_prompt_text is not supported" in error.detail
        if is_refused:
            self._told = {}
        return is_refused

    async def written(self, prompt: object) -> list[int] | None:
        """Return the token ids of a raw prompt before placeholders are expanded; None for other prompts."""
        if isinstance(prompt, RawPrompt):
            return await self._texts.ids_of(prompt.text, add_special_tokens=True)
        return None

    async def of(
        self, request: Request, media: Sequence[MediaPart], logprobs: int | None = None
    ) -> tuple[str, dict[str, Any], list[int] | None]:
        """Return the URL path and the body of a request. If the prompt is sent as token ids, also return them (before
        placeholders are expanded), otherwise None."""
        sampling = request.sampling
        if sampling.seed is None and not sampling.is_greedy:
            sampling = msgspec.structs.replace(sampling, seed=random.randrange(_SEED_MAX))
        stops = [*sampling.stop_token_ids, *await self._stop_ids(sampling.stop_tokens)]
        parameters = sampling_body(sampling, stops)
        if not self._facts.takes_media_arguments:
            _leave_out(parameters, request.own_arguments)
        common = {"model": self._model, "stream": True, "stream_options": {"include_usage": True}}
        prompt = request.prompt
        if not self._facts.version:
            return *self._plain(request, media, {**common, **parameters}), None
        if isinstance(prompt, RawPrompt) and self._facts.takes_ids:
            ids = await self._texts.ids_of(prompt.text, add_special_tokens=True)
            if logprobs is not None:
                parameters["logprobs"] = logprobs
            parts = {"content_parts": [one.content_part for one in media]} if media else {}
            # vLLM returns log-probabilities with token ids only in the mode without text.
            mode = "text" if logprobs is None else "tokens"
            more = {"token_ids": ids, "return_token_ids": True, "output_mode": mode, "sampling_params": parameters}
            return GENERATE, {**common, **more, **parts}, ids
        wanted: dict[str, Any] = {"return_token_ids": True}
        if logprobs is not None:
            wanted |= {"logprobs": True, "top_logprobs": logprobs, "return_tokens_as_token_ids": True}
        if isinstance(prompt, RawPrompt) and not media and not self._facts.takes_template:
            wanted |= {"logprobs": logprobs} if logprobs is not None else {}
            return _COMPLETIONS, {**common, "prompt": prompt.text, **parameters, **wanted}, None
        return (
            CHAT,
            {**common, **self.chat(request, media), **parameters, **wanted, **self._told},
            None,
        )

    def _plain(self, request: Request, media: Sequence[MediaPart], more: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return URL path and body for a server other than vLLM. Uses only standard fields, because some servers reject
        others; the template's variables and OpenAI's `reasoning_effort` are sent only if the request sets them."""
        if more.get("skip_special_tokens"):
            del more["skip_special_tokens"]
        if isinstance(request.prompt, RawPrompt):
            return _COMPLETIONS, {**more, "prompt": request.prompt.text}
        body = {**more, **self.chat(request, media)}
        if isinstance(effort := body.get(TEMPLATE, {}).get(EFFORT), str):
            body[EFFORT] = effort
        return CHAT, body

    def chat(self, request: Request, media: Sequence[MediaPart], *, whole: bool = False) -> dict[str, Any]:
        """Return the fields of a chat request. `whole`: send the content of all media, even if the server has it.
        Raises VlmtuiError(BAD_INPUT) for a variable that the chat template does not read, if the template is known."""
        prompt = request.prompt
        if not whole:
            media = [msgspec.structs.replace(one, url=None) if one.uuid in self._known else one for one in media]
        if not self._facts.version:
            media = [msgspec.structs.replace(one, uuid="") for one in media]
        if not isinstance(prompt, ChatPrompt):
            return raw_chat(prompt, media, self._facts.chat_template, self._variables(request))
        turns = prompt.turns
        if not self._facts.version:  # vLLM's template leaves reasoning out as it does here
            turns = tuple(without_reasoning(turn, self._tags) for turn in turns)
        body: dict[str, Any] = {"messages": messages_of(turns, media)}
        if variables := self._variables(request):
            body[TEMPLATE] = variables
        if prompt.chat_template is not None:
            body["chat_template"] = prompt.chat_template
        frames = [one.frames for one in media if one.frames is not None]
        if len(frames) == 1 and self._facts.takes_media_arguments:
            body["media_io_kwargs"] = {"video": frames[0]}
        return body

    def own_chat(self, prompt: MessagesPrompt, request: Request, media: Sequence[MediaPart]) -> dict[str, Any]:
        """Return the fields of a chat request with a prompt's messages, for the model's own chat template."""
        variables = self._variables(request)
        return {"messages": messages_of(prompt.turns, media), **({TEMPLATE: variables} if variables else {})}

    def _variables(self, request: Request) -> dict[str, object]:
        if isinstance(request.prompt, RawPrompt):
            return {}
        return template_variables(request.sampling, request.prompt.chat_template or self._facts.chat_template)

    async def _stop_ids(self, texts: Sequence[str]) -> list[int]:
        if not self._facts.tokenizes:
            return []
        found = [await self._texts.id_of(text) for text in texts]
        return [one for one in found if one is not None]


def _leave_out(parameters: dict[str, Any], names: Sequence[str]) -> None:
    """Remove the processor arguments with these names from a request's parameters."""
    given = parameters.pop(PROCESSOR, {})
    if kept := {name: value for name, value in given.items() if name not in names}:
        parameters[PROCESSOR] = kept


def _release(version: str) -> tuple[int, ...]:
    """Return the major and minor number of vLLM's version; empty for another server."""
    found = re.match(r"(\d{1,6})\.(\d{1,6})", version)
    return (int(found[1]), int(found[2])) if found else ()
