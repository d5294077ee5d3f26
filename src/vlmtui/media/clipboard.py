"""Reads images from this machine's clipboard, with `wl-paste` or `xclip`; and the command that copies files here from
the user's own computer."""

from __future__ import annotations

import getpass
import hashlib
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import write_private
from vlmtui.media.paths import looks_like_media, parse_paths
from vlmtui.media.sniff import HEAD_BYTES, Kind, sniff
from vlmtui.processes import find_program
from vlmtui.text import human_bytes, one_line

BYTES_MAX = 256_000_000
WAIT_S = 5.0
_PREFERRED = (
    "image/png",
    "image/webp",
    "image/jpeg",
    "image/avif",
    "image/heic",
    "image/tiff",
    "image/gif",
    "image/bmp",
)
_TYPES_MAX = 100_000


class _Tool(NamedTuple):
    """A clipboard program: the command that lists the available types, and the command that reads a type."""

    display: str
    listing: tuple[str, ...]
    giving: tuple[str, ...]

    def found(self, environ: Mapping[str, str]) -> _Tool | None:
        """Return this tool with the absolute path of its program; None if the program is not installed."""
        program = find_program(self.listing[0], environ)
        if program is None:
            return None
        return self._replace(listing=(program, *self.listing[1:]), giving=(program, *self.giving[1:]))


_TOOLS = (
    _Tool("WAYLAND_DISPLAY", ("wl-paste", "--list-types"), ("wl-paste", "--no-newline", "--type")),
    _Tool(
        "DISPLAY",
        ("xclip", "-selection", "clipboard", "-o", "-t", "TARGETS"),
        ("xclip", "-selection", "clipboard", "-o", "-t"),
    ),
)


def clipboard_pictures(
    folder: Path, *, inbox: Path | None = None, environ: Mapping[str, str] = os.environ, wait_s: float = WAIT_S
) -> tuple[Path, ...]:
    """Save the clipboard's image in `folder`, named by its content hash, and return its path; or return the paths of
    media files that were copied to the clipboard.

    Blocks for up to about `wait_s` seconds: call it in a thread. `inbox`: a folder for images, which the error's hint
    suggests instead of the clipboard. Raises VlmtuiError (BAD_INPUT) if there is no display, no tool or no image.
    """
    until = time.monotonic() + wait_s
    failure: VlmtuiError | None = None
    for tool in _usable_tools(inbox, environ):
        try:
            types = _run(tool.listing, until, _TYPES_MAX).decode("utf-8", "replace").split()
        except VlmtuiError as error:
            failure = failure or error
            continue
        if picture := _picture(tool, types, folder, until):
            return (picture,)
        if files := _files(tool, types, until):
            return files
        failure = bad_input("There is no image in the clipboard.", detail=_listed(types))
    raise failure or bad_input("There is no image in the clipboard.")


def _usable_tools(inbox: Path | None, environ: Mapping[str, str]) -> list[_Tool]:
    displays = [tool for tool in _TOOLS if environ.get(tool.display)]
    if not displays:
        hint = f"From your computer: {scp_line(inbox, environ=environ)}" if inbox else "Copy the image here with scp."
        over = "over SSH" if environ.get("SSH_CONNECTION") else "without a display"
        raise bad_input(f"Can't read the clipboard {over}.", hint=hint)
    tools = [found for tool in displays if (found := tool.found(environ))]
    if not tools:
        package = "wl-clipboard" if displays[0].display == "WAYLAND_DISPLAY" else "xclip"
        name = displays[0].listing[0]
        raise bad_input(f"Can't read the clipboard: {name} is not installed.", hint=f"Install {package}.")
    return tools


def _picture(tool: _Tool, types: list[str], folder: Path, until: float) -> Path | None:
    """Save the image, preferably as PNG, else in the first type whose content is an image. Return its path."""
    offered = [kind for kind in dict.fromkeys(types) if kind.startswith("image/")]
    order = {kind: place for place, kind in enumerate(_PREFERRED)}
    for kind in sorted(offered, key=lambda kind: order.get(kind, len(order))):
        data = _run((*tool.giving, kind), until, BYTES_MAX)
        if sniff(data[:HEAD_BYTES]).kind in (Kind.IMAGE, Kind.ANIMATION):
            ending = kind.removeprefix("image/") if kind in order else "image"
            target = folder / f"clipboard-{hashlib.sha256(data).hexdigest()[:16]}.{ending}"
            write_private(target, data)
            return target
    return None


def _files(tool: _Tool, types: list[str], until: float) -> tuple[Path, ...]:
    if "text/uri-list" not in types:
        return ()
    text = os.fsdecode(_run((*tool.giving, "text/uri-list"), until, _TYPES_MAX))
    lines = (line for line in text.splitlines() if line.startswith("file:"))
    return tuple(path for line in lines for path in parse_paths(line) or () if looks_like_media(path))


def _run(command: tuple[str, ...], until: float, bytes_max: int) -> bytes:
    """Run a program and return its output. It is killed with its children if it is too slow or writes too much."""
    name = Path(command[0]).name
    is_late = threading.Event()

    def end() -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    def end_late() -> None:
        is_late.set()
        end()

    try:
        with tempfile.TemporaryFile() as complaints:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
                cwd=os.sep,
            )
            timer = threading.Timer(max(0.0, until - time.monotonic()), end_late)
            timer.start()
            with process:
                assert process.stdout is not None
                data = process.stdout.read(bytes_max + 1)
                if len(data) <= bytes_max:
                    process.wait()
                timer.cancel()
                end()
            complaints.seek(0)
            said = complaints.read(500).decode("utf-8", "replace").strip()
    except OSError as error:
        raise bad_input(f"Can't read the clipboard: {name} does not run.", detail=str(error)) from error
    if is_late.is_set():
        raise bad_input(
            f"Can't read the clipboard: {name} did not answer in time.",
            hint="The program you copied from may have hung or closed.",
        )
    if len(data) > bytes_max:
        raise bad_input(f"The clipboard's content is too large: the limit is {human_bytes(bytes_max)}.")
    if process.returncode:
        detail = one_line(said) or f"{name} exited with status {process.returncode}."
        raise bad_input("There is no image in the clipboard.", detail=detail)
    return data


def _listed(types: list[str]) -> str:
    return one_line("It contains: " + ", ".join(types[:10])) if types else "It is empty."


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
