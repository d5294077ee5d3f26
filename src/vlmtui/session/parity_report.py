"""A comparison with the reference for scripts and as a web page, and where to look for each difference."""

from __future__ import annotations

import msgspec

from vlmtui.inspection.parity import CaseParity, Stage, StageResult
from vlmtui.inspection.pixel_values import PixelStep
from vlmtui.session.parity import ParityReport
from vlmtui.web_page import render_page

_WHERE: dict[Stage, str] = {
    Stage.TEXT: "The chat templates differ, or what they are given: `vlmtui lint MODEL` names a template's faults.",
    Stage.TOKENS: "The same text gives other tokens: compare the tokenizers' files, and who adds BOS.",
    Stage.PLACES: "The processors expand the placeholder differently: compare their sizes, tiles and token counts.",
    Stage.NEXT_TOKEN: "The inputs are the same and the numbers are not: weights, their names, number format, attention "
    "mask or positions.",
    Stage.ANSWER: "The first token agrees, later ones do not: the KV cache, or positions after the prompt.",
}
_WHERE_PIXELS: dict[PixelStep, str] = {
    PixelStep.COUNT: "The processors cut the image into other tiles: compare their limits of tiles.",
    PixelStep.SIZE: "The processors resize to another size: compare size, min_pixels and max_pixels.",
    PixelStep.NORMALISATION: "The values are a linear function of the reference's: compare image_mean, image_std and "
    "rescale_factor.",
    PixelStep.CHANNELS: "Red and blue are exchanged.",
    PixelStep.ROUNDING: "At most one level of 255: another library resizes, such as the slow processor's.",
    PixelStep.RESAMPLING: "Same size, other pixels: compare resample (bicubic, bilinear), crop and padding.",
}


def where_to_look(found: StageResult) -> str:
    """Return what to look at for a stage that differs."""
    if found.stage is Stage.PIXELS:
        return _WHERE_PIXELS[found.step] if found.step is not None else ""
    return _WHERE[found.stage]


def parity_json(report: ParityReport) -> dict[str, object]:
    """Return the report for scripts."""
    return {
        "model": report.model,
        "family": report.family or None,
        "engine": report.engine,
        "reference": report.reference,
        "first_difference": report.first.stage.value if report.first is not None else None,
        "known": report.reason or None,
        "complete": report.is_complete,
        "cases": [
            {
                "case": one.case,
                "mode": one.mode,
                "first_difference": one.first.stage.value if one.first is not None else None,
                "stages": [msgspec.to_builtins(stage) for stage in one.stages],
                "errors": list(one.errors),
            }
            for one in report.cases
        ],
    }


def parity_verdict(report: ParityReport) -> str:
    """Return the result in one sentence."""
    if report.first is None:
        left = f"; {report.unknown} stages could not be compared" if report.unknown else ""
        return f"No difference in {_count(len(report.cases), 'conversation')}{left}."
    case = next(one for one in report.cases if one.first == report.first)
    known = f" This is known: {report.reason}" if report.reason else ""
    return f"First difference: {report.first.stage.value} ({case_title(case)}): {report.first.message}.{known}"


def case_title(case: CaseParity) -> str:
    """Return `image · chat`."""
    return f"{case.case} · {case.mode}"


def parity_page(report: ParityReport) -> str:
    """Return the report as a web page."""
    cases = [
        {
            "title": case_title(case),
            "rows": [(one.stage.value, one.outcome.value, one.message, one == case.first) for one in case.stages],
            "where": where_to_look(case.first) if case.first is not None else "",
            "errors": case.errors,
        }
        for case in report.cases
    ]
    return render_page(
        "parity.html",
        title=f"Parity: {report.model}",
        facts=[("Engine", report.engine), ("Reference", report.reference)],
        verdict=parity_verdict(report),
        cases=cases,
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
