"""The records of batches: who runs, how it ended, and the command to go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlmtui.paths import Paths
from vlmtui.session.batch.background import BackgroundBatches, command_at
from vlmtui.session.batch.records import BatchCounts, BatchRecord, BatchRecords, BatchState, batch_words
from vlmtui.session.batch.tally import Tally


@pytest.fixture
def records(tmp_path: Path) -> BatchRecords:
    return BatchRecords(Paths.below(tmp_path / "data"))


def record_of(output: Path) -> BatchRecord:
    return BatchRecord(output=str(output), folder=str(output.parent), words=("batch", "in.jsonl", "-o", output.name))


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (0, BatchState.DONE),
        (1, BatchState.DONE),
        (2, BatchState.FAILED),
        (130, BatchState.PAUSED),
        (None, BatchState.PAUSED),
    ],
)
def test_the_state_is_known_by_the_lock_and_the_exit_code(
    records: BatchRecords, tmp_path: Path, code: int | None, state: BatchState
) -> None:
    output = tmp_path / "out.jsonl"
    with records.running(record_of(output)) as running:
        found = records.find(output)
        assert found is not None and records.state(found) is BatchState.RUNNING
        tally = Tally()
        tally.answered, tally.skipped = 3, 4
        if code is not None:
            running.end(tally, 0.5, exit_code=code)
    records.wait(output)
    (found,) = records.all()
    assert records.state(found) is state
    assert (found.progress.done, found.progress.share) == ((7, 0.5) if code is not None else (0, None))


def test_some_items_asked_again_change_nothing_but_who_runs(records: BatchRecords, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    tally = Tally()
    tally.answered = 9
    with records.running(record_of(output)) as running:
        running.end(tally, 0.3, exit_code=130)
    other = BatchRecord(output=str(output), folder="/elsewhere", words=("batch",))
    with records.running(other, is_part=True) as running:
        running.end(Tally(), 1.0, exit_code=0)
    found = records.find(output)
    assert found is not None
    assert (found.words[1], found.exit_code, found.progress.done) == ("in.jsonl", 130, 9)


def test_a_batch_runs_without_a_record_where_none_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "state").write_text("a file")
    records = BatchRecords(Paths.below(tmp_path / "data"))
    with records.running(record_of(tmp_path / "out.jsonl")) as running:
        running.end(Tally(), None, exit_code=0)
    assert records.all() == []


def test_what_is_no_record_is_left_out(records: BatchRecords, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with records.running(record_of(output)):
        pass
    (records.folder / "other.json").write_text("{")
    assert [record.name for record in records.all()] == ["out.jsonl"]
    next(records.folder.glob("[0-9a-f]*.json")).write_text('{"output": 3}')
    assert records.all() == [] and records.find(output) is None


def test_the_command_is_said_again_without_what_was_for_one_run() -> None:
    words = ("batch", "--detach", "a.jsonl", "--again", "7", "--again=8", "-o", "b", "--ready", "5", "--", "--again")
    assert batch_words(words) == ("batch", "a.jsonl", "-o", "b", "--", "--again")


def test_where_the_command_stands() -> None:
    assert command_at(("--data-dir", "batch", "batch", "-o", "x")) == 2
    assert command_at(("ask", "x")) is None


def test_stdin_cannot_be_read_again(tmp_path: Path) -> None:
    from vlmtui.errors import VlmtuiError

    batches = BackgroundBatches(Paths.below(tmp_path))
    record = BatchRecord(output=str(tmp_path / "o"), folder=str(tmp_path), words=("batch", "-", "-o", "o"), input="-")
    with pytest.raises(VlmtuiError, match="from stdin"):
        batches.resume(record)
    gone = BatchRecord(output=str(tmp_path / "o"), folder=str(tmp_path / "gone"), words=("batch", "x", "-o", "o"))
    with pytest.raises(VlmtuiError, match="is gone"):
        batches.resume(gone)


def test_what_is_left_is_told_by_what_is_done_not_by_what_was_read_ahead() -> None:
    """A whole short file is read before its first answer comes."""
    tally = Tally()
    tally.read, tally.answered, tally.failed, tally.skipped = 720, 60, 12, 0
    counts = BatchCounts.of(tally, 1.0, 4.0)
    assert counts.share == pytest.approx(0.1)
    assert counts.left_s == pytest.approx(36.0)
    tally.read, tally.skipped = 360, 108  # half of the file was read, and 108 items were answered before
    assert BatchCounts.of(tally, 0.5, 4.0).left_s == pytest.approx((720 - 180) / 18)
    tally.read = tally.done
    assert BatchCounts.of(tally, 1.0, 4.0).left_s is None
    assert BatchCounts.of(tally, None, 4.0).left_s is None
    assert BatchCounts.of(Tally(), 0.5, 0.0).left_s is None
