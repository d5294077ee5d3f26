"""Estimates the tokens of an attachment before a model is loaded."""

from __future__ import annotations

from collections.abc import Mapping

from vlmtui.domain.conversation import Attachment, Modality, VideoSampling
from vlmtui.media.sampling import most_frames
from vlmtui.registry.match import engine_args_of
from vlmtui.registry.schema import Family

_IRRELEVANT = frozenset({"fps"})
"""Processor arguments that do not affect the count: frames are sampled before the processor gets them."""


def estimated_tokens(
    family: Family, attachment: Attachment, *, settings: Mapping[str, object] | None = None
) -> int | None:
    """Estimate an attachment's prompt tokens by the rule in the family's TOML record; None if it has no rule.

    `settings`: the engine argument `mm_processor_kwargs`; default: the record's value. The count is unknown (None) if
    the rule does not support a setting.
    """
    size = attachment.width, attachment.height
    return tokens_of_size(family, attachment.modality, size, frames=frames_of(attachment), settings=settings)


def settings_of(family: Family, images: int = 1, engine_args: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return the processor arguments for a prompt with this number of images. `engine_args`: those of the load;
    default: the record's."""
    found = (engine_args_of(family) if engine_args is None else engine_args).get("mm_processor_kwargs")
    return {**(found if isinstance(found, dict) else {}), **(family.processor_several if images > 1 else {})}


def tokens_of_size(
    family: Family,
    modality: Modality,
    size: tuple[int, int],
    *,
    frames: int = 1,
    settings: Mapping[str, object] | None = None,
) -> int | None:
    """Estimate the tokens as `estimated_tokens` does, for a width and height in pixels and a number of video frames."""
    takes = family.takes.get(modality)
    rule = takes.tokens if takes is not None else None
    if settings is None:
        settings = settings_of(family)
    if rule is None or min(size) < 1 or not settings.keys() <= rule.knows | _IRRELEVANT:
        return None
    if modality == "video":
        return rule.of_video(*size, frames, settings)
    return rule.of_image(*size, settings)


def frames_of(attachment: Attachment) -> int:
    return most_frames(attachment.sampling or VideoSampling(), attachment.duration_s or 0.0)
