"""Writes what the model sees of a prompt's attachments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vlmtui.domain.generation import GenerateRequest, SeenMedium
from vlmtui.worker.backends.transformers.media_places import item_tensors
from vlmtui.worker.backends.transformers.prompt_inputs import PromptInputs
from vlmtui.worker.hf.media_items import MediaItem
from vlmtui.worker.hf.media_spans import PICTURES
from vlmtui.worker.hf.seen_pixels import normalisation_of, view_folder, write_seen


def seen_media(
    inputs: PromptInputs, items: Sequence[MediaItem], processor: Any, request: GenerateRequest
) -> tuple[SeenMedium, ...]:
    """Write the pictures of every attachment into the request's folder. Blocking.

    Raises VlmtuiError if the folder is not private, or a file cannot be written.
    """
    return tuple(_seen(inputs, items, processor, view_folder(request), request.request_id, request.values))


def _seen(
    inputs: PromptInputs, items: Sequence[MediaItem], processor: Any, folder: Path, prefix: str, with_values: bool
) -> Iterator[SeenMedium]:
    prefix = "".join(char for char in prefix if char.isascii() and char.isalnum())[:64]
    places = {(span.modality, span.index): (span.offset, span.length) for span in inputs.media}
    for modality in PICTURES:
        count = sum(item.modality == modality for item in items)
        how = normalisation_of(processor, modality)
        for index in range(count):
            data = item_tensors(inputs.tensors, modality, index, count)
            where = places.get((modality, index))
            ranges = [where] if where is not None else []
            yield write_seen(
                data,
                how,
                modality=modality,
                index=index,
                ranges=ranges,
                folder=folder,
                prefix=prefix,
                with_values=with_values,
            )
