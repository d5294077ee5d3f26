"""What a request to a server holds: for chats, for prompts by token ids, for text alone."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from vlmtui.domain.dials import PROCESSOR
from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.prompt import ChatPrompt, Prompt, RawPrompt
from vlmtui.worker.backends.remote.bodies import MediaPart, messages_of, raw_chat, sampling_body
from vlmtui.worker.backends.remote.http_errors import ServerError
from vlmtui.worker.backends.remote.probe import ServerFacts
from vlmtui.worker.backends.remote.token_texts import TokenTexts

CHAT = "/v1/chat/completions"
GENERATE = "/inference/v1/generate"
_COMPLETIONS = "/v1/completions"
_SEED_MAX = 2**31 - 1
_MISSED = "Cache miss"
"""What vLLM says where it no longer has an image that is named by its id alone."""
_KNOWN_MAX = 10_000
_KEEPS_IMAGES = (0, 32)
"""The version of vLLM with which naming images by their ids was tried; what earlier ones do is not known."""


class RequestBodies:
    """Writes the requests to one server. Images that it has are named by their ids alone, while it keeps them."""

    def __init__(self, model: str, texts: TokenTexts, facts: ServerFacts) -> None:
        self._model = model
        self._texts = texts
        self._facts = facts
        self._known: set[str] = set()
        """Ids of the images that the server has seen."""
        self._keeps_images = _release(facts.version) >= _KEEPS_IMAGES

    def remember(self, media: Sequence[MediaPart]) -> None:
        """The server took these."""
        if self._keeps_images and len(self._known) < _KNOWN_MAX:
            self._known |= {one.uuid for one in media if one.modality == "image"}

    def missed(self, error: ServerError) -> bool:
        """Whether the server refused because it has an image no longer. From then on all go with their content.
        Several requests at once may miss the same image; a front of several processes keeps images in each of them."""
        if _MISSED not in error.detail:
            return False
        self._known.clear()
        self._keeps_images = False
        return True

    async def written(self, prompt: object) -> list[int] | None:
        """Return the tokens of a prompt before placeholders are expanded, where that is known."""
        if isinstance(prompt, RawPrompt):
            return await self._texts.ids_of(prompt.text, add_special_tokens=True)
        return None

    async def of(
        self, request: GenerateRequest, media: Sequence[MediaPart]
    ) -> tuple[str, dict[str, Any], list[int] | None]:
        """Return the path, the request, and the tokens of a raw prompt as written."""
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
            return *self._plain(prompt, media, {**common, **parameters}), None
        if isinstance(prompt, RawPrompt) and self._facts.takes_ids:
            ids = await self._texts.ids_of(prompt.text, add_special_tokens=True)
            if request.logprobs is not None:
                parameters["logprobs"] = request.logprobs
            parts = {"content_parts": [one.content_part for one in media]} if media else {}
            # Log-probabilities come with token ids only where the answer comes without its text.
            mode = "text" if request.logprobs is None else "tokens"
            more = {"token_ids": ids, "return_token_ids": True, "output_mode": mode, "sampling_params": parameters}
            return GENERATE, {**common, **more, **parts}, ids
        logprobs: dict[str, Any] = {"return_token_ids": True}
        if request.logprobs is not None:
            logprobs |= {"logprobs": True, "top_logprobs": request.logprobs, "return_tokens_as_token_ids": True}
        if isinstance(prompt, RawPrompt) and not media and not self._facts.takes_template:
            logprobs |= {"logprobs": request.logprobs} if request.logprobs is not None else {}
            return _COMPLETIONS, {**common, "prompt": prompt.text, **parameters, **logprobs}, None
        return (
            CHAT,
            {**common, **self.chat(prompt, media), **parameters, **logprobs, "return_prompt_text": True},
            None,
        )

    def _plain(self, prompt: Prompt, media: Sequence[MediaPart], more: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The path and the request for a server that is not vLLM's: some refuse what they do not know."""
        if more.get("skip_special_tokens"):
            del more["skip_special_tokens"]
        if isinstance(prompt, RawPrompt):
            return _COMPLETIONS, {**more, "prompt": prompt.text}
        return CHAT, {**more, **self.chat(prompt, media)}

    def chat(self, prompt: Prompt, media: Sequence[MediaPart], *, whole: bool = False) -> dict[str, Any]:
        """Return the fields of a conversation. whole: with the content of all media, whatever the server has."""
        if not whole:
            media = [msgspec.structs.replace(one, url=None) if one.uuid in self._known else one for one in media]
        if not self._facts.version:
            media = [msgspec.structs.replace(one, uuid="") for one in media]
        if not isinstance(prompt, ChatPrompt):
            return raw_chat(prompt, media, self._facts.chat_template)
        body: dict[str, Any] = {"messages": messages_of(prompt.turns, media)}
        if prompt.chat_template is not None:
            body["chat_template"] = prompt.chat_template
        frames = [one.frames for one in media if one.frames is not None]
        if len(frames) == 1 and self._facts.takes_media_arguments:
            body["media_io_kwargs"] = {"video": frames[0]}
        return body

    async def _stop_ids(self, texts: Sequence[str]) -> list[int]:
        if not self._facts.tokenizes:
            return []
        found = [await self._texts.id_of(text) for text in texts]
        return [one for one in found if one is not None]


def _leave_out(parameters: dict[str, Any], names: Sequence[str]) -> None:
    """Take arguments of the processor out of a request's parameters."""
    given = parameters.pop(PROCESSOR, {})
    if kept := {name: value for name, value in given.items() if name not in names}:
        parameters[PROCESSOR] = kept


def _release(version: str) -> tuple[int, ...]:
    """Return major and minor number; empty for a server that is not vLLM's."""
    found = re.match(r"(\d{1,6})\.(\d{1,6})", version)
    return (int(found[1]), int(found[2])) if found else ()
