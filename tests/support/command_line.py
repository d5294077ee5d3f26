"""Calls `vlmtui` in this process, in its own folder, with a fake worker."""

from __future__ import annotations

import asyncio
import functools
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import vlmtui.bootstrap
from tests.support.fake_worker import fake_launcher
from tests.support.hosts import patient_host
from vlmtui.cli import main
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint


class Ran(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str


class CommandLine:
    """Calls the command line with the folders `paths`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.paths = Paths.below(folder)
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str, stdin: str = "") -> Ran:
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        try:
            code = main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        return Ran(code, *self._capsys.readouterr())

    def json(self, *arguments: str) -> Any:
        """Return the JSON of a command that succeeds."""
        ran = self(*arguments, "--json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out)

    @property
    def workers(self) -> list[Endpoint]:
        return Endpoint.all(self.paths)


@contextmanager
def opened(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    """A command line in a folder; its workers end with it."""
    monkeypatch.setenv("VLMTUI_DATA_DIR", str(folder))
    monkeypatch.setenv("HF_HUB_CACHE", str(folder / "hub"))
    for name in ("VLMTUI_MODEL", "VLMTUI_SEED", "VLMTUI_TEMPERATURE"):
        monkeypatch.delenv(name, raising=False)
    host = functools.partial(patient_host, launcher=fake_launcher())
    monkeypatch.setattr(vlmtui.bootstrap, "WorkerHost", host)
    yield CommandLine(folder, monkeypatch, capsys)
    asyncio.run(_stop_all(Paths.below(folder)))


async def _stop_all(paths: Paths) -> None:
    host = patient_host(paths)
    for worker in await host.find_all():
        await host.stop(worker.endpoint)
