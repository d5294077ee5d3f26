"""The command that copies files to this machine."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

import pytest

from vlmtui.media.clipboard import scp_line


@pytest.mark.parametrize(
    ("connection", "line"),
    [
        ("10.0.0.9 50000 10.0.0.1 22", "scp FILE me@10.0.0.1:'/a b/'"),
        ("10.0.0.9 50000 10.0.0.1 2222", "scp -P 2222 FILE me@10.0.0.1:'/a b/'"),
        ("::1 50000 2001:db8::1 22", "scp FILE 'me@[2001:db8::1]':'/a b/'"),
        ("1 2 $(reboot) 22", "scp FILE 'me@$(reboot)':'/a b/'"),
        ("1 2 10.0.0.1 -oProxy", "scp -P -oProxy FILE me@10.0.0.1:'/a b/'"),
    ],
)
def test_scp_line(connection: str, line: str) -> None:
    assert scp_line(Path("/a b"), environ={"SSH_CONNECTION": connection, "USER": "me"}) == line


@pytest.mark.parametrize("connection", ["", "nonsense"])
def test_scp_line_without_ssh(connection: str) -> None:
    environ = {"SSH_CONNECTION": connection, "LOGNAME": "me"}
    assert scp_line(Path("/x/"), environ=environ) == f"scp FILE {shlex.quote(f'me@{socket.gethostname()}')}:'/x/'"


def test_scp_line_quotes() -> None:
    line = scp_line(Path("/it's $(x)"), environ={"USER": "m e", "SSH_CONNECTION": "1 2 10.0.0.1 22"})
    assert shlex.split(line) == ["scp", "FILE", "m e@10.0.0.1:/it's $(x)/"]
