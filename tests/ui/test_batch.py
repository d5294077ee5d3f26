"""The screen with the results of a batch, and an item of it in the inspector."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from textual.app import App
from textual.widgets import Static

from tests.support.documents import written
from tests.support.waiting import until
from tests.ui.conftest import picture
from vlmtui.domain.conversation import Attachment
from vlmtui.errors import VlmtuiError
from vlmtui.media.stage import stage
from vlmtui.session.batch.media_desk import MediaDesk
from vlmtui.session.batch.results import ResultTable, StoredResult, decode_result
from vlmtui.session.prompt_report import PromptReport
from vlmtui.session.seeing import RoomImage
from vlmtui.ui.batch import BatchScreen, row_content
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.terminal.themes import DARK, VARIABLES
from vlmtui.ui.widgets.attachment_view import AttachmentView

ERROR = {"kind": "bad_input", "message": "Line 3: nowhere.png does not exist.", "detail": "", "hint": ""}


def line(number: int, answer: str = "", **fields: object) -> dict[str, object]:
    """Return a line of a batch's output file."""
    return {
        "id": f"item-{number}",
        "line": number,
        "key": "k",
        "question": f"What is in picture {number}?",
        "answer": answer,
        "usage": {"completion_tokens": len(answer.split())},
        "error": None,
    } | fields


RESULTS = (
    line(2, "a red circle", expect={"exact": "a red circle"}, correct=True),
    line(1, "a blue square, a blue square, a blue square", expect={"exact": "a blue square"}, correct=False),
    line(3, "an older line", correct=False),
    line(3, error=ERROR),
    line(4, "[/bold]\x1b[2J a green ÄRGER"),
)


class Host(App[None]):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.register_theme(DARK)
        self.theme = DARK.name
        self.graphics = Graphics("halfcell")
        self.table = ResultTable(path)
        self.reports: list[PromptReport] = []
        self.opened: list[tuple[Sequence[RoomImage], int]] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLES

    def on_mount(self) -> None:
        self.push_screen(
            BatchScreen(
                self.table,
                MediaDesk(self.table.path.parent / "cache"),
                self.table.path.parent / "thumbnails",
                show_inspector=self.reports.append,
                show_images=lambda images, at: self.opened.append((images, at)),
            )
        )

    def said(self, id: str) -> str:
        return str(self.screen.query_one(f"#{id}", Static).content)

    def tells(self, words: str) -> bool:
        """Return whether this is said in place of images."""
        return [str(one.content) for one in self.screen.query("#media > Static").results(Static)] == [words]


def write(path: Path, results: Sequence[object]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in results))


@pytest.fixture
def output(tmp_path: Path) -> Path:
    path = tmp_path / "out.jsonl"
    write(path, RESULTS)
    return path


def ids(table: ResultTable) -> list[str | None]:
    return [table[row].id for row in range(len(table))]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_filters_choose_the_rows_and_an_item_is_inspected(output: Path, size: tuple[int, int]) -> None:
    app = Host(output)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "4 items" in app.said("about"))
        assert ids(app.table) == ["item-2", "item-1", "item-3", "item-4"]
        assert "1 failed · 1 of 2 right (50.0%)" in app.said("about")
        await pilot.press("tab")
        await until(pilot, lambda: ids(app.table) == ["item-3"])
        assert "nowhere.png" in written(app.screen.query_one("#item", DocumentView))
        await pilot.press("tab")
        await until(pilot, lambda: ids(app.table) == ["item-1"])
        assert "wrong, expected: a blue square" in written(app.screen.query_one("#item", DocumentView))
        await pilot.press("tab")
        await until(pilot, lambda: ids(app.table)[:2] == ["item-1", "item-4"])
        await pilot.press("down")
        await until(pilot, lambda: "␛[2J" in written(app.screen.query_one("#item", DocumentView)))
        await pilot.press("enter")
        assert (app.reports[0].answer, app.reports[0].title) == (RESULTS[4]["answer"], "item-4")
        await pilot.press("escape")
        assert not isinstance(app.screen, BatchScreen)


async def test_a_file_without_results_and_a_filter_without_any(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.touch()
    app = Host(path)
    async with app.run_test() as pilot:
        await until(pilot, lambda: "Nothing to show." in written(app.screen.query_one("#item", DocumentView)))
        await pilot.press("down", "tab", "enter")
        assert app.reports == []


def about(image: Path, number: int = 1, sha256: str | None = None) -> dict[str, object]:
    """A result about an image, which has this hash when it is asked about; None: its own."""
    known = stage(image, image.parent / "store").sha256 if sha256 is None else sha256
    return line(number, "a red circle", media=[known], sources=[{"modality": "image", "place": str(image)}])


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_image_of_the_highlighted_item_is_beside_it_and_one_key_away(
    tmp_path: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    write(tmp_path / "out.jsonl", [line(1, "no image"), about(picture(tmp_path), 2)])
    app = Host(tmp_path / "out.jsonl")
    async with app.run_test(size=size) as pilot:
        await pilot.press("p")
        assert not app.opened
        await pilot.press("down")
        await until(pilot, lambda: bool(app.screen.query(AttachmentView)))
        view = app.screen.query_one(AttachmentView)
        await until(pilot, lambda: view.size.height > 1 and bool(view.render_line(0).text.strip()))
        assert "▣ 1 cat.png" in view.render_line(view.size.height - 1).text
        await pilot.press("p")
        (((image,), at),) = app.opened
        assert (image.attachment.name, image.number, at) == ("cat.png", 1, 0)
        assert image.report is not None
        report = await image.report()
        assert (report.answer, report.attachments) == ("a red circle", (image.attachment,))
        await pilot.press("up")
        await until(pilot, lambda: not app.screen.query(AttachmentView))
        await pilot.press("p")
        assert len(app.opened) == 1


async def test_images_that_are_gone_changed_or_no_files_are_told(tmp_path: Path) -> None:
    gone = about(picture(tmp_path, "gone.png"))
    (tmp_path / "gone.png").unlink()
    changed = about(picture(tmp_path, "new.png"), 2, sha256="0" * 64)
    web = line(3, "a", sources=[{"modality": "image", "place": "https://u:key@example.org/a.png?sig=secret"}])
    inline = line(4, "a", media=["0" * 64], sources=[{"modality": "image", "place": ""}])
    write(tmp_path / "out.jsonl", [gone, changed, web, inline])
    app = Host(tmp_path / "out.jsonl")
    async with app.run_test(size=(80, 24)) as pilot:
        for words in (
            "gone.png does not exist.",
            "new.png is not the file that was sent.",
            "Can't show the image: it was at https://example.org/a.png.",
            "Can't show the image: the results don't have its data.",
        ):
            await until(pilot, partial(app.tells, words))
            await pilot.press("p", "down")
        assert not app.opened


class SlowDesk(MediaDesk):
    """Notes what is prepared, and waits for `go`."""

    def __init__(self, cache: Path) -> None:
        super().__init__(cache)
        self.read: list[str] = []
        self.go = threading.Event()

    def prepare_again(self, result: StoredResult) -> list[Attachment]:
        self.read.append(result.answer)
        assert self.go.wait(30)
        return super().prepare_again(result)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SlowDesk:
    desk = SlowDesk(tmp_path / "slow")
    monkeypatch.setattr("tests.ui.test_batch.MediaDesk", lambda cache: desk)
    return desk


async def test_rows_that_are_passed_quickly_are_not_read(tmp_path: Path, slow: SlowDesk) -> None:
    slow.go.set()
    write(tmp_path / "out.jsonl", [line(number, str(number)) for number in range(30)])
    app = Host(tmp_path / "out.jsonl")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: slow.read == ["0"])
        await pilot.press(*["down"] * 20)
        await until(pilot, lambda: "20" in slow.read)
        assert len(slow.read) < 10


async def test_an_image_that_is_ready_late_is_not_that_of_the_next_row(tmp_path: Path, slow: SlowDesk) -> None:
    shown = about(picture(tmp_path, "cat.png"))
    gone = about(picture(tmp_path, "gone.png"), 2)
    (tmp_path / "gone.png").unlink()
    write(tmp_path / "out.jsonl", [shown, gone])
    app = Host(tmp_path / "out.jsonl")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(slow.read) == 1)
        await pilot.press("down")
        slow.go.set()
        await until(pilot, partial(app.tells, "gone.png does not exist."))
        assert not app.screen.query(AttachmentView)
        await pilot.press("p", "enter")
        assert not app.opened
        assert app.reports[-1].attachments == ()


def test_another_file_is_reported(output: Path) -> None:
    output.write_text('{"id": "a"}\n')
    with pytest.raises(VlmtuiError, match=r"out\.jsonl has a line that is not a result of a batch\."):
        ResultTable(output)


def test_a_line_that_is_being_written_is_left_out(output: Path) -> None:
    with output.open("a") as file:
        file.write('{"id":"half')
    table = ResultTable(output)
    assert table.counts() == {"": 1, "failed": 1, "right": 1, "wrong": 1}
    table.close()


def test_a_long_id_is_cut_at_its_start() -> None:
    rows = [decode_result(json.dumps(line(1, "a", id=id)).encode()) for id in ("short", "pictures/of/猫/0001.png")]
    shown = [row_content(row).plain.split() for row in rows if row is not None]
    assert [row[1] for row in shown] == ["short", "…es/of/猫/0001.png"]
