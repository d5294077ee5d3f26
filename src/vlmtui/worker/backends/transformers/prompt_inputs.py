"""Turns a prompt into the model's inputs: renders it, and has the model's processor expand its placeholders."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from vlmtui.domain.conversation import Text, Turn
from vlmtui.domain.generation import MediaSpan
from vlmtui.domain.prompt import ChatPrompt, Message, MessagesPrompt
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.worker.backends.transformers.arguments import Arguments
from vlmtui.worker.backends.transformers.media_places import (
    media_positions,
    media_spans,
    media_tokens,
)
from vlmtui.worker.hf.media_items import MediaItem
from vlmtui.worker.hf.media_spans import PICTURES, patch_size_of
from vlmtui.worker.hf.processor_arguments import check_arguments
from vlmtui.worker.hf.rendering import render_messages

_HINT = "Use exactly one placeholder for each attachment."
_TEXT_INPUTS = ("input_ids", "attention_mask")
_OF_THE_PROMPT = (*_TEXT_INPUTS, "mm_token_type_ids", "token_type_ids", "cross_attention_mask")
"""Outputs that belong to the prompt, not to an attachment."""
_PART_NAMES = ("'type': 'image'", "'type': 'video'", '"type": "image"', '"type": "video"')
"""How a template that knows no lists of parts prints one."""


class PromptInputs(msgspec.Struct, frozen=True):
    """A prompt, ready for the model."""

    ids: tuple[int, ...]
    tensors: dict[str, Any]
    """By name, as `generate` takes them; on the CPU."""
    media: tuple[MediaSpan, ...]
    text: str = ""
    """Before the tokenizer."""


class PromptBuilder:
    """Builds the inputs of one model. Not for several threads at once: tokenizers are not."""

    def __init__(self, processor: Any, tokenizer: Any, config: Any, arguments: Arguments) -> None:
        self.processor = processor
        self._tokenizer = tokenizer
        self._arguments = arguments
        self._tokens = media_tokens(processor, config)
        self._patch_size = patch_size_of(config)

    @property
    def sources(self) -> list[Any]:
        """What may have a chat template, the best first."""
        return [one for one in (self.processor, self._tokenizer) if one is not None]

    def render_chat(self, prompt: ChatPrompt, template: str | None) -> str:
        """Return the prompt's text by a chat template; None: the model's own."""
        messages = tuple(Message(role=turn.role, content=_content(turn)) for turn in prompt.turns)
        text = render_messages(MessagesPrompt(messages=messages, by="processor", chat_template=template), self.sources)
        if not any(name in text for name in _PART_NAMES):
            return text
        flat = tuple(Message(role=turn.role, content=self._as_text(turn)) for turn in prompt.turns)
        return render_messages(MessagesPrompt(messages=flat, by="processor", chat_template=template), self.sources)

    def render(self, prompt: MessagesPrompt) -> str:
        """Return the raw prompt of messages."""
        return render_messages(prompt, self.sources if prompt.by == "processor" else [self._tokenizer])

    def build(
        self,
        text: str,
        items: Sequence[MediaItem],
        *,
        special_tokens: bool,
        arguments: Mapping[str, object] | None = None,
    ) -> PromptInputs:
        """Return the model's inputs. `special_tokens`: whether the tokenizer adds its own (BOS). `arguments`: of the
        processor, for this prompt.

        Raises VlmtuiError if placeholders and attachments do not match, or whatever the processor raises."""
        if items and arguments:
            check_arguments(self.processor, arguments)
        given = {**self._arguments.mm_processor_kwargs, **(arguments or {})}
        try:
            outputs = self._process(text, items, special_tokens, given)
        except StopIteration as error:  # which no future can carry
            raise _mismatch("The prompt has more placeholders than there are attachments.") from error
        rows = outputs["input_ids"]
        ids = tuple(int(token) for token in (rows[0] if hasattr(rows[0], "__len__") else rows))
        positions = media_positions(ids, self._tokens, {item.modality for item in items})
        self._check(positions, items)
        media = {name: value for name, value in outputs.items() if name not in _OF_THE_PROMPT}
        alone = partial(self._tokens_alone, given)
        spans = media_spans(positions, items, media, alone, self._patch_size)
        return PromptInputs(ids, dict(outputs), spans, text)

    def _process(
        self, text: str, items: Sequence[MediaItem], special_tokens: bool, arguments: Mapping[str, object]
    ) -> Mapping[str, Any]:
        if self.processor is None or (not items and not self._adds_to_text()):
            found: Mapping[str, Any] = self._tokenizer(text, add_special_tokens=special_tokens, return_tensors="pt")
            return {name: value for name, value in found.items() if name in _TEXT_INPUTS}
        given: dict[str, Any] = {
            "text": [text],
            "return_tensors": "pt",
            "add_special_tokens": special_tokens,
            **arguments,
        }
        if images := [item.data for item in items if item.modality == "image"]:
            given["images"] = images
        if videos := [item.data for item in items if item.modality == "video"]:
            given |= _videos(videos)
        outputs = self.processor(**given)
        return {name: value for name, value in outputs.items() if value is not None}

    def _tokens_alone(self, arguments: Mapping[str, object], items: Sequence[MediaItem]) -> list[int]:
        """Return how many tokens each item takes, by processing it again by itself."""
        placeholder = getattr(self.processor, f"{items[0].modality}_token", None)
        if not placeholder:
            return []
        counts = []
        for item in items:
            ids = self._process(str(placeholder), [item], False, arguments)["input_ids"][0].tolist()
            counts.append(len(media_positions(ids, self._tokens, {item.modality})[item.modality]))
        return counts

    def _adds_to_text(self) -> bool:
        """Whether the processor changes a text without media, and takes one."""
        parameters = inspect.signature(type(self.processor).__call__).parameters
        images = parameters.get("images")
        return images is None or images.default is None

    def _as_text(self, turn: Turn) -> str:
        """Return a turn for a template that takes only text: the placeholders first, as vLLM puts them."""
        placeholders = [str(getattr(self.processor, f"{item.modality}_token", "") or "") for item in turn.attachments]
        return "\n".join([*filter(None, placeholders), turn.text])

    def _check(self, positions: Mapping[Any, Sequence[int]], items: Sequence[MediaItem]) -> None:
        wanted = Counter(item.modality for item in items)
        for modality in PICTURES:
            count = len(positions[modality])
            if not wanted[modality] and count:
                raise _mismatch(f"The prompt has placeholders for a {modality}, and none is attached.")
            is_known = bool(self._tokens.of(modality)) or (modality == "video" and bool(self._tokens.image))
            if wanted[modality] and is_known and count < wanted[modality]:
                raise _mismatch(f"The prompt has fewer placeholders than {modality}s.")


def check_limits(items: Sequence[MediaItem], limits: Mapping[Any, int]) -> None:
    """Raise VlmtuiError(BAD_INPUT) if there are more items than the engine was loaded for."""
    for modality, count in Counter(item.modality for item in items).items():
        most = limits.get(modality, 0)
        if count > most:
            message = f"The model takes at most {most} {modality}s in one prompt, and {count} are attached."
            if modality == "audio":
                raise bad_input("This engine takes no sound yet.", hint="Use vLLM, or remove the sound.")
            raise bad_input(message, hint="Start a new chat, or remove an attachment.")


def _content(turn: Turn) -> str | tuple[dict[str, object], ...]:
    if not turn.attachments:
        return turn.text
    return tuple(_parts(turn))


def _parts(turn: Turn) -> Iterator[dict[str, object]]:
    for part in turn.parts:
        yield {"type": "text", "text": part.text} if isinstance(part, Text) else {"type": part.attachment.modality}


def _videos(videos: Sequence[Any]) -> dict[str, Any]:
    from transformers.video_utils import VideoMetadata

    known = ("total_num_frames", "fps", "duration", "frames_indices", "video_backend")
    metadata = [
        VideoMetadata(**{name: about[name] for name in known}, height=frames.shape[1], width=frames.shape[2])
        for frames, about in videos
    ]
    return {"videos": [frames for frames, _ in videos], "video_metadata": metadata, "do_sample_frames": False}


def _mismatch(message: str) -> VlmtuiError:
    return VlmtuiError(ErrorKind.PLACEHOLDER_MISMATCH, message, hint=_HINT)
