"""Readers of what a person types or keeps: lines of plain mode, parameters, documents to replay, a report."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path

from tests.fuzz.campaign import Reader
from tests.support.scripted_engine import ScriptedHost
from tests.support.typed_lines import TypedLines
from vlmtui.cli.doctor import as_text, make_report
from vlmtui.config.settings import load_settings, sources
from vlmtui.domain.dials import default_parameters
from vlmtui.inspection.replay import to_json
from vlmtui.paths import Paths
from vlmtui.plain.repl import Repl
from vlmtui.registry.loader import Registry
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.check.cases import read_comparison, stored_file
from vlmtui.session.lanes import recorded_specs
from vlmtui.ui.services import Services

_LINES_MAX = 12
_LINES = (
    "What is in this image?\n/set temperature=0.5\n/retry\n/branch 1\n/branch 99\n/new\nnew text\n",
    "/attach cat.png\n[Image #1] and [Image #9]?\n/detach 1\n/detach 7\n/export chat.md\n/export chat.json\n/export\n",
    "/help\n/model\n/model none\n/stop\n//no command\n/none x\n/compare\n/system Be brief.\n/system\n",
)
_PARAMETERS = b"""[sampling]
temperature = 0.5

[parameters]
stop = "END"
max_pixels = 200704
min_tokens = 3
"""


def session_readers(comparisons: Callable[[Path], Sequence[bytes]]) -> list[Reader]:
    """`comparisons` makes documents of comparisons."""
    return [
        Reader("lines of plain mode", lambda _: [text.encode() for text in _LINES], _type_lines),
        Reader("[parameters] of config.toml", lambda _: [_PARAMETERS], _read_parameters),
        Reader("document to replay", comparisons, _read_replay),
        Reader("report", lambda _: [b"TERM=xterm-256color\0TMUX=/tmp/x,1,0\0LANG=C.UTF-8\0" + _PARAMETERS], _report),
    ]


def _type_lines(folder: Path, data: bytes) -> None:
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if "://" not in line][:_LINES_MAX]
    with chdir(folder):
        asyncio.run(_session(folder, [line for line in lines if "/" not in line[1:]]))


async def _session(folder: Path, lines: Sequence[str]) -> None:
    host, paths = ScriptedHost(answers=[["a red circle"]] * _LINES_MAX), Paths.below(folder)
    services = Services(
        paths=paths,
        settings=load_settings(paths, {}),
        registry=Registry.bundled(),
        host=host,
        store=AsyncStore(paths),
        keep_alive_s=0,
        initial_model="shapes",
    )
    await Repl(services, TypedLines(lines)).run()


def _read_parameters(folder: Path, data: bytes) -> None:
    paths = Paths.below(folder)
    paths.config.mkdir(parents=True, mode=0o700)
    (paths.config / "config.toml").write_bytes(data)
    default_parameters(load_settings(paths, {}).parameters)
    sources(paths, {})


def _read_replay(folder: Path, data: bytes) -> None:
    file = folder / "document.json"
    file.write_bytes(data)
    comparison = read_comparison(file)
    found = {item.sha256: str(stored_file(folder / "media", item)) for item in comparison.attachments}
    recorded_specs(comparison, found)
    to_json(comparison)


def _report(folder: Path, data: bytes) -> None:
    """The environment is what another program left, the settings and the log lie on the disk."""
    *variables, config = data.split(b"\0")
    paths = Paths.below(folder)
    for place, name, content in ((paths.config, "config.toml", config), (paths.logs, "app.log", data)):
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        (place / name).write_bytes(content)
    pairs = (os.fsdecode(one).partition("=") for one in variables)
    as_text(make_report(paths, (), {name: value for name, _, value in pairs}))
