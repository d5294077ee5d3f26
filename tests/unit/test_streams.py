"""Standard streams that are closed, full, or lack characters lead to the documented exit codes without a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.store.made import exchange
from vlmtui.cli.main import main
from vlmtui.cli.output import LoadLine, write_notice
from vlmtui.domain.engine import LoadProgress, LoadStage
from vlmtui.paths import bundled_model
from vlmtui.store.store import Store

VLMTUI = f"{sys.executable} -m vlmtui"


def shell(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {**os.environ, "VLMTUI_DATA_DIR": str(folder / "data"), "HF_HUB_CACHE": str(folder / "hub"), **environment}
    return subprocess.run(
        ["bash", "-c", command], env=known, capture_output=True, text=True, check=False, timeout=60, errors="replace"
    )


@pytest.mark.process
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("models >&-", 0),
        ("conversations --json >&-", 0),
        ("models 2>&-", 0),
        ("models show nosuch 2>&-", 2),
        ("ask - <&-", 2),
        ("models <&- >&- 2>&-", 0),
        ("models >/dev/full", 1),
        ("models --json >/dev/full", 1),
        ("conversations --json >/dev/full", 1),
        ("--help >/dev/full", 1),
        ("--version >/dev/full", 1),
        ("models show --help >/dev/full", 1),
        ("prompt shapes - </dev/zero", 2),
        ("ask --raw-prompt @/dev/zero", 2),
        ("conversations 2>/dev/full", 0),
        ("models show nosuch 2>/dev/full", 2),
        ("models 2>/dev/full", 0),
        ("nosuchcommand 2>/dev/full", 2),
    ],
)
def test_the_documented_codes(command: str, code: int, unbuffered: str, tmp_path: Path) -> None:
    ran = shell(f"{VLMTUI} {command}", tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert ran.returncode == code, ran.stderr
    assert (
        "Traceback" not in ran.stderr and "internal error" not in ran.stderr and "Exception ignored" not in ran.stderr
    )
    if "/dev/full" in command and code == 1:
        assert "the output could not be written" in ran.stderr
    assert not (tmp_path / "data" / "state" / "logs" / "cli.log").exists()


@pytest.mark.process
@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_json_is_json_in_every_encoding(encoding: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "vlmtui", "prompt", "shapes", "--json", "😀 ü"],
        env={**os.environ, "VLMTUI_DATA_DIR": str(tmp_path), "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert "😀 ü" in json.dumps(json.loads(ran.stdout.decode(encoding)), ensure_ascii=False)


@pytest.mark.process
def test_a_full_disk_can_be_read(tmp_path: Path) -> None:
    """No file may grow, as on a full disk: SQLite has no room for its files beside the database."""
    store = Store.open(tmp_path / "data" / "data")
    conversation = store.new_conversation(title="A cat")
    exchange(store, conversation, 1)
    store.close()
    listed = shell(f"ulimit -f 0; {VLMTUI} conversations", tmp_path)
    assert listed.returncode == 0 and "A cat" in listed.stdout, listed.stderr
    assert "What is saved can be read." in listed.stderr
    written = shell(f"ulimit -f 0; {VLMTUI} export {conversation} --format json | cat", tmp_path)
    assert json.loads(written.stdout)["title"] == "A cat"
    refused = shell(f"echo '{{}}' | (ulimit -f 0; {VLMTUI} export {conversation} -o x.md)", tmp_path)
    assert refused.returncode == 2 and "internal error" not in refused.stderr
    store = Store.open(tmp_path / "data" / "data")
    assert [one.conversation.title for one in store.conversations()] == ["A cat"]
    store.close()


def test_progress_that_cannot_be_written_ends_nothing() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as stream:
        LoadLine("shapes", stream).show(LoadProgress(stage=LoadStage.WEIGHTS, elapsed_s=0.0))
        write_notice(stream, "dropped: this goes nowhere")


@pytest.mark.parametrize(
    ("words", "variable", "value", "said"),
    [
        ("config show", "VLMTUI_SYSTEM_PROMPT", "\udc80", "VLMTUI_SYSTEM_PROMPT is not UTF-8."),
        ("config show --json", "VLMTUI_MODEL", "a\udc80b", "VLMTUI_MODEL is not UTF-8."),
        ("conversations", "VLMTUI_DATA_DIR", "FOLDER/\udc80", "<U+DC80>/config: its path is not UTF-8."),
        ("prompt FOLDER/m\udc80 hi", "", "", "Can't load m<U+DC80>: its path is not UTF-8."),
        ("--data-dir FOLDER/\udc80 config paths", "", "", "its path is not UTF-8."),
        ("prompt shapes hi\udc80", "", "", "The question is not valid text"),
        ("prompt nosuch\udc80 hi", "", "", "Unknown model: 'nosuch\\udc80'"),
    ],
)
def test_names_that_are_not_utf_8_are_reported(
    words: str,
    variable: str,
    value: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("VLMTUI_DATA_DIR", str(tmp_path / "data"))
    if variable:
        monkeypatch.setenv(variable, value.replace("FOLDER", str(tmp_path)))
    (tmp_path / "m\udc80").mkdir()
    (tmp_path / "m\udc80" / "config.json").write_bytes((bundled_model() / "config.json").read_bytes())
    assert main([word.replace("FOLDER", str(tmp_path)) for word in words.split()]) == 2
    assert said in capsys.readouterr().err


def test_other_text_that_is_not_utf_8_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: object) -> int:
        return len("a name\udc80".encode())

    monkeypatch.setattr("vlmtui.cli.config.config", fail)
    assert main(["config", "show"]) == 2
    assert "“a name<U+DC80>” is not UTF-8." in capsys.readouterr().err
