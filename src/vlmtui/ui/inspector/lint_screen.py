"""The screen with the faults that `vlmtui lint` finds in the model's chat template and tokenizer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.lint.finding import LintFinding
from vlmtui.session.lint import LintReport
from vlmtui.text import counted, one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.document.blocks import PromptBlock, TextBlock, fact
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.inspector.prompt_lines import template_lines
from vlmtui.ui.keys import error_text
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.search_bar import SearchBar, SearchScreen

_LABEL = 8


def finding_line(found: LintFinding) -> Content:
    """Return a finding on one line: the template's line number, and the message."""
    place = f"line {found.line}: " if found.line is not None else ""
    return Content.assemble(("! ", "bold $text-warning"), (place, "$muted"), one_line(found.message))


def findings_text(report: LintReport) -> str:
    """Return the findings as plain text for the clipboard."""
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
    """Return a line with the number of findings, and what was checked."""
    said = counted(len(report.findings), "finding") if report.findings else "no finding"
    return f"{said} · {one_line(report.scope)}"


class LintScreen(SearchScreen):
    """Lists the findings, with the template beside them. `lint`: checks the model and returns a report; it blocks.
    None: the model can't be checked."""

    CSS_PATH = "lint.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
    SCOPE = "findings"
    BINDINGS = bindings(SCOPE)

    def __init__(self, model: str, lint: Callable[[], LintReport] | None) -> None:
        super().__init__()
        self.report: LintReport | None = None
        """None until the check is finished."""
        self._model = model
        self._lint = lint
        self._shown = ""
        """The name of the template on the screen."""
        self._source = PromptBlock([])

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(f"Template · {one_line(self._model)}", id="title", markup=False)
            yield Static(id="about", markup=False)
        with Horizontal(id="body"):
            with Vertical(id="findings-side"):
                yield OptionList(id="findings", markup=False, compact=True)
                yield DocumentView(has_edge=False, id="details")
            yield DocumentView(can_focus=True, id="source")
        yield SearchBar()
        yield FooterBar()

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        self._check()

    @property
    def searched(self) -> DocumentView:
        return self.query_one("#source", DocumentView)

    @work(group="check", exclusive=True)
    async def _check(self) -> None:
        about = self.query_one("#about", Static)
        about.update("reading tokenizer and template …")
        try:
            if self._lint is None:
                raise VlmtuiError(ErrorKind.UNSUPPORTED, "Models can't be read here.")
            report = self.report = await asyncio.to_thread(self._lint)
        except VlmtuiError as error:
            about.update("not checked")
            self._tell(TextBlock(error_text(self.app, error)))
            return
        about.update(summary(report))
        findings = self.query_one(OptionList)
        findings.clear_options()
        findings.add_options([Option(finding_line(found)) for found in report.findings])
        findings.display = bool(report.findings)
        self._shown = ""
        if report.findings:
            findings.highlighted = 0
            findings.focus()
        else:
            of = "" if report.folder else " Its model is not downloaded: the template of its record was checked."
            self._tell(TextBlock(f"Nothing is wrong with this template.{of}"))
            self._show_source(None)
            self.searched.focus()

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if self.report is None or event.option_index >= len(self.report.findings):
            return
        found = self.report.findings[event.option_index]
        message = TextBlock(Content.styled(one_line(found.message), "bold $text-warning"))
        self._tell(message, *(fact(label, one_line(text), _LABEL) for label, text in _facts(found)))
        self._show_source(found)

    def action_close(self) -> None:
        self.dismiss()

    def action_check_again(self) -> None:
        """Read the model's files again."""
        self._check()

    def action_copy(self) -> None:
        """Copy the findings, through the terminal (OSC 52)."""
        if self.report is not None and self.report.findings:
            text = findings_text(self.report)
            self.app.copy_to_clipboard(text)
            self.notify(f"Copied {len(text):,} characters.", markup=False)

    def _tell(self, *told: TextBlock) -> None:
        self.query_one("#details", DocumentView).show(*told)

    def _show_source(self, found: LintFinding | None) -> None:
        """Show the template of a finding, scrolled to the finding's line; lines with findings are marked. None: show
        the first template."""
        if self.report is None:
            return
        name = found.source if found is not None and found.source else next(iter(self.report.templates), "")
        source, view = self.report.templates.get(name, ""), self.searched
        if name != self._shown:
            self._shown = name
            marked = {one.line - 1 for one in self.report.findings if one.line is not None and one.source == name}
            self._source = PromptBlock(template_lines(source), barred=marked, is_numbered=True)
            view.show(self._source)
        if found is not None and found.line is not None:
            view.show_line(self._source, self._source.row_of(found.line - 1))
