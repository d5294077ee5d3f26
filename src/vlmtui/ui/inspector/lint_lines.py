"""Findings about a chat template as styled lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.content import Content

from vlmtui.inspection.lint.finding import LintFinding
from vlmtui.session.lint import LintReport
from vlmtui.text import one_line
from vlmtui.ui.document.blocks import TextBlock, fact

_LABEL = 8


def finding_line(found: LintFinding) -> Content:
    """Return a finding in one line: its template's line, and what is wrong."""
    place = f"line {found.line}: " if found.line is not None else ""
    return Content.assemble(("! ", "bold $text-warning"), (place, "$muted"), one_line(found.message))


def finding_details(found: LintFinding) -> list[TextBlock]:
    """Return everything about a finding."""
    message = TextBlock(Content.styled(one_line(found.message), "bold $text-warning"))
    return [message, *(fact(label, one_line(text), _LABEL) for label, text in _facts(found))]


def findings_text(report: LintReport) -> str:
    """Return the findings as plain text, to be copied."""
    lines: list[str] = []
    for found in report.findings:
        lines.append(one_line(found.message))
        lines += [label.ljust(_LABEL) + one_line(text) for label, text in _facts(found)]
        lines.append("")
    return "\n".join(lines)


def _facts(found: LintFinding) -> list[tuple[str, str]]:
    facts = [
        ("where", " · ".join(filter(None, (found.place, found.conversation)))),
        ("prompt", found.excerpt),
        ("why", found.why),
        ("mend", found.mend),
    ]
    return [(label, text) for label, text in facts if text]


def summary(report: LintReport) -> str:
    """Return what was checked, and how many findings there are."""
    count = len(report.findings)
    said = "no finding" if count == 0 else f"{count} finding{'s' if count > 1 else ''}"
    return f"{said} · {one_line(report.scope)}"


def marked_lines(findings: Sequence[LintFinding], template: str) -> Iterator[int]:
    """Yield the indices of the template's lines that findings are about."""
    yield from (found.line - 1 for found in findings if found.line is not None and found.source == template)
