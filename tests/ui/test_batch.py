"""The results of a batch in the app: what is shown, in which order, and that rows come while a batch runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from textual.app import App
from textual.widgets import Static

from tests.support.waiting import until
from vlmtui.session.batch.records import BatchCounts, BatchRecord, BatchState
from vlmtui.session.batch.result_table import ResultFilter, ResultOrder, ResultTable, TableLook
from vlmtui.session.batch.results import StoredResult, decode_result
from vlmtui.session.prompt_report import PromptReport
from vlmtui.ui.batch.result_rows import ResultRows, row_content
from vlmtui.ui.batch.screen import BatchScreen
from vlmtui.ui.terminal.themes import DARK, VARIABLES

ERROR = {"kind": "bad_input", "message": "Line 3: nowhere.png does not exist.", "detail": "", "hint": ""}


def line(number: int, answer: str = "", **fields: object) -> dict[str, object]:
    """A line of a batch's output."""
    return {
        "id": f"item-{number}",
        "line": number,
        "key": "k",
        "question": f"What is in picture {number}?",
        "answer": answer,
        "usage": {"completion_tokens": len(answer.split())},
        "timings": {"total_s": number / 10},
        "error": None,
    } | fields


RESULTS = (
    line(2, "a red circle", expect={"exact": "a red circle"}, correct=True),
    line(1, "a blue square, a blue square, a blue square", expect={"exact": "a blue square"}, correct=False),
    line(3, error=ERROR),
    line(4, "[/bold]\x1b[2J a green ÄRGER"),
)


class Runs:
    """Notes what is wanted of a batch."""

    def __init__(self, output: Path) -> None:
        words = ("batch", "in.jsonl", "-o", output.name)
        self.record = BatchRecord(output=str(output), folder=str(output.parent), words=words)
        self.state = BatchState.RUNNING
        self.wanted: list[tuple[str, str | None]] = []

    def read_state(self, output: Path) -> tuple[BatchRecord, BatchState] | None:
        return self.record, self.state

    def pause_or_resume(self, output: Path) -> None:
        self.wanted.append(("pause", None))

    def ask_again(self, output: Path, result: StoredResult) -> None:
        self.wanted.append(("again", result.id))

    def open_item(self, output: Path, result: StoredResult) -> None:
        self.wanted.append(("chat", result.id))

    def compare_item(self, output: Path, result: StoredResult, look: TableLook) -> None:
        self.wanted.append(("compare", result.id))


class Host(App[None]):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.runs = Runs(path)
        self.register_theme(DARK)
        self.theme = DARK.name
        self.table = ResultTable(path)
        self.reports: list[PromptReport] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLES

    def on_mount(self) -> None:
        self.push_screen(BatchScreen(self.table, self.runs, look_again=0.01, show_inspector=self.reports.append))


def write(path: Path, results: Sequence[object], mode: str = "w") -> None:
    with path.open(mode) as file:
        file.writelines(json.dumps(one) + "\n" for one in results)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    path = tmp_path / "out.jsonl"
    write(path, RESULTS)
    return path


def ids(table: ResultTable) -> list[str | None]:
    return [table[row].id for row in range(len(table))]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_filters_orders_and_a_search_choose_the_rows(output: Path, size: tuple[int, int]) -> None:
    app = Host(output)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: len(app.table) == 4)
        screen = app.screen
        assert isinstance(screen, BatchScreen)
        await until(pilot, lambda: "4 items" in str(screen.query_one("#about", Static).content))
        assert "1 error · 1 of 2 right (50.0%)" in str(screen.query_one("#about", Static).content)
        await pilot.press("tab")
        await until(pilot, lambda: ids(app.table) == ["item-3"])
        assert "nowhere.png" in str(screen.query_one("#details", Static).content)
        await pilot.press("tab")
        await until(pilot, lambda: ids(app.table) == ["item-1"])
        await pilot.press("tab", "a")
        await until(pilot, lambda: ids(app.table) == ["item-1", "item-2", "item-3", "item-4"])
        await pilot.press("a")
        await until(pilot, lambda: ids(app.table)[0] == "item-1" and app.table.order is ResultOrder.LONGEST)
        await pilot.press("a")
        await until(pilot, lambda: ids(app.table)[0] == "item-4")
        await pilot.press("slash", *"ärger", "enter")
        await until(pilot, lambda: ids(app.table) == ["item-4"])
        assert "␛[2J" in str(screen.query_one("#details", Static).content)
        await pilot.press("enter")
        assert app.reports[0].answer == RESULTS[3]["answer"]
        assert app.reports[0].title == "item item-4"
        await pilot.press("escape")
        await until(pilot, lambda: len(app.table) == 4)
        await pilot.press("escape")
        assert not isinstance(app.screen, BatchScreen)


async def test_rows_come_while_a_batch_runs_and_stay_when_it_tidies_its_file(output: Path) -> None:
    app = Host(output)
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.table) == 4)
        await pilot.press("down", "down")
        write(output, [line(5, "later"), line(3, "a red circle after all")], "a")
        await until(pilot, lambda: ids(app.table) == ["item-2", "item-1", "item-4", "item-5", "item-3"])
        assert app.screen.query_one(ResultRows).highlighted == 2
        assert app.table.counts().errors == 0
        with output.open("a") as file:
            file.write('{"id":"half')
        tidied = output.with_suffix(".new")
        write(tidied, [line(7, "another file")])
        tidied.replace(output)
        await until(pilot, lambda: ids(app.table) == ["item-7"])


async def test_a_file_of_something_else_is_told_and_harms_nothing(output: Path) -> None:
    output.write_text('{"id": "a"}\n')
    app = Host(output)
    async with app.run_test() as pilot:
        screen = app.screen
        about = "Line 1 of out.jsonl is not a result of a batch."
        await until(pilot, lambda: about in str(screen.query_one("#details", Static).content))
        await pilot.press("down", "tab", "enter", "y")
        assert app.table.shown is ResultFilter.ERRORS


def test_of_an_id_that_is_too_long_the_end_is_shown() -> None:
    rows = [decode_result(json.dumps(line(1, "a", id=id)).encode()) for id in ("short", "pictures/of/猫/0001.png")]
    shown = [row_content(row, is_plain=True).plain.split() for row in rows if row is not None]
    assert [row[1] for row in shown] == ["short", "…es/of/猫/0001.png"]


async def test_what_a_batch_is_doing_is_shown_and_its_items_are_used(output: Path) -> None:
    """Also when no line comes: the state alone has changed."""
    app = Host(output)
    async with app.run_test(size=(120, 30)) as pilot:
        about = app.screen.query_one("#about", Static)
        await until(pilot, lambda: "engine is not ready yet" in str(about.content))
        progress = BatchCounts(done=4, answered=3, failed=1, share=0.5, elapsed_s=2.0)
        app.runs.record = msgspec.structs.replace(app.runs.record, progress=progress)
        await until(pilot, lambda: "running, 2.0 items/s, ~2 seconds left · 4 items" in str(about.content))
        await pilot.press("P", "r", "down", "c", "e")
        wanted = [("pause", None), ("again", "item-2"), ("compare", "item-1"), ("chat", "item-1")]
        await until(pilot, lambda: app.runs.wanted == wanted)
        app.runs.state = BatchState.PAUSED
        await until(pilot, lambda: str(about.content).startswith("paused · 4 items"))
