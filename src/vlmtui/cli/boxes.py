"""`vlmtui ask --boxes`: the places that an answer names, drawn on the picture and as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vlmtui.cli.ask_engine import AskSetup
from vlmtui.cli.output import note
from vlmtui.domain.attachment import Attachment
from vlmtui.domain.prompt import Prompt, attachments_of
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.files import write_output
from vlmtui.inspection.grounding import PlacedMark, Size, find_marks, place_mark
from vlmtui.inspection.grounding_picture import draw_marks
from vlmtui.media.images import as_png, open_prepared
from vlmtui.registry.schema import Grounding
from vlmtui.session.answer_places import resized_by_rule
from vlmtui.text import one_line

_LISTED_MAX = 20
_PLAIN = frozenset({"json", "brackets", "point_tags"})
"""Formats that need no special tokens."""


class BoxReader(msgspec.Struct, frozen=True):
    """How the places of an answer are read, and on which picture they lie."""

    target: str
    grounding: Grounding
    image: Attachment
    resized: Size | None

    def write(self, answer: str) -> dict[str, object]:
        """Write the picture with the places, list them on stderr, and return them as JSON. Raises VlmtuiError."""
        found = find_marks(answer, self.grounding)
        size = self.image.width, self.image.height
        placed = [place_mark(mark, self.grounding.scale, size, self.resized) for mark in found.marks]
        write_output(Path(self.target), as_png(draw_marks(open_prepared(self.image.path), placed)))
        for line in _listed(placed, len(found.unreadable)):
            note(line)
        note(f"Written: {one_line(self.target)}")
        return {
            "boxes": [_box_json(one, answer) for one in placed],
            "unreadable_boxes": [answer[start:end] for start, end in found.unreadable],
        }


def box_convention(setup: AskSetup, arguments: argparse.Namespace) -> Grounding:
    """Return how the model writes places. Raises VlmtuiError if no record says it."""
    family = setup.model.family
    if arguments.boxes_like is not None:
        records = {record.family: record for record in setup.application.registry.values()}
        if arguments.boxes_like not in records:
            raise VlmtuiError(ErrorKind.BAD_USAGE, f"{one_line(arguments.boxes_like)} is no family of models.")
        family = records[arguments.boxes_like]
    if family.grounding is None:
        known = ", ".join(sorted(record.family for record in setup.application.registry.values() if record.grounding))
        raise bad_input(
            f"The record of {family.title} does not say how its models write coordinates.",
            hint=f"Read them as those of another family, with --boxes-like: {known}.",
        )
    return family.grounding


def with_special_tokens(sampling: Sampling, grounding: Grounding) -> Sampling:
    """Keep the special tokens in the answer, if the places are written with them."""
    return sampling if grounding.format in _PLAIN else msgspec.structs.replace(sampling, skip_special_tokens=False)


def box_reader(setup: AskSetup, prompt: Prompt, arguments: argparse.Namespace) -> BoxReader | None:
    """Return how to read the boxes; None if they are not asked for. Raises VlmtuiError if they cannot be read."""
    if arguments.boxes is None:
        return None
    grounding = box_convention(setup, arguments)
    images = [item for item in attachments_of(prompt) if item.modality == "image"]
    if len(images) != 1:
        raise bad_input(f"--boxes draws on one image; {len(images)} are attached.")
    settings = setup.model.spec.engine_args.get("mm_processor_kwargs")
    resized = resized_by_rule(setup.model.family, images[0], settings) if grounding.scale == "resized" else None
    if grounding.scale == "resized" and resized is None:
        raise bad_input(
            "These coordinates are pixels of the resized picture, and its size is unknown.",
            hint="The model's record has no rule for it, or none for the mm_processor_kwargs that are set.",
        )
    return BoxReader(arguments.boxes, grounding, images[0], resized)


def _listed(placed: Sequence[PlacedMark], unreadable: int) -> list[str]:
    lines = [
        f"{number} {one_line(one.mark.label) or one.mark.kind}: " + ", ".join(f"{value:.0f}" for value in one.xyxy)
        for number, one in enumerate(placed[:_LISTED_MAX], 1)
    ]
    if len(placed) > _LISTED_MAX:
        lines.append(f"and {len(placed) - _LISTED_MAX} more")
    if unreadable:
        lines.append(f"warning: {unreadable} could not be read.")
    return lines or ["The answer has no boxes in the format of the model's family."]


def _box_json(one: PlacedMark, answer: str) -> dict[str, object]:
    return {
        "kind": one.mark.kind,
        "label": one.mark.label,
        "xyxy": [round(value, 2) for value in one.xyxy],
        "clipped": one.is_clipped,
        "text": answer[one.mark.start : one.mark.end],
        "span": [one.mark.start, one.mark.end],
    }
