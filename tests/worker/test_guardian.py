"""Whatever is killed, nothing is left. Real processes that ignore SIGTERM, leave the session and lose their parents."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import vlmtui

START = (
    "import sys; from vlmtui.worker.guardian import main;"
    " sys.exit(main(sys.argv[1:], server='tests.worker.obstinate_server'))"
)
ROOT = Path(__file__).parents[2]


def until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass
class Guarded:
    process: subprocess.Popen[bytes]
    pids: dict[str, int]
    files: list[Path]

    def nothing_is_left(self) -> bool:
        return not any(lives(pid) for pid in self.pids.values())


def start(tmp_path: Path, **environment: str) -> Guarded:
    files = [tmp_path / name for name in ("w.sock", "w.json", "w.spec")]
    for file in files:
        file.write_text("{}")
    pids, home = tmp_path / "pids", tmp_path / "w.d"
    home.mkdir()
    package = Path(vlmtui.__file__).parent
    path = os.pathsep.join(map(str, (package / "worker" / "site", ROOT, package.parent)))
    process = subprocess.Popen(
        [sys.executable, "-c", START, "--socket", files[0], "--spec", files[2], "--log", tmp_path / "w.log"],
        env={**os.environ, "OBSTINATE_PIDS": str(pids), "PYTHONPATH": path, **environment},
        cwd=ROOT,
        start_new_session=True,
    )
    assert until(pids.exists), (tmp_path / "w.log").read_text()
    return Guarded(process, json.loads(pids.read_text()), [*files, home])


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    found = start(tmp_path)
    yield found
    found.process.kill()
    found.process.wait()
    for pid in found.pids.values():
        if lives(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_killed_server_takes_all_its_children_along(guarded: Guarded) -> None:
    os.kill(guarded.pids["server"], signal.SIGKILL)
    assert guarded.process.wait(30) == 128 + signal.SIGKILL
    assert guarded.nothing_is_left()
    assert not any(file.exists() for file in guarded.files)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_everything_in_order(guarded: Guarded, number: signal.Signals) -> None:
    guarded.process.send_signal(number)
    assert guarded.process.wait(30) == 128 + signal.SIGTERM
    assert guarded.nothing_is_left()


def test_a_server_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    guarded = start(tmp_path, OBSTINATE_DEAF="1")
    guarded.process.terminate()
    assert guarded.process.wait(30) == 128 + signal.SIGKILL
    assert guarded.nothing_is_left()


def test_a_killed_guardian_takes_the_server_and_the_engines_processes_along(guarded: Guarded) -> None:
    guarded.process.kill()
    assert until(lambda: not lives(guarded.pids["server"]))
    assert until(lambda: not lives(guarded.pids["child"]))


def test_only_the_owner_can_read_the_log(guarded: Guarded, tmp_path: Path) -> None:
    assert (tmp_path / "w.log").stat().st_mode & 0o777 == 0o600


def test_temporary_files_are_private_and_in_the_workers_folder(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        guarded = start(tmp_path)
    finally:
        os.umask(before)
    try:
        assert (tmp_path / "w.d" / "left").stat().st_mode & 0o777 == 0o600
    finally:
        guarded.process.terminate()
        guarded.process.wait(30)
    assert not (tmp_path / "w.d").exists()
