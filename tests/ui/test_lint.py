"""The screen of `/lint`: findings, and the template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.app import App
from textual.screen import Screen
from textual.widgets import OptionList, Static

from tests.support.documents import written
from tests.support.waiting import until
from vlmtui.domain.model_reading import ModelReading, ReadRequest
from vlmtui.engine.local.model_reader import LocalModelReader
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import model_of
from vlmtui.session.lint import LintReport, lint_model
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.inspector.lint_screen import LintScreen
from vlmtui.ui.terminal.themes import DARK, VARIABLES

READER = LocalModelReader(Paths.default())
GEMMA = model_of(Registry.bundled()["gemma3"])


def shown(screen: Screen[Any], view: str = "#source") -> list[str]:
    """Return the lines in view."""
    document = screen.query_one(view, DocumentView)
    return [document.render_line(y).text.rstrip() for y in range(document.size.height)]


class BrokenReader:
    """Returns the record's template with a fault: BOS twice."""

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
        details = written(screen.query_one("#details", DocumentView))
        assert "begins with <bos> 2 times" in details and "record, line 2 · text alone" in details
        barred = [line.removeprefix("▌ ") for line in shown(screen) if line.startswith("▌")]
        assert barred[0].startswith(" 2 ") and not any(line[:3].strip() for line in barred[1:])
        assert "<bos><bos>" in "".join(line[3:] for line in barred)
        await pilot.press("y")
        assert "Write {{ bos_token }} once." in app.clipboard
        await pilot.press("escape")
        assert not isinstance(app.screen, LintScreen)


async def test_a_sound_template_is_reported_and_shown() -> None:
    app = Host(lambda: lint_model(GEMMA, READER))
    async with app.run_test() as pilot:
        screen = app.screen
        assert isinstance(screen, LintScreen)
        await until(pilot, lambda: screen.report is not None)
        await pilot.pause()
        assert "Nothing is wrong" in written(screen.query_one("#details", DocumentView))
        assert "no finding" in str(screen.query_one("#about", Static).content)
        assert shown(screen)[0].startswith("   1 {")


async def test_an_unreadable_model_is_reported_and_read_again() -> None:
    outcomes: list[VlmtuiError | None] = [bad_input("Can't check it: not downloaded."), None]

    def lint() -> LintReport:
        if (error := outcomes.pop(0)) is not None:
            raise error
        return lint_model(GEMMA, READER)

    app = Host(lint)
    async with app.run_test() as pilot:
        screen = app.screen
        assert isinstance(screen, LintScreen)
        await until(pilot, lambda: "not downloaded" in written(screen.query_one("#details", DocumentView)))
        await pilot.press("r")
        await until(pilot, lambda: screen.report is not None)
