"""`vlmtui lint`: checks a model's chat template and tokenizer."""

from __future__ import annotations

import argparse

from vlmtui.bootstrap import build
from vlmtui.cli.engine import add_trust_option
from vlmtui.cli.output import note, print_error, print_json
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.lint.finding import LintFinding
from vlmtui.registry.match import resolve
from vlmtui.session.lint import LintReport, lint_model
from vlmtui.text import counted, one_line

CANNOT = 2
"""Exit code: can't check the model."""
_ABOUT = """\
Render the model's chat template with canned conversations and check what it writes: BOS, placeholders, texts, roles,
generation prompt, end of turn, stable prefixes, special tokens, white space, and differences from the model's record
and between its files. Only the tokenizer is loaded, in a process with limits and without network.
"""
_CODES = "exit codes: 0 no finding, 1 findings, 2 can't check"


def fill_lint(lint: argparse.ArgumentParser) -> None:
    lint.description, lint.epilog = _ABOUT, _CODES
    lint.formatter_class = argparse.RawDescriptionHelpFormatter
    lint.add_argument(
        "model",
        metavar="MODEL",
        help="a downloaded repository, a local folder, or a family (its record is checked if its model is not "
        "downloaded)",
    )
    lint.add_argument("--json", action="store_true", help="print one JSON object")
    add_trust_option(lint)


def lint(arguments: argparse.Namespace) -> int:
    """Print the findings. Return 0 if there are none, 1 if there are, 2 if the model can't be checked."""
    try:
        application = build(tell=note)
        model = resolve(application.registry, arguments.model, to_load=False)
        report = lint_model(model, application.reader, trust_remote_code=arguments.trust_remote_code)
    except VlmtuiError as error:
        print_error(error)
        return CANNOT
    if arguments.json:
        print_json(report_json(report))
    else:
        _print(report)
    return 1 if report.findings else 0


def report_json(report: LintReport) -> dict[str, object]:
    """Return the report for `--json`."""
    return {
        "model": report.model,
        "family": report.family or None,
        "folder": report.folder or None,
        "templates": list(report.templates),
        "tokenizer": report.tokenizer or None,
        "conversations": list(report.conversations),
        "findings": [_finding_json(one) for one in report.findings],
    }


def _finding_json(found: LintFinding) -> dict[str, object]:
    return {
        "kind": found.kind.value,
        "message": found.message,
        "template": found.source or None,
        "line": found.line,
        "conversation": found.conversation or None,
        "token": found.token or None,
        "excerpt": found.excerpt or None,
        "why": found.why,
        "mend": found.mend,
    }


def _print(report: LintReport) -> None:
    for found in report.findings:
        print(f"{found.kind.value}: {one_line(found.message)}")
        shown = found.place + (f" · {found.conversation}" if found.conversation else "")
        for label, text in (("where", shown), ("prompt", found.excerpt), ("why", found.why), ("mend", found.mend)):
            if text:
                print(f"    {label:<7} {one_line(text)}")
    of = f"the record of {report.family}" if not report.folder else report.model
    said = counted(len(report.findings), "finding") if report.findings else "no finding"
    note(f"{of}: {said} in {one_line(report.scope)}." if report.templates else f"{of}: {said}, no template.")
    if not report.folder:
        note("Its model is not downloaded: the template that the record generates was checked.")
