"""`vlmtui ask --boxes`: the places and times that an answer names, drawn on the picture or video and as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vlmtui.cli.ask_engine import AskSetup
from vlmtui.cli.output import note
from vlmtui.domain.attachment import Attachment, Modality
from vlmtui.domain.prompt import Prompt, attachments_of
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.files import write_output
from vlmtui.inspection.grounding import PlacedMark, Size
from vlmtui.media.images import as_png
from vlmtui.registry.schema import Grounding
from vlmtui.session.answer_places import AnswerPlaces, draw_places, range_line, read_places, resized_by_rule
from vlmtui.text import one_line

_LISTED_MAX = 20
_PLAIN = frozenset({"json", "brackets", "point_tags"})
"""Formats that need no special tokens."""
_ANY = Grounding(format="json", scale="thousand", source="")
"""Stands for the convention where only times are read."""


class BoxReader(msgspec.Struct, frozen=True):
    """How the places of an answer are read, and on which picture or video they lie."""

    target: str
    grounding: Grounding | None
    """None: only times are read, of a video."""
    medium: Attachment
    resized: Size | None

    def write(self, answer: str) -> dict[str, object]:
        """Write the picture with the places, list them on stderr, and return them as JSON. Raises VlmtuiError."""
        places = self._places(answer)
        write_output(Path(self.target), as_png(draw_places(places)))
        for line in _listed(places):
            note(line)
        note(f"Written: {one_line(self.target)}")
        timed = {"time_ranges": places.ranges_json()} if self.medium.modality == "video" else {}
        unreadable = [answer[start:end] for start, end in places.unreadable]
        return {"boxes": places.places_json(), **timed, "unreadable_boxes": unreadable}

    def _places(self, answer: str) -> AnswerPlaces:
        grounding = self.grounding or _ANY
        is_unknown = self.grounding is None or (grounding.scale == "resized" and self.resized is None)
        if grounding.scale == "resized" and is_unknown:
            grounding = msgspec.structs.replace(grounding, scale="pixels")
        places = read_places(answer, (self.medium,), grounding, own=self.grounding, resized=self.resized)
        if not is_unknown or not places.marks:
            return places
        note(f"warning: {len(places.marks)} boxes are left out: how to read them in a video is unknown.")
        return msgspec.structs.replace(places, marks=())


def box_convention(
    setup: AskSetup, arguments: argparse.Namespace, attachments: Sequence[Attachment]
) -> Grounding | None:
    """Return how the model writes places; None where the answer is about a video and no record says it. Raises
    VlmtuiError if it is about an image."""
    family = setup.model.family
    if arguments.boxes_like is not None:
        records = {record.family: record for record in setup.application.registry.values()}
        if arguments.boxes_like not in records:
            raise VlmtuiError(ErrorKind.BAD_USAGE, f"{one_line(arguments.boxes_like)} is no family of models.")
        family = records[arguments.boxes_like]
    if family.grounding is None and _of(attachments, "image"):
        known = ", ".join(sorted(record.family for record in setup.application.registry.values() if record.grounding))
        raise bad_input(
            f"The record of {family.title} does not say how its models write coordinates.",
            hint=f"Read them as those of another family, with --boxes-like: {known}.",
        )
    return family.grounding


def with_special_tokens(sampling: Sampling, grounding: Grounding | None) -> Sampling:
    """Keep the special tokens in the answer, if the places are written with them."""
    is_plain = grounding is None or grounding.format in _PLAIN
    return sampling if is_plain else msgspec.structs.replace(sampling, skip_special_tokens=False)


def box_reader(setup: AskSetup, prompt: Prompt, arguments: argparse.Namespace) -> BoxReader | None:
    """Return how to read the boxes; None if they are not asked for. Raises VlmtuiError if they cannot be read."""
    if arguments.boxes is None:
        return None
    attachments = attachments_of(prompt)
    grounding = box_convention(setup, arguments, attachments)
    shown = _of(attachments, "image") or _of(attachments, "video")
    if len(shown) != 1:
        raise bad_input(f"--boxes draws on one image or one video; {len(shown)} are attached.")
    medium = shown[0]
    is_resized = grounding is not None and grounding.scale == "resized" and medium.modality == "image"
    settings = setup.model.spec.engine_args.get("mm_processor_kwargs")
    resized = resized_by_rule(setup.model.family, medium, settings) if is_resized else None
    if is_resized and resized is None:
        raise bad_input(
            "These coordinates are pixels of the resized picture, and its size is unknown.",
            hint="The model's record has no rule for it, or none for the mm_processor_kwargs that are set.",
        )
    return BoxReader(arguments.boxes, grounding, medium, resized)


def _of(attachments: Sequence[Attachment], modality: Modality) -> list[Attachment]:
    return [item for item in attachments if item.modality == modality]


def _listed(places: AnswerPlaces) -> list[str]:
    lines = [f"{number} {_place_text(one)}" for number, one in enumerate(places.placed[:_LISTED_MAX], 1)]
    lines += [range_line(one.start_s, one.end_s, one.label) for one in places.ranges[:_LISTED_MAX]]
    left_out = len(places.marks) + len(places.ranges) - len(lines)
    if left_out:
        lines.append(f"and {left_out} more")
    if places.unreadable:
        lines.append(f"warning: {len(places.unreadable)} could not be read.")
    times = " and no times" if places.image.modality == "video" else ""
    return lines or [f"The answer has no boxes in the format of the model's family{times}."]


def _place_text(one: PlacedMark) -> str:
    return f"{one_line(one.mark.label) or one.mark.kind}: " + ", ".join(f"{value:.0f}" for value in one.xyxy)
