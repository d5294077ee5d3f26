"""A comparison as one web page."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable

import msgspec

from vlmtui.inspection.markdown_export import answered_by, difference_lines, run_facts, side_facts, side_title
from vlmtui.inspection.marked_runs import Run, answer_runs, prompt_runs
from vlmtui.inspection.replay import Comparison, MediaRecord
from vlmtui.web_page import render_page

_SHOWN_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
"""Image types that cannot contain a script."""


def export_html(comparison: Comparison, read_media: Callable[[MediaRecord], bytes | None]) -> str:
    """Return the page: the images, the sides beside each other, and the settings of the run.

    `read_media` returns an attachment's bytes, or None if they are gone; it is called where the document does not embed
    them. Only PNG, JPEG, WebP and GIF are shown, everything else is named.
    """
    given = [
        _figure(item, item.content if item.data is not None else read_media(item)) for item in comparison.attachments
    ]
    prompts, answers = prompt_runs(comparison), answer_runs(comparison)
    sides = [
        {
            "title": side_title(side),
            "facts": " · ".join(filter(None, (engine, side_facts(side)))),
            "prompt": _spaced(prompt),
            "failure": side.failure,
            "answer": _spaced(answer),
        }
        for side, engine, prompt, answer in zip(
            comparison.sides, answered_by(comparison), prompts, answers, strict=True
        )
    ]
    return render_page(
        "comparison.html",
        title=f"Comparison: {comparison.model}",
        given=given,
        difference=[line[:1].upper() + line[1:] for line in difference_lines(comparison)],
        sides=sides,
        facts=run_facts(comparison),
    )


def _figure(item: MediaRecord, content: bytes | None) -> dict[str, str]:
    figure = {"name": item.name, "modality": item.modality, "url": "", "missing": ""}
    if content is None:
        figure["missing"] = "no longer available"
    elif item.modality != "image" or item.media_type not in _SHOWN_TYPES:
        figure["missing"] = f"{len(content):,} bytes"
    else:
        figure["url"] = f"data:{item.media_type};base64,{base64.b64encode(content).decode()}"
    return figure


def _spaced(runs: Iterable[Run]) -> list[Run]:
    """Make white space visible in runs that differ."""
    return [
        msgspec.structs.replace(run, text=run.text.replace("\n", "↵\n").replace(" ", "·").replace("\t", "⇥"))
        if run.differs and not run.text.strip()
        else run
        for run in runs
    ]
