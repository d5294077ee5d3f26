"""The command with which users copy files from their own computer into a folder of this machine."""

from __future__ import annotations

import getpass
import os
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path


def scp_line(folder: Path, *, environ: Mapping[str, str] = os.environ) -> str:
    """Return a shell command for the user's own computer that copies `FILE` into `folder` on this machine.

    Host and port are those of the SSH session; behind a jump host or port forwarding they may differ.
    """
    host, port = _address(environ.get("SSH_CONNECTION", ""))
    user = environ.get("USER") or environ.get("LOGNAME") or _user()
    there = str(folder.absolute()).rstrip("/") + "/"
    option = f"-P {shlex.quote(port)} " if port != "22" else ""
    quoted = "'" + there.replace("'", "'\\''") + "'"
    return f"scp {option}FILE {shlex.quote(f'{user}@{host}')}:{quoted}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "USER"


def _address(connection: str) -> tuple[str, str]:
    """Return this machine's address and port from `SSH_CONNECTION` (client, its port, server, its port)."""
    fields = connection.split()
    if len(fields) != 4:
        return socket.gethostname(), "22"
    _, _, host, port = fields
    return (f"[{host}]" if ":" in host else host), port
