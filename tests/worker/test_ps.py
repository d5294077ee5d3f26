"""The rows of `vlmtui ps`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import msgspec
import pytest

from tests.worker.hosted import SPEC
from vlmtui.cli import running
from vlmtui.domain.engine import Activity, EngineStatus
from vlmtui.engine.local.host import WorkerInfo
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.protocol.messages import StatusReport

BUSY = EngineStatus(
    spec=SPEC,
    state=Activity.BUSY,
    clients=2,
    running=1,
    idle_s=0.0,
    keep_alive_s=300.0,
    rss_bytes=3 * 2**30,
    gpu_bytes=None,
    kept=("a", "b"),
)


class Host:
    def __init__(self, root: Path, *statuses: EngineStatus | None) -> None:
        reports = [None if status is None else StatusReport(pid=7, status=status) for status in statuses]
        self._found = [WorkerInfo(Endpoint.of(Paths.below(root), SPEC), None, report) for report in reports]

    async def find_all(self) -> list[WorkerInfo]:
        return self._found


@pytest.fixture
def shown(short_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    idle = msgspec.structs.replace(BUSY, state=Activity.IDLE, idle_s=12.4, clients=0, keep_alive_s=None, kept=())
    changed = msgspec.structs.replace(idle, changed=("config.json",))
    monkeypatch.setattr(running, "WorkerHost", lambda paths: Host(short_path, BUSY, idle, None, changed))
    outputs = []
    for as_json in (False, True):
        assert running.ps(argparse.Namespace(json=as_json)) == 0
        outputs.append(capsys.readouterr().out)
    return outputs


def test_the_table_shows_state_clients_idle_time_and_kept_answers(shown: list[str]) -> None:
    head, busy, idle, deaf, changed = shown[0].splitlines()
    columns = {name: head.index(name) for name in ("STATE", "CLIENTS", "IDLE", "STAYS", "KEPT", "MEMORY")}

    def cell(line: str, column: str) -> str:
        return line[columns[column] :].split("  ", maxsplit=1)[0].strip()

    assert [cell(busy, name) for name in columns] == ["busy", "2", "", "5 minutes", "2", "3.0 GiB"]
    assert [cell(idle, name) for name in columns] == ["idle", "0", "12 s", "forever", "", "3.0 GiB"]
    assert "not answering" in deaf
    assert "idle, files changed" in changed


def test_json_has_every_field(shown: list[str]) -> None:
    busy, idle, deaf, changed = json.loads(shown[1])
    assert [one["changed"] for one in (busy, idle, deaf, changed)] == [[], [], None, ["config.json"]]
    assert (busy["state"], busy["clients"], busy["kept"], busy["engine_silent_s"]) == ("busy", 2, ["a", "b"], 0.0)
    assert (idle["state"], idle["idle_s"], idle["kept"]) == ("idle", 12.4, [])
    assert (deaf["state"], deaf["clients"], deaf["kept"]) == ("not answering", None, None)
