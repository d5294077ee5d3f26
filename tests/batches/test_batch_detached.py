"""`vlmtui batch --detach` and `vlmtui batches`, with a real worker whose engine repeats: see `echo_backend`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.batches.campaign import BatchCampaign
from tests.worker.echo_backend import offer_echo
from vlmtui.paths import Paths
from vlmtui.session.batch.records import BatchRecords, BatchState

pytestmark = pytest.mark.process
FREE, HELD = 3, 4
"""Items that are answered at once, and those that wait until they are told to go on."""


class Shell:
    """The command line in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "out.jsonl"
        self.release = folder / "release"
        self.records = BatchRecords(Paths.below(folder / "data"))

    def __call__(self, *words: str, code: int = 0) -> str:
        """Run a command to its end; return what it says."""
        environment = os.environ | {"VLMTUI_DATA_DIR": str(self.folder / "data"), "HOME": str(self.folder)}
        ran = subprocess.run(
            [sys.executable, "-m", "vlmtui", *words],
            check=False,
            env=environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == code, ran.stderr
        return ran.stdout + ran.stderr

    def detach(self, *more: str, code: int = 0) -> str:
        engine = ("--model", "shapes", "--backend", "echo", "--engine-arg", f"release={self.release}")
        return self("batch", "in.jsonl", "-o", "out.jsonl", *engine, "--detach", *more, code=code)

    def answers(self) -> dict[str, str]:
        lines = [json.loads(line) for line in self.output.read_text().splitlines()]
        found = {line["id"]: line["answer"] for line in lines}
        assert len(found) == len(lines), "each item has one line"
        return found

    def state(self) -> BatchState:
        record = self.records.find(self.output)
        assert record is not None
        return self.records.state(record)

    def wait_for_lines(self, count: int) -> None:
        while not self.output.exists() or self.output.read_bytes().count(b"\n") < count:
            assert self.state() is BatchState.RUNNING
            os.sched_yield()


@pytest.fixture
def shell(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    offer_echo(short_path / "site", monkeypatch)
    shell = Shell(short_path)
    items = [{"id": f"{n}", "raw": f"{('say', 'hold')[n >= FREE]} {n}"} for n in range(FREE + HELD)]
    (short_path / "in.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    yield shell
    shell.release.touch()
    shell.records.wait(shell.output)
    BatchCampaign(short_path, items=1).end_workers()


def test_it_runs_on_is_paused_and_goes_on(shell: Shell) -> None:
    """The command that starts it returns while its items wait; another one pauses it, and a third one goes on."""
    assert "without this terminal" in shell.detach()
    shell.wait_for_lines(FREE)
    assert "running" in shell("batches")
    assert "Another batch is writing out.jsonl." in shell.detach(code=2)
    assert "is running" in shell("batches", "resume", "out.jsonl", code=2)
    assert "is paused" in shell("batches", "pause", "out.jsonl")
    assert shell.state() is BatchState.PAUSED
    assert set(shell.answers()) == {f"{n}" for n in range(FREE)}
    shell.release.touch()
    assert "goes on" in shell("batches", "resume", "out.jsonl")
    assert f"{HELD:,} answered" in shell("batches", "attach", "out.jsonl")
    assert shell.answers() == {f"{n}": f"{('say', 'hold')[n >= FREE]} {n} " for n in range(FREE + HELD)}
    (told,) = json.loads(shell("batches", "--json"))
    assert (told["state"], told["exit_code"], told["progress"]["done"]) == ("done", 0, FREE + HELD)


def test_a_batch_that_was_killed_is_paused_and_goes_on(shell: Shell) -> None:
    shell.detach()
    shell.wait_for_lines(FREE)
    record = shell.records.find(shell.output)
    assert record is not None
    os.kill(record.pid, 9)
    shell.records.wait(shell.output)
    assert shell.state() is BatchState.PAUSED
    assert "no batch runs" in shell("batches", "pause", "out.jsonl", code=2)
    shell.release.touch()
    shell("batches", "resume", "out.jsonl")
    shell("batches", "attach", "out.jsonl")
    assert len(shell.answers()) == FREE + HELD


def test_an_item_is_asked_again_alone(shell: Shell) -> None:
    shell.release.touch()
    shell.detach()
    shell("batches", "attach", "out.jsonl")
    before = {line["id"]: line["ended"] for line in map(json.loads, shell.output.read_text().splitlines())}
    shell.detach("--again", "1")
    assert "1 answered · 0 failed" in shell("batches", "attach", "out.jsonl")
    after = {line["id"]: line["ended"] for line in map(json.loads, shell.output.read_text().splitlines())}
    assert {id for id in before if before[id] != after[id]} == {"1"}
    record = shell.records.find(shell.output)
    assert record is not None
    assert (record.progress.done, "--again" in record.words) == (FREE + HELD, False)


def test_what_is_wrong_is_said_before_it_is_left_alone(shell: Shell) -> None:
    (shell.folder / "in.jsonl").write_text("no json\n")
    said = shell.detach("--strict", code=2)
    assert "Line 1: Not a JSON object." in said
    assert "nothing was run" in said
    assert "vlmtui: vlmtui:" not in said
    assert shell.records.find(shell.output) is None
    assert "stdin ends with the terminal" in shell("batch", "-", "-o", "x.jsonl", "--detach", code=2)
    assert "No batch that this machine has run writes x.jsonl." in shell("batches", "pause", "x.jsonl", code=2)
