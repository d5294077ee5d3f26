"""Writes what the model sees of a prompt's attachments. Does not import vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from vlmtui.domain.generation import RenderRequest, SeenMedium, View
from vlmtui.worker.hf.blank_media import BLACK, WHITE, blank_items, measured
from vlmtui.worker.hf.media_items import MediaItem
from vlmtui.worker.hf.media_spans import PICTURES
from vlmtui.worker.hf.seen_pixels import normalisation_of, view_folder, write_seen


class Render(Protocol):
    """Makes the engine's input of a request and its attachments."""

    async def __call__(self, request: RenderRequest, items: list[MediaItem], *, is_sent: bool) -> Any: ...


async def seen_media(
    request: RenderRequest,
    view: View,
    items: list[MediaItem],
    rendered: Mapping[str, Any],
    processor: Any,
    render: Render,
) -> tuple[SeenMedium, ...]:
    """Write the pictures of every attachment into the view's folder. `rendered` is the engine's input.

    A processor that does not say how it normalises is given black and white attachments. Raises VlmtuiError if the
    folder is not private, or a file cannot be written.
    """
    seen = await asyncio.to_thread(_write, request.request_id, view, rendered, (), processor)
    if all(medium.is_exact for medium in seen):
        return seen
    blank = [await render(request, blank_items(items, level), is_sent=False) for level in (BLACK, WHITE)]
    return await asyncio.to_thread(_write, request.request_id, view, rendered, blank, processor)


def _write(
    request_id: str, view: View, rendered: Mapping[str, Any], blank: Sequence[Mapping[str, Any]], processor: Any
) -> tuple[SeenMedium, ...]:
    folder = view_folder(view)
    prefix = "".join(char for char in request_id if char.isascii() and char.isalnum())[:64]
    seen = []
    for modality in PICTURES:
        blanks = [_data(one, modality) for one in blank]
        places = (rendered.get("mm_placeholders") or {}).get(modality, ())
        how = normalisation_of(processor, modality)
        for index, data in enumerate(_data(rendered, modality)):
            written = write_seen(
                data,
                measured(how, *(one[index] for one in blanks)) if blanks else how,
                modality=modality,
                index=index,
                ranges=_runs(places[index]) if index < len(places) else [],
                folder=folder,
                prefix=prefix,
                with_values=view.values,
            )
            seen.append(written)
    return tuple(seen)


def _data(rendered: Mapping[str, Any], modality: str) -> list[dict[str, Any]]:
    """Return the processor's tensors of each attachment."""
    items = (rendered.get("mm_kwargs") or {}).get(modality, ())
    return [
        {name: element.data for name, element in (item or {}).items() if element.data is not None} for item in items
    ]


def _runs(place: Any) -> list[tuple[int, int]]:
    """Return offset and length of each run of embeddings in a placeholder's tokens."""
    mask = getattr(place, "is_embed", None)
    if mask is None:
        return [(place.offset, place.length)]
    runs: list[tuple[int, int]] = []
    for at, is_embed in enumerate(mask.tolist()):
        if is_embed and runs and runs[-1][0] + runs[-1][1] == place.offset + at:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        elif is_embed:
            runs.append((place.offset + at, 1))
    return runs
