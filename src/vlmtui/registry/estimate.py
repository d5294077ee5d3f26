"""Estimate the tokens of an attachment before a model is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping

from vlmtui.domain.attachment import Attachment, Modality, VideoSampling
from vlmtui.registry.match import engine_args_of
from vlmtui.registry.schema import Family

_NO_MATTER = frozenset({"fps"})
"""Settings of a processor that change no count: frames are sampled before it gets them."""


def estimated_tokens(
    family: Family, attachment: Attachment, *, settings: Mapping[str, object] | None = None
) -> int | None:
    """About how many tokens of the prompt an attachment takes, by the family's record; None where it does not say.

    `settings`: the engine argument `mm_processor_kwargs`; where not given, that of a conversation of several images,
    which the record has. A setting that the record's rule cannot reckon with makes the count unknown.
    """
    size = attachment.width, attachment.height
    return tokens_of_size(family, attachment.modality, size, frames=frames_of(attachment), settings=settings)


def tokens_of_size(
    family: Family,
    modality: Modality,
    size: tuple[int, int],
    *,
    frames: int = 1,
    settings: Mapping[str, object] | None = None,
) -> int | None:
    """As `estimated_tokens`, of what is not attached yet: width and height in pixels, and how many frames of a video
    are to be sent."""
    takes = family.takes.get(modality)
    rule = takes.tokens if takes is not None else None
    if settings is None:
        found = engine_args_of(family).get("mm_processor_kwargs")
        settings = found if isinstance(found, dict) else {}
    if rule is None or min(size) < 1 or not settings.keys() <= rule.knows | _NO_MATTER:
        return None
    if modality == "video":
        return rule.of_video(*size, frames, settings)
    return rule.of_image(*size, settings)


def frames_of(attachment: Attachment) -> int:
    """About how many frames of a video are sent: as many as are asked for, though it may have fewer."""
    sampling = attachment.sampling or VideoSampling()
    if sampling.fps is None:
        return sampling.num_frames
    end = sampling.end_s if sampling.end_s is not None else attachment.duration_s or 0.0
    return max(1, math.ceil((end - sampling.start_s) * sampling.fps))
