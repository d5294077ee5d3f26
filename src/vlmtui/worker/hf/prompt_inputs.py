"""Run a model's Hugging Face processor on a prompt, and find the tokens and tensors of each image and video."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import msgspec

from vlmtui.domain.conversation import ChatPrompt, Message, MessagesPrompt, Modality, Text, Turn
from vlmtui.domain.generation import MediaSpan, SeenMedium, View
from vlmtui.errors import bad_input
from vlmtui.worker.hf.failures import mismatch
from vlmtui.worker.hf.media_items import PIXELS, VISUAL, MediaItem, patch_size_of, tensor_facts
from vlmtui.worker.hf.processor_arguments import check_arguments, merged_arguments
from vlmtui.worker.hf.rendering import TemplateProcesses, render_messages
from vlmtui.worker.hf.seen_pixels import normalisation_of, write_seen

_TOKEN_FIELDS: dict[Modality, tuple[str, ...]] = {
    "image": ("image_token_ids", "image_token_id", "image_token_index"),
    "video": ("video_token_ids", "video_token_id", "video_token_index"),
}
"""Attributes of processors and configs that hold the id of the image or video token."""
_GRIDS: dict[Modality, tuple[str, ...]] = {
    "image": ("image_grid_thw", "grid_thw"),
    "video": ("video_grid_thw",),
}


TokensAlone = Callable[[Sequence[MediaItem]], Sequence[int]]
"""Returns the number of tokens of each item, processed separately; empty if unknown."""


MediaTokens = Mapping[Modality, frozenset[int]]
"""The ids of a model's image and video tokens."""


def media_tokens(*sources: Any) -> MediaTokens:
    """Read the token ids of each modality from the first of `sources` (processor, config) that has them."""

    def found(modality: Modality) -> frozenset[int]:
        for source in sources:
            for name in _TOKEN_FIELDS[modality]:
                value = getattr(source, name, None)
                several = value if isinstance(value, list | tuple | set) else [value]
                if ids := frozenset(one for one in several if isinstance(one, int)):
                    return ids
        return frozenset()

    return {modality: found(modality) for modality in VISUAL}


def media_positions(ids: Sequence[int], tokens: MediaTokens, wanted: set[Modality]) -> dict[Modality, list[int]]:
    """Return the positions of each modality's tokens in `ids`. `wanted`: the modalities of the attachments.

    Some processors write a video's frames with image tokens. If videos are the only attachments and have no tokens of
    their own, the image tokens count as theirs.
    """
    found = {one: [at for at, token in enumerate(ids) if token in tokens[one]] for one in VISUAL}
    if wanted == {"video"} and not found["video"]:
        found = {"image": [], "video": found["image"]}
    return found


def media_spans(
    positions: Mapping[Modality, Sequence[int]],
    items: Sequence[MediaItem],
    outputs: Mapping[str, Any],
    tokens_alone: TokensAlone,
    patch_size: int | None,
) -> tuple[MediaSpan, ...]:
    """Return the items' spans in prompt order. A modality whose tokens cannot be assigned to items has none.

    `outputs`: the processor's tensors. `tokens_alone`: counts the tokens of each item; called only if items are
    adjacent, without a token between them.
    """
    spans: list[MediaSpan] = []
    for modality in VISUAL:
        chosen = [item for item in items if item.modality == modality]
        for index, places in enumerate(_divided(positions[modality], chosen, tokens_alone)):
            facts = tensor_facts(item_tensors(outputs, modality, index, len(chosen)), patch_size)
            spans.append(
                MediaSpan(
                    modality=modality,
                    index=index,
                    offset=places[0],
                    length=places[-1] - places[0] + 1,
                    tokens=len(places),
                    resized=facts.resized,
                    grid=facts.grid,
                    tensors=facts.tensors,
                )
            )
    return tuple(sorted(spans, key=lambda span: span.offset))


def runs_of(positions: Sequence[int]) -> list[list[int]]:
    """Split the positions into runs of consecutive numbers."""
    runs: list[list[int]] = []
    for at in positions:
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs


def _divided(
    positions: Sequence[int], items: Sequence[MediaItem], tokens_alone: TokensAlone
) -> Iterator[Sequence[int]]:
    count = len(items)
    if not count or not positions:
        return
    runs = runs_of(positions)
    if count == 1:
        yield positions
    elif len(runs) == count:
        yield from runs
    else:
        counts = tokens_alone(items)
        if len(counts) == count and sum(counts) == len(positions):
            ends = list(accumulate(counts))
            yield from (positions[end - length : end] for end, length in zip(ends, counts, strict=True))


def item_tensors(
    outputs: Mapping[str, Any], modality: Modality, index: int, count: int, tokens: Sequence[int] = ()
) -> dict[str, Any]:
    """Return the tensors of one item, number `index` of `count` items of this modality. `tokens`: how many tokens each
    item takes; they divide a list of all items' tiles."""
    grid = next((outputs[name] for name in _GRIDS[modality] if name in outputs), None)
    found: dict[str, Any] = {}
    for name, value in outputs.items():
        if ("video" in name) != (modality == "video") or not hasattr(value, "shape"):
            continue
        rows = len(value) if value.ndim else 0
        if grid is not None and len(grid) == count and rows == int(grid.prod(-1).sum()):
            sizes = grid.prod(-1).tolist()
            start = sum(sizes[:index])
            found[name] = value[start : start + sizes[index]]
        elif rows == count:
            found[name] = value[index]
        elif rows == 1 and value.ndim > 1 and value.shape[1] == count:  # shape (1 prompt, images, …)
            found[name] = value[0, index]
        elif name in PIXELS and tokens:
            tiles = value[0] if value.ndim == 5 and rows == 1 else value
            ends = [len(tiles) * one / sum(tokens) for one in accumulate(tokens, initial=0)]
            if all(one.is_integer() for one in ends):
                found[name] = tiles[int(ends[index]) : int(ends[index + 1])]
    return _unpadded(found)


def _unpadded(found: dict[str, Any]) -> dict[str, Any]:
    """Crop an item's pixels to its `image_sizes`, as models such as Pixtral do: the processor pads all images to the
    size of the largest. Tiles stay unchanged, because their `image_sizes` are those of the whole image."""
    pixels, sizes = found.get("pixel_values"), found.get("image_sizes")
    if pixels is None or sizes is None or pixels.ndim != 3 or tuple(sizes.shape) != (2,):
        return found
    height, width = (int(side) for side in sizes)
    if not (0 < height <= pixels.shape[1] and 0 < width <= pixels.shape[2]):
        return found
    return {**found, "pixel_values": pixels[:, :height, :width]}


_TEXT_INPUTS = ("input_ids", "attention_mask")
_OF_THE_PROMPT = (*_TEXT_INPUTS, "mm_token_type_ids", "token_type_ids", "cross_attention_mask")
"""Outputs of the processor that belong to the prompt, not to an attachment."""
_PART_NAMES = ("'type': 'image'", "'type': 'video'", '"type": "image"', '"type": "video"')
"""Texts in a rendered prompt which show that the template expects strings, but has printed a list of content
parts."""


class PromptInputs(msgspec.Struct, frozen=True):
    ids: tuple[int, ...]
    tensors: dict[str, Any]
    """Arguments of `generate`, by name; on the CPU."""
    media: tuple[MediaSpan, ...]
    text: str = ""
    """The prompt's text before tokenizing."""


class PromptBuilder:
    """Builds the inputs of one model. Not thread-safe, because tokenizers are not."""

    def __init__(
        self, processor: Any, tokenizer: Any, config: Any, arguments: Mapping[str, object] | None = None
    ) -> None:
        """`arguments`: processor arguments for every prompt."""
        self.processor = processor
        self._tokenizer = tokenizer
        self._arguments = arguments or {}
        # Llama 4's processor names the placeholder's token, and only the config that of a tile's patches.
        sources = (config, processor) if hasattr(processor, "img_patch_token") else (processor, config)
        self._tokens = media_tokens(*sources)
        self._patch_size = patch_size_of(config)

    @property
    def sources(self) -> list[Any]:
        """The objects that may have a chat template: the processor first, then the tokenizer."""
        return [one for one in (self.processor, self._tokenizer) if one is not None]

    async def render_chat(
        self,
        prompt: ChatPrompt,
        template: str | None,
        variables: Mapping[str, object] | None,
        processes: TemplateProcesses,
    ) -> str:
        """Return the prompt's text, rendered with `template` or, if None, with the model's own chat template.
        `variables`: variables of the chat template, by name."""
        messages = tuple(Message(role=turn.role, content=tuple(_parts(turn)) or turn.text) for turn in prompt.turns)
        made = MessagesPrompt(messages=messages, by="processor", chat_template=template)
        text = await render_messages(made, self.sources, variables, processes)
        if not any(name in text for name in _PART_NAMES):
            return text
        flat = tuple(Message(role=turn.role, content=self._as_text(turn)) for turn in prompt.turns)
        return await render_messages(msgspec.structs.replace(made, messages=flat), self.sources, variables, processes)

    async def render(
        self, prompt: MessagesPrompt, variables: Mapping[str, object] | None, processes: TemplateProcesses
    ) -> str:
        """Return the text of a prompt given as messages. `variables`: variables of the chat template, by name."""
        sources = self.sources if prompt.by == "processor" else [self._tokenizer]
        return await render_messages(prompt, sources, variables, processes)

    def build(
        self,
        text: str,
        items: Sequence[MediaItem],
        *,
        special_tokens: bool,
        arguments: Mapping[str, object] | None = None,
    ) -> PromptInputs:
        """Return the model's inputs. `special_tokens`: whether the tokenizer adds special tokens such as BOS.
        `arguments`: processor arguments for this prompt.

        Raises VlmtuiError if placeholders and attachments do not match, or any exception of the processor."""
        if items and arguments:
            check_arguments(self.processor, arguments)
        given = merged_arguments(self.processor, self._arguments, arguments or {})
        try:
            outputs = self._process(text, items, special_tokens, given)
        except StopIteration as error:  # asyncio cannot pass it on
            raise mismatch("The prompt has more placeholders than there are attachments.") from error
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
        given: dict[str, Any] = {"text": [text], "return_tensors": "pt", "add_special_tokens": special_tokens}
        given |= arguments
        if images := [item.data for item in items if item.modality == "image"]:
            given["images"] = images
        if videos := [item.data for item in items if item.modality == "video"]:
            given |= _videos(videos)
        outputs = self.processor(**given)
        return {name: value for name, value in outputs.items() if value is not None}

    def _tokens_alone(self, arguments: Mapping[str, object], items: Sequence[MediaItem]) -> list[int]:
        """Return the number of tokens of each item, by processing each item alone."""
        placeholder = getattr(self.processor, f"{items[0].modality}_token", None)
        if not placeholder:
            return []
        counts = []
        for item in items:
            ids = self._process(str(placeholder), [item], False, arguments)["input_ids"][0].tolist()
            counts.append(len(media_positions(ids, self._tokens, {item.modality})[item.modality]))
        return counts

    def _adds_to_text(self) -> bool:
        """Return True if the processor accepts a text without media. It may then add tokens to the text."""
        parameters = inspect.signature(type(self.processor).__call__).parameters
        images = parameters.get("images")
        return images is None or images.default is None

    def _as_text(self, turn: Turn) -> str:
        """Return a turn for a template that expects strings: the placeholders, then the text, as in vLLM."""
        placeholders = [str(getattr(self.processor, f"{item.modality}_token", "") or "") for item in turn.attachments]
        return "\n".join([*filter(None, placeholders), turn.text])

    def _check(self, positions: Mapping[Any, Sequence[int]], items: Sequence[MediaItem]) -> None:
        wanted = Counter(item.modality for item in items)
        for modality in VISUAL:
            count = len(positions[modality])
            if not wanted[modality] and count:
                raise mismatch(f"The prompt has placeholders for a {modality}, and none is attached.")
            is_known = self._tokens[modality] or (modality == "video" and self._tokens["image"])
            if wanted[modality] and is_known and count < wanted[modality]:
                raise mismatch(f"The prompt has fewer placeholders than {modality}s.")


def check_limits(items: Sequence[MediaItem], limits: Mapping[Any, int]) -> None:
    """Raise VlmtuiError(BAD_INPUT) if there are more items of a modality than the engine's limit."""
    for modality, count in Counter(item.modality for item in items).items():
        most = limits.get(modality, 0)
        if count > most:
            message = f"The model takes at most {most} {modality}s in one prompt, and {count} are attached."
            if modality == "audio":
                raise bad_input("This engine takes no audio yet.", hint="Use vLLM, or remove the audio.")
            raise bad_input(message, hint="Start a new chat, or remove an attachment.")


def _parts(turn: Turn) -> Iterator[dict[str, object]]:
    """Yield the content parts of a turn with attachments. Yields nothing for a turn without attachments, whose content
    is a plain string."""
    for part in turn.parts if turn.attachments else ():
        yield {"type": "text", "text": part.text} if isinstance(part, Text) else {"type": part.attachment.modality}


def _videos(videos: Sequence[Any]) -> dict[str, Any]:
    known = ("total_num_frames", "fps", "duration", "frames_indices", "video_backend")
    metadata = [
        {**{name: about[name] for name in known}, "height": frames.shape[1], "width": frames.shape[2]}
        for frames, about in videos
    ]
    return {"videos": [frames for frames, _ in videos], "video_metadata": metadata, "do_sample_frames": False}


def seen_media(
    inputs: PromptInputs, items: Sequence[MediaItem], processor: Any, request_id: str, view: View
) -> tuple[SeenMedium, ...]:
    """Write every processed image and video frame as the model sees it into the view's folder. Blocking.

    Raises VlmtuiError if the folder is not private, or a file cannot be written.
    """
    seen = []
    places = {(span.modality, span.index): (span.offset, span.length) for span in inputs.media}
    for modality in VISUAL:
        count = sum(item.modality == modality for item in items)
        how = normalisation_of(processor, modality)
        ids = [inputs.ids[one.offset : one.offset + one.length] for one in inputs.media if one.modality == modality]
        tokens = [Counter(one).most_common(1)[0][1] for one in ids] if len(ids) == count else []
        for index in range(count):
            data = item_tensors(inputs.tensors, modality, index, count, tokens)
            where = places.get((modality, index))
            ranges = [where] if where is not None else []
            seen.append(
                write_seen(data, how, modality=modality, index=index, ranges=ranges, view=view, request_id=request_id)
            )
    return tuple(seen)
