"""`vlmtui check` of recorded prompts and kept answers, on this machine and on a real `vllm serve` by its address."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.vllm_server import VllmServer, free_port
from vlmtui.paths import bundled

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]
CIRCLE = str(bundled("samples") / "circle.png")


@pytest.fixture
def vlmtui(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path / "home", monkeypatch, capsys)


def rows(ran_out: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The results, by file, case and engine."""
    results = json.loads(ran_out)["results"]
    return {(Path(one["file"]).name, one["case"], one["engine"]): one for one in results}


def test_a_server_repeats_golden_prompts_and_answers(vlmtui: CommandLine, tmp_path: Path) -> None:
    golden, kept = tmp_path / "golden", tmp_path / "kept.json"
    recorded = vlmtui("check", "record", str(golden), "--model", "shapes", "--case", "image", "--case", "text")
    assert recorded.code == 0, recorded.err
    with tempfile.TemporaryDirectory(prefix="vlmtui-", dir="/tmp") as folder:
        port = free_port()
        server = VllmServer(str(bundled("shapes")), Path(folder), ["--port", str(port)])
        address = f"http://127.0.0.1:{port}"
        try:
            asked = vlmtui("ask", "--image", CIRCLE, "What is this?", "--export", str(kept), "--keep-alive", "0")
            assert asked.code == 0 and "A red circle" in asked.out, asked.err
            server.wait_until_ready(address)
            given = [str(golden), str(kept), "--on", "here", "--on", address]
            ran = vlmtui("check", *given, "--json")
        finally:
            server.end()
    assert ran.code == 0, ran.out + ran.err + server.newest()
    found = rows(ran.out)
    assert {engine for _, _, engine in found} == {"here", address} and len(found) == 6
    assert all(one["same"] for one in found.values())
    records = [one["fingerprint"] for one in json.loads(ran.out)["engines"]]
    assert [one["backend"] for one in records][:2] == ["vllm", "remote"]
