"""`vlmtui batch --on ray` with a real Ray of this machine and a real worker that its actors share; only its engine
repeats."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.batches.campaign import BatchCampaign
from tests.worker.echo_backend import offer_echo

pytest.importorskip("ray", reason="vlmtui[ray] is not installed")
pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.xdist_group("ray")]

COUNT, FREE = 200, 64
"""The number of items, and of those that are answered at once; the others wait for a signal."""


class RayBatch:
    """The command in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "out.jsonl"
        self.release = folder / "release"

    def write(self) -> None:
        words = ("say", "hold")
        items = ({"id": f"{n}", "raw": f"{words[n >= FREE]} {n}"} for n in range(COUNT))
        (self.folder / "in.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))

    def start(self, *more: str) -> subprocess.Popen[str]:
        environment = os.environ | {"VLMTUI_DATA_DIR": str(self.folder / "data"), "HOME": str(self.folder)}
        options = ["--model", "shapes", "--backend", "echo", "--engine-arg", f"release={self.release}"]
        command = [sys.executable, "-P", "-m", "vlmtui", "batch", "in.jsonl", "-o", "out.jsonl", "--on", "ray"]
        return subprocess.Popen(
            [*command, "--actors", "2", *options, *more],
            env=environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, lines: int, process: subprocess.Popen[str]) -> None:
        """Wait until so many lines are there."""
        while not self.output.exists() or len(self.output.read_bytes().splitlines()) < lines:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.05)
            assert process.poll() is None, process.communicate()[1]

    def answers(self) -> dict[str, str]:
        lines = [json.loads(line) for line in self.output.read_text().splitlines()]
        found = {line["id"]: line["answer"] for line in lines}
        assert len(found) == len(lines), "each item has one line"
        return found


@pytest.fixture
def batch(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayBatch]:
    offer_echo(short_path / "site", monkeypatch)
    monkeypatch.setenv("RAY_TMPDIR", str(short_path / "ray"))
    batch = RayBatch(short_path)
    batch.write()
    yield batch
    batch.release.touch()
    BatchCampaign(short_path, items=1).end_workers()


def actors(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes of the actors."""
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if any("MapWorker" in word for word in child.cmdline())]


def test_two_actors_answer_each_item_once_after_a_kill(batch: RayBatch) -> None:
    with batch.start() as process:
        batch.wait_for(FREE, process)
        first, _ = actors(process)
        first.kill()
        psutil.wait_procs([first])
        batch.release.touch()
        _, error = process.communicate()
    assert process.returncode == 0, error
    assert batch.answers() == {f"{n}": f"{('say', 'hold')[n >= FREE]} {n} " for n in range(COUNT)}
    assert f"{COUNT} answered · 0 failed" in error
    assert "Traceback" not in error
    with batch.start() as process:
        _, error = process.communicate()
    assert f"0 answered · 0 failed · {COUNT} answered before" in error
    assert len(batch.answers()) == COUNT


def test_a_stopped_batch_keeps_its_answers_and_continues(batch: RayBatch) -> None:
    with batch.start() as process:
        batch.wait_for(FREE, process)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate()
    assert process.returncode == 130, error
    assert "What was answered is in out.jsonl. To go on: vlmtui batch in.jsonl -o out.jsonl --on ray" in error
    assert "Traceback" not in error
    done = set(batch.answers())
    batch.release.touch()
    with batch.start() as process:
        _, error = process.communicate()
    assert process.returncode == 0, error
    assert f"{COUNT - len(done)} answered · 0 failed · {len(done)} answered before" in error
    assert len(batch.answers()) == COUNT


def test_no_file_of_the_current_folder_runs_in_an_actor(batch: RayBatch) -> None:
    for name in ("json", "msgspec", "pyarrow", "psutil", "vlmtui"):
        (batch.folder / f"{name}.py").write_text(f"open({str(batch.folder / 'RAN')!r}, 'a').write(__file__)\n")
    batch.release.touch()
    with batch.start() as process:
        _, error = process.communicate()
    assert not (batch.folder / "RAN").exists(), (batch.folder / "RAN").read_text()
    assert process.returncode == 0, error
    assert len(batch.answers()) == COUNT
