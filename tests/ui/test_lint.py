"""`/lint` and the inspector's template: what is wrong, and where."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.app import App
from textual.widgets import OptionList, Static

from tests.support.waiting import until
from vlmtui.domain.model_reading import ModelReading, ReadRequest
from vlmtui.engine.local.model_reader import LocalModelReader
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import model_of
from vlmtui.session.lint import LintReport, lint_model
from vlmtui.ui.inspector.lint_screen import LintScreen
from vlmtui.ui.inspector.template_findings import TemplateFindings
from vlmtui.ui.terminal.themes import DARK, VARIABLES
from vlmtui.ui.widgets.prompt_text import PromptText

READER = LocalModelReader(Paths.default())
GEMMA = model_of(Registry.bundled()["gemma3"])


class BrokenReader:
    """Reads the record's template with one fault: BOS twice."""

    def read(self, request: ReadRequest) -> ModelReading:
        templates = {name: source.replace("<bos>", "<bos><bos>") for name, source in request.templates.items()}
        return READER.read(ReadRequest(templates=templates, cases=request.cases))


class Host(App[None]):
    def __init__(self, lint: Callable[[], LintReport] | None) -> None:
        super().__init__()
        self.register_theme(DARK)
        self.theme = DARK.name
        self.lint = lint

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLES

    def on_mount(self) -> None:
        self.push_screen(LintScreen("google/[/gemma]\x1b[2J", self.lint))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_findings_are_listed_and_their_lines_marked(size: tuple[int, int]) -> None:
    app = Host(lambda: lint_model(GEMMA, BrokenReader()))
    async with app.run_test(size=size) as pilot:
        screen = app.screen
        assert isinstance(screen, LintScreen)
        await until(pilot, lambda: screen.report is not None)
        await pilot.pause()
        assert screen.query_one(OptionList).option_count == 1
        details = str(screen.query_one("#details", Static).content)
        assert "begins with <bos> 2 times" in details and "record, line 2 · text alone" in details
        view = screen.query_one("#source", PromptText)
        assert view._barred == {1} and "<bos><bos>" in view.lines[1].plain
        await pilot.press("y")
        assert "Write {{ bos_token }} once." in app.clipboard
        await pilot.press("escape")
        assert not isinstance(app.screen, LintScreen)


async def test_a_sound_template_says_so_and_is_shown() -> None:
    app = Host(lambda: lint_model(GEMMA, READER))
    async with app.run_test() as pilot:
        screen = app.screen
        assert isinstance(screen, LintScreen)
        await until(pilot, lambda: screen.report is not None)
        await pilot.pause()
        assert "Nothing is wrong" in str(screen.query_one("#details", Static).content)
        assert "no finding" in str(screen.query_one("#about", Static).content)
        assert screen.query_one("#source", PromptText).lines


async def test_a_model_that_cannot_be_read_says_why_and_is_read_again() -> None:
    outcomes: list[VlmtuiError | None] = [bad_input("Can't check it: not downloaded."), None]

    def lint() -> LintReport:
        if (error := outcomes.pop(0)) is not None:
            raise error
        return lint_model(GEMMA, READER)

    app = Host(lint)
    async with app.run_test() as pilot:
        screen = app.screen
        assert isinstance(screen, LintScreen)
        await until(pilot, lambda: "not downloaded" in str(screen.query_one("#details", Static).content))
        await pilot.press("r")
        await until(pilot, lambda: screen.report is not None)


async def test_the_inspector_says_it_above_the_template() -> None:
    class Alone(Host):
        def on_mount(self) -> None:
            self.mount(TemplateFindings())

    app = Alone(None)
    async with app.run_test() as pilot:
        findings = app.query_one(TemplateFindings)
        findings.check(None)
        assert findings.report is None
        findings.check(lambda: lint_model(GEMMA, BrokenReader()))
        await until(pilot, lambda: findings.report is not None)
        await pilot.pause()
        assert "line 2: The prompt begins with <bos> 2 times" in str(findings.content)
