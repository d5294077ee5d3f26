"""Checks that the prompt has exactly one placeholder per attachment. vLLM itself accepts extra ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.hf.media_items import MediaItem
from vlmtui.worker.hf.media_spans import MODALITIES

_HINT = "Use exactly one placeholder for each attachment."
_ID_FIELDS = {
    "image": ("image_token_id", "image_token_index"),
    "video": ("video_token_id", "video_token_index"),
    "audio": ("audio_token_id", "audio_token_index"),
}
"""Config fields that hold the id of the image, video or audio token."""


def check_placeholders(rendered: Mapping[str, Any], items: Sequence[MediaItem], config: Any, tokenizer: Any) -> None:
    """Raise VlmtuiError(PLACEHOLDER_MISMATCH) unless every item has its span of tokens and no media token is left over.

    `rendered` is the engine's input: `prompt_token_ids`, and `mm_placeholders` by modality. A mismatch would feed the
    model garbage or crash the engine.
    """
    spans: Mapping[str, Sequence[Any]] = rendered.get("mm_placeholders") or {}
    wanted = Counter(item.modality for item in items)
    for modality in MODALITIES:
        found = len(spans.get(modality, ()))
        if found != wanted[modality]:
            raise _mismatch(f"The prompt has {found} {modality} placeholders for {wanted[modality]} {modality}s.")
    covered: set[int] = set()
    for group in spans.values():
        for span in group:
            covered.update(range(span.offset, span.offset + span.length))
    for kind, names in _ID_FIELDS.items():
        token = next((value for name in names if isinstance(value := getattr(config, name, None), int)), None)
        if token is None:
            continue
        for position, found_id in enumerate(rendered["prompt_token_ids"]):
            if found_id == token and position not in covered:
                text = tokenizer.decode([token], skip_special_tokens=False)
                message = f"{text} (token {position} of the prompt) does not match any attached {kind}."
                raise _mismatch(message)


def _mismatch(message: str) -> VlmtuiError:
    return VlmtuiError(ErrorKind.PLACEHOLDER_MISMATCH, message, hint=_HINT)
