"""`vlmtui doctor --report` prints only facts that are safe to publish, even on a hostile machine."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine, opened
from vlmtui.cli.doctor import Check, as_text, crashes_in, make_report, version_text
from vlmtui.errors import ErrorKind
from vlmtui.paths import Paths

SECRET = "s3cr3t"
CONFIG = f"""
model = "/home/{SECRET}/model"
theme = "{SECRET}"
system_prompt = "You are {SECRET}."
keep_alive = "90s"
[sampling]
temperature = 0.25
[keys]
attach = "ctrl+a"
{SECRET} = "ctrl+b"
[engines.{SECRET}]
url = "http://{SECRET}.example:8000"
"""
LOG = f"""2026-01-01 10:00:00 1 ERROR vlmtui.cli.main: uncaught
Traceback (most recent call last):
  File "/home/{SECRET}/lib/vlmtui/cli/main.py", line 71, in main
    {SECRET}()
  File "/home/{SECRET}/lib/vlmtui/store/{SECRET}.py", line 3, in {SECRET}
KeyError: '{SECRET}'
Traceback (most recent call last):
  File "/home/{SECRET}/own.py", line 1, in {SECRET}
{SECRET}.Error: {SECRET}
"""
VARIABLES = (
    "TERM", "TERM_PROGRAM", "LANG", "USER", "LOGNAME", "HOSTNAME", "HOME", "HF_TOKEN", "HF_ENDPOINT", "COLORTERM",
    "SSH_CONNECTION", "TMUX", "HF_HUB_OFFLINE", "VLMTUI_SYSTEM_PROMPT", "HTTPS_PROXY",
)  # fmt: skip


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """Return folders and an environment in which every name and text is private."""
    paths = Paths.below(tmp_path / SECRET)
    for folder in (paths.config, paths.data, paths.logs, paths.families):
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    (paths.config / "config.toml").write_text(CONFIG)
    (paths.families / f"{SECRET}.toml").write_text(SECRET)
    (paths.logs / "app.log").write_text(LOG)
    (paths.logs / "cli.log").mkdir()
    hub = tmp_path / SECRET / "hub"
    (hub / f"models--{SECRET}--{SECRET}").mkdir(parents=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    monkeypatch.setenv("VLMTUI_DATA_DIR", str(tmp_path / SECRET))
    for name in VARIABLES:
        monkeypatch.setenv(name, f"/home/{SECRET}")
    for name in ("system", "release", "machine"):
        monkeypatch.setattr(f"platform.{name}", lambda name=name: f"6.1.0-{SECRET}" if name == "release" else SECRET)
    monkeypatch.setattr("platform.libc_ver", lambda: (SECRET, SECRET))
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"1.2+{SECRET}")
    return paths


def test_nothing_private_of_a_hostile_machine_is_in_it(hostile: Paths) -> None:
    failed = Check("engine", "fail", f"{SECRET} failed", f"See /home/{SECRET}.", ErrorKind.OUT_OF_MEMORY)
    report: Any = make_report(hostile, [failed], os.environ)
    text = as_text(report)
    for told in (text, json.dumps(report)):
        assert SECRET not in told
        assert "/home" not in told
        assert str(hostile.data) not in told
        assert "\x1b" not in told
    assert report["checks"] == {"engine": "fail (out_of_memory)"}
    settings = report["settings"]
    assert settings["sampling.temperature"] == settings["model"] == settings["engines"] == "file"
    assert settings["system_prompt"] == "environment"
    assert report["system"]["kernel"] == "other 6.1.0 (and more)"
    assert report["packages"]["textual"] == "1.2+other"
    assert report["crashes"] == ["KeyError, vlmtui/cli/main.py:71", "another exception, outside vlmtui"]


def test_settings_that_are_invalid_are_not_shown(hostile: Paths) -> None:
    (hostile.config / "config.toml").write_text(f'{SECRET} = "{SECRET}"')
    report = make_report(hostile, [], {})
    assert report["settings"] == {"all": "invalid"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0.32.0+cpu", "0.32.0+cpu"),
        ("2.13.0+cu130", "2.13.0+cu130"),
        ("1.0rc1", "1.0rc1"),
        ("0.32.1.dev3+gabc.acme", "0.32.1.dev3+other"),
        ("5.15.0-1034-acme", "5.15.0 (and more)"),
        ("acme", "other"),
        ("", "other"),
    ],
)
def test_versions_are_shown_without_local_parts(text: str, shown: str) -> None:
    assert version_text(text) == shown


def test_only_the_newest_crashes_are_named() -> None:
    one = 'Traceback (most recent call last):\n  File "/x/vlmtui/cli/main.py", line {}, in main\nValueError: x\n'
    assert crashes_in("".join(one.format(line) for line in range(9))) == [
        f"ValueError, vlmtui/cli/main.py:{line}" for line in (6, 7, 8)
    ]
    assert crashes_in("Traceback (most recent call last):\n") == []


@pytest.fixture
def vlmtui(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    with opened(tmp_path, monkeypatch, capsys) as command_line:
        yield command_line


@pytest.mark.process
def test_the_command_prints_one_block_or_one_object(vlmtui: CommandLine) -> None:
    ran = vlmtui("doctor", "--report")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert (lines[0], lines[-1]) == ("```text", "```")
    assert re.search(r"^checks +python ok.*engine fail", ran.out, re.MULTILINE)
    report = vlmtui.json("doctor", "--report")
    assert report["vlmtui"] and report["checks"]["engine"] == "fail"
    folder = str(vlmtui.paths.data.parent)
    for private in (folder, socket.gethostname(), f"/{getpass.getuser()}"):
        assert private not in ran.out
        assert private not in json.dumps(report)
