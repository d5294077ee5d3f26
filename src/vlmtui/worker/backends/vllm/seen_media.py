"""Writes what the model sees of a prompt's attachments. Does not import vLLM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vlmtui.domain.generation import GenerateRequest, SeenMedium
from vlmtui.errors import bad_input
from vlmtui.paths import is_private_dir
from vlmtui.worker.hf.media_spans import PICTURES
from vlmtui.worker.hf.seen_pixels import normalisation_of, write_seen


def seen_media(rendered: Mapping[str, Any], processor: Any, request: GenerateRequest) -> tuple[SeenMedium, ...]:
    """Write the pictures of every attachment into the request's folder. `rendered` is the engine's input. Blocking.

    Raises VlmtuiError if the folder is not private, or a file cannot be written.
    """
    folder = Path(request.view)
    if not folder.is_absolute() or not is_private_dir(folder):
        raise bad_input("The folder for what the model sees is not a private folder of yours.")
    return tuple(_seen(rendered, processor, folder, request.request_id, request.values))


def _seen(
    rendered: Mapping[str, Any], processor: Any, folder: Path, prefix: str, with_values: bool
) -> Iterator[SeenMedium]:
    prefix = "".join(char for char in prefix if char.isascii() and char.isalnum())[:64]
    for modality in PICTURES:
        items = (rendered.get("mm_kwargs") or {}).get(modality, ())
        places = (rendered.get("mm_placeholders") or {}).get(modality, ())
        how = normalisation_of(processor, modality)
        for index, item in enumerate(items):
            data = {name: element.data for name, element in (item or {}).items() if element.data is not None}
            ranges = _runs(places[index]) if index < len(places) else []
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
