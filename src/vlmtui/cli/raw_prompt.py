"""Reads a user's raw prompt and checks it before it is sent."""

from __future__ import annotations

from collections.abc import Iterable

from vlmtui.cli.inputs import TEXT_BYTES_MAX, read_input
from vlmtui.cli.output import note
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.prompt import RawPrompt
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.inspection.findings import Finding, FindingKind
from vlmtui.inspection.raw_prompt_check import check_raw
from vlmtui.registry.schema import Family

_NEVER = frozenset({FindingKind.TOO_FEW, FindingKind.NOT_TAKEN})
"""Findings that --force does not override: an attachment without a placeholder may crash the engine."""


def read_raw_prompt(given: str) -> str:
    """Return the text verbatim, including a final line break; from a file for `@FILE`, from stdin for `@-`."""
    if not given.startswith("@"):
        text = given
    else:
        name = given[1:]
        try:
            text = read_input(name, bytes_max=TEXT_BYTES_MAX).decode()
        except UnicodeDecodeError as error:
            raise bad_input(f"The raw prompt in {name} is not UTF-8 text.", detail=str(error)) from error
    if not text.strip():
        raise VlmtuiError(ErrorKind.BAD_USAGE, "The raw prompt is empty.")
    return text


def check(
    prompt: RawPrompt, family: Family, info: EngineInfo | None, families: Iterable[Family], *, force: bool
) -> None:
    """Print the findings about a raw prompt to stderr. Raises VlmtuiError(BAD_INPUT) if it must not be sent.

    Without `info`, before anything is loaded, only findings that would block it are printed.
    """
    found = check_raw(
        prompt.text,
        prompt.attachments,
        family,
        special_tokens=frozenset(info.special_tokens if info else ()),
        stop_tokens=info.stop_tokens if info else (),
        bos=info.bos_token if info else None,
        adds_bos=info.adds_bos if info else True,
        families=families,
    )
    blocking = [finding for finding in found if finding.blocks and (finding.kind in _NEVER or not force)]
    for finding in found:
        if blocking or info is not None:
            _tell(finding, prompt.text)
    if blocking:
        never = any(finding.kind in _NEVER for finding in blocking)
        hint = "Every attachment needs its placeholder." if never else "--force sends it regardless."
        raise bad_input("The raw prompt was not sent.", hint=hint)


def _tell(finding: Finding, text: str) -> None:
    line = text.count("\n", 0, finding.start) + 1
    column = finding.start - (text.rfind("\n", 0, finding.start) + 1) + 1
    note(f"raw prompt, line {line}, column {column}: {finding.message}")
    if finding.fix is not None:
        note(f"    fix: {finding.fix.label}")
