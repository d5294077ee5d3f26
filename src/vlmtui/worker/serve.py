"""`python -m vlmtui.worker.serve`: the server process of a worker, which the guardian starts."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import VlmtuiError
from vlmtui.worker import guardian
from vlmtui.worker.backends import load_backend
from vlmtui.worker.backends.contract import Backend, HostedEngine, Report
from vlmtui.worker.engine_thread import EngineThread, new_event_loop
from vlmtui.worker.log_file import LineFormatter, LogFile
from vlmtui.worker.server import Limits, WorkerServer

_log = logging.getLogger(__name__)
_LOG_TAIL_LINES = 400


def make_server(
    spec: LoadSpec,
    backend: Backend,
    *,
    log: Path,
    runtime: Path,
    keep_alive_s: float | None,
    pid: int,
    limits: Limits | None = None,
) -> WorkerServer:
    """Return a server for a backend. `runtime`: the folder of the spool. `pid`: the pid that clients see as
    the worker's."""

    def log_tail() -> list[str]:
        return log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]

    file = LogFile(log)
    engine = EngineThread(backend, log_tail, file.recent)
    return WorkerServer(spec, backend, engine, file, keep_alive_s, pid, runtime, limits or Limits())


def main(argv: Sequence[str], backend: Backend | None = None) -> int:
    """Serve until stopped and return the exit status. `backend`: used instead of the backend in the spec."""
    arguments = guardian.parser()
    arguments.add_argument("--guardian", type=int, default=0)
    args = arguments.parse_args(argv)
    os.umask(guardian.PRIVATE_UMASK)
    if args.guardian:
        guardian.die_with_parent(args.guardian)
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    spec = msgspec.json.decode(args.spec.read_bytes(), type=LoadSpec)
    server = make_server(
        spec,
        backend or _backend_of(spec),
        log=args.log,
        runtime=args.spec.parent,
        keep_alive_s=None if args.keep_alive == "none" else float(args.keep_alive),
        pid=args.guardian or os.getpid(),
    )
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(server, args.socket, args.ready))


def _backend_of(spec: LoadSpec) -> Backend:
    """Return the spec's backend. If it is unusable, return a backend whose load fails with the reason."""
    try:
        return load_backend(spec.backend)
    except VlmtuiError as error:
        _log.warning("%s (%s)", error, error.detail)
        reason = error

    async def load(spec: LoadSpec, report: Report) -> HostedEngine:
        raise reason

    return Backend(title="none", load=load)


async def _serve(server: WorkerServer, socket: Path, ready: int | None) -> int:
    def signal_ready() -> None:
        if ready is not None:
            with suppress(OSError):  # the process that started this one may have exited
                os.write(ready, b"1")
            os.close(ready)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, server.stop)
    status = await server.run(socket, on_listening=signal_ready)
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # The engine's thread and exit hooks would wait for processes that the guardian kills anyway.
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
