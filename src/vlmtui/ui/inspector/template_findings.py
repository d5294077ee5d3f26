"""What is wrong with the loaded model's chat template, above it in the inspector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual import on, work
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from vlmtui.errors import VlmtuiError
from vlmtui.session.lint import LintReport, lint_outcome
from vlmtui.text import one_line
from vlmtui.ui.inspector.lint_lines import finding_line, summary


class TemplateFindings(Static):
    """Hidden until `check` was called. The model is checked once."""

    @dataclass
    class Checked(Message):
        """What the check found, or why it failed."""

        outcome: LintReport | VlmtuiError

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.report: LintReport | None = None
        self._has_begun = False

    def check(self, lint: Callable[[], LintReport] | None) -> None:
        """Check the model, unless that was done; `lint` blocks."""
        if lint is None or self._has_begun:
            return
        self._has_begun = True
        self.display = True
        self.update(Content.styled("Checking the template …", "$muted"))
        self._check(lint)

    @on(Checked)
    def _checked(self, event: Checked) -> None:
        event.stop()
        if isinstance(event.outcome, VlmtuiError):
            self.update(Content.styled(f"Not checked: {one_line(event.outcome.message)}", "$muted"))
            return
        report = self.report = event.outcome
        lines = [Content.styled(f"Checked: {summary(report)}", "$muted"), *map(finding_line, report.findings)]
        self.update(Content("\n").join(lines))

    @work(thread=True, group="check", exclusive=True)
    def _check(self, lint: Callable[[], LintReport]) -> None:
        self.post_message(self.Checked(lint_outcome(lint)))
