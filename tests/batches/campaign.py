"""Batches that are struck at random moments: every item once, with its own answer, whatever is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

import psutil

from tests.torture.campaign import Role, role_of
from tests.torture.worker import said
from vlmtui.engine.local.processes import worker_processes
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint

_ROOT = Path(__file__).resolve().parents[2]
_LOOK_S = 0.02

Blow = Literal["client", "server", "guardian", "core", "disk full", "Ctrl+C"]
BLOWS: tuple[Blow, ...] = ("client", "server", "guardian", "core", "disk full", "Ctrl+C")
_ROLES: dict[Blow, Role] = {"server": "server", "guardian": "guardian", "core": "core"}


@dataclass
class BatchCampaign:
    """All in one folder, which must have a short name (sockets). engine: `scripted` or `vllm`, the bundled model."""

    folder: Path
    items: int = 300
    seed: int = 1
    engine: str = "scripted"
    patience_s: float = 240.0
    """Seconds without progress that count as a standstill."""
    losses: list[str] = field(default_factory=list)
    blows: Counter[Blow] = field(default_factory=Counter)
    files: int = 0
    """Output files that were finished."""
    struck_items: list[int] = field(default_factory=list)
    """The number of answered items at each kill."""
    stops_s: list[float] = field(default_factory=list)
    """Seconds from each Ctrl+C to the end of the process."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._interrupted: float | None = None
        self.paths = Paths.below(self.folder / "data")
        self.full = self.folder / "full"
        self.input = self.folder / "in.jsonl"
        self.output = self.folder / "out.jsonl"
        self.log = self.folder / "log"
        self.input.write_text("".join(json.dumps(self._item(number)) + "\n" for number in range(self.items)))

    def play(self, kills: int) -> None:
        """Strike so many times; each output file is finished, checked, and followed by the next one."""
        try:
            while sum(self.blows.values()) < kills and not self.losses:
                self._one_file(kills)
        finally:
            self.end_workers()

    def table(self) -> str:
        rows = [f"{count:4} × {blow}" for blow, count in sorted(self.blows.items())]
        total = f"{sum(self.blows.values())} blows, {self.files} files of {self.items} items, {len(self.losses)} losses"
        if self.stops_s:
            rows.append(f"Ctrl+C to the end of the process: {max(self.stops_s):.1f} s at most")
        return "\n".join([*rows, total])

    def _one_file(self, kills: int) -> None:
        self.output.unlink(missing_ok=True)
        while not self.losses:
            is_last = sum(self.blows.values()) >= kills
            with self._client() as client:
                if not is_last:
                    self._strike(client)
                status = client.wait(self.patience_s)
                if self._interrupted is not None:
                    self.stops_s.append(time.monotonic() - self._interrupted)
                    self._interrupted = None
            self.full.unlink(missing_ok=True)
            self._check(whole=status == 0)
            if status == 0:
                self.files += 1
                return
            if status not in (130, 2, -signal.SIGKILL):
                self.losses.append(f"the batch ended with {status}: {self.log.read_text()[-2000:]}")

    def _strike(self, client: subprocess.Popen[bytes]) -> None:
        """Wait until some more items are done, and strike; a worker that is killed may be followed by its successor."""
        while client.poll() is None:
            blow = self.random.choice(BLOWS)
            wanted = self._done() + self.random.randrange(1, max(2, self.items // 6))
            if not self._wait_for(client, wanted):
                return
            if not self._hit(client, blow):
                continue
            self.blows[blow] += 1
            self.struck_items.append(self._done())
            if blow not in _ROLES:
                return

    def _hit(self, client: subprocess.Popen[bytes], blow: Blow) -> bool:
        match blow:
            case "client":
                client.kill()
            case "Ctrl+C":
                self._interrupted = time.monotonic()
                client.send_signal(signal.SIGINT)
            case "disk full":
                self.full.touch()
            case _:
                return self._kill_worker(_ROLES[blow])
        return True

    def _kill_worker(self, which: Role) -> bool:
        struck = False
        for endpoint in Endpoint.all(self.paths):
            for process in worker_processes(endpoint):
                with contextlib.suppress(psutil.Error):
                    if role_of(process) == which:
                        process.kill()
                        struck = True
        return struck

    def _wait_for(self, client: subprocess.Popen[bytes], lines: int) -> bool:
        """Return whether so many lines are in the output before the client has ended."""
        deadline = time.monotonic() + self.patience_s
        while client.poll() is None:
            if self._done() >= lines:
                return True
            if time.monotonic() > deadline:
                self.losses.append(f"nothing goes on at {self._done()} items: {self.log.read_text()[-2000:]}")
                client.kill()
                return False
            time.sleep(_LOOK_S)
        return False

    def _done(self) -> int:
        return self.output.read_bytes().count(b"\n") if self.output.exists() else 0

    def _check(self, *, whole: bool) -> None:
        """Every whole line is right and there once; with `whole`, every item is there, and nothing else."""
        data = self.output.read_bytes() if self.output.exists() else b""
        lines = data.splitlines(keepends=True)
        if whole and lines and not lines[-1].endswith(b"\n"):
            self.losses.append("the finished output ends in the middle of a line")
        found = [json.loads(line) for line in lines if line.endswith(b"\n")]
        names = Counter(line["id"] for line in found)
        self.losses += [f"{name} is there {count} times" for name, count in names.items() if count > 1]
        for line in found:
            if line["error"] is not None or line["answer"].split() != self._answer(line["id"]):
                self.losses.append(f"{line['id']} got {line.get('answer')!r} {line['error']}")
        if whole and (left := [*(self.paths.cache / "batches").iterdir()]):
            self.losses.append(f"left: {left}")
        if whole and set(names) != {f"k{number}" for number in range(self.items)}:
            self.losses.append(f"{self.items - len(names)} items are missing")

    def _item(self, number: int) -> dict[str, object]:
        name = f"k{number}"
        if self.engine == "scripted":
            return {"id": name, "prompt": f"say 2 {name}"}
        return {"id": name, "prompt": f"Count to {2 + number % 19}."}

    def _answer(self, name: str) -> list[str]:
        if self.engine == "scripted":
            return "".join(said(f"say 2 {name}")).split()
        return [str(number) for number in range(1, 3 + int(name[1:]) % 19)]

    def _client(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.batches.client", self.engine, str(self.full), "batch", str(self.input)]
        environment = {
            "HOME": str(self.folder),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])),
            "VLMTUI_DATA_DIR": str(self.folder / "data"),
        }
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [*command, "-o", str(self.output), "--keep-alive", "20s"],
                env=environment,
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def end_workers(self) -> None:
        """Kill all workers of the folder."""
        for endpoint in Endpoint.all(self.paths):
            for process in worker_processes(endpoint):
                with contextlib.suppress(psutil.Error):
                    process.kill()
