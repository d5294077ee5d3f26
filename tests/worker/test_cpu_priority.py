from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vlmtui.worker.hf.cpu_priority import NICENESS, lower_priority

AUTOGROUP = Path("/proc/self/autogroup")
OWN = max(NICENESS, os.nice(0))
"""A higher one that the tests were given stays."""
LEADER = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', sys.argv[1]]).returncode)"
SERVER = """
import os, subprocess, sys
from vlmtui.worker.hf.cpu_priority import lower_priority
lower_priority()
lower_priority()
subprocess.run([sys.executable, "-c", "import os; print(os.nice(0), open('/proc/self/autogroup').read())"])
"""


def niceness_of_session(autogroup: str) -> int | None:
    """Of `/proc/PID/autogroup`, which is empty for a process that no session was made for since the machine started."""
    return int(autogroup.rsplit(maxsplit=1)[-1]) if autogroup else None


def niceness_of_a_child(*, own_session: bool) -> tuple[int, int | None]:
    """Of a process that a server starts after it has given way: its own niceness, and its session's."""
    command = [sys.executable, "-c", LEADER, SERVER]
    run = subprocess.run(command, check=True, start_new_session=own_session, stdout=subprocess.PIPE, text=True)
    own, _, autogroup = run.stdout.strip().partition(" ")
    return int(own), niceness_of_session(autogroup)


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel does not group by session")
def test_the_engine_and_the_workers_session_lower_priority() -> None:
    assert niceness_of_a_child(own_session=True) == (OWN, NICENESS)


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel does not group by session")
def test_a_session_of_others_is_left_alone() -> None:
    assert niceness_of_a_child(own_session=False) == (OWN, niceness_of_session(AUTOGROUP.read_text().strip()))


def test_a_niceness_given_by_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[int] = []

    def nice(by: int) -> int:
        changes.append(by)
        return NICENESS + 3

    monkeypatch.setattr(os, "nice", nice)
    monkeypatch.setattr(os, "getsid", lambda pid: -1)
    lower_priority()
    assert changes == [0, 0]
