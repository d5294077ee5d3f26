"""A small real process that speaks a worker's side of the protocol, without any engine.

    python -c "from tests.support.fake_worker import main; main()" --socket S --spec F --log L --keep-alive SECONDS|none

The spec's `engine_args` set its behaviour:
`load`: `ready` (default), `hold` (loads until it is ended), `fail`, `die`;
`greeting`: `old`, `refuse`, `garbage`, `none`;
`children`: how many processes that ignore SIGTERM it starts; `stubborn`: ignores Shutdown and SIGTERM;
`start`: `die` ends it before it listens; `silent`: answers no status requests;
`says`: the pieces of every answer; `log`: the lines of its log; `template`: its chat template.

Without `says`, the words of a raw prompt are the steps of the answer: `hold` (until cancelled), `die`, `fail`,
`garbage`, `oversized`, `foreign` (an event of another request); any other word is streamed as a delta.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from tests.support.scripted_engine import Say, prompt_text, scripted_delta, scripted_info, scripted_prompt
from vlmtui.domain.engine import Activity, EngineReady, EngineStatus, LoadFailed, LoadProgress, LoadSpec, LoadStage
from vlmtui.domain.generation import (
    Cancelled,
    Delta,
    Failed,
    Failure,
    Finished,
    GenerateRequest,
    RenderRequest,
    Request,
    ScoreRequest,
    Timings,
    usage_of,
)
from vlmtui.engine.local.launcher import Launcher, WorkerProgram
from vlmtui.errors import ErrorKind
from vlmtui.protocol.endpoint import END_MARK
from vlmtui.protocol.messages import (
    MAX_MESSAGE_BYTES,
    MAX_REPLY_BYTES,
    PROTOCOL_VERSION,
    Cancel,
    GetLog,
    GetStatus,
    Hello,
    LogLines,
    Refused,
    Shutdown,
    StatusReport,
    Welcome,
    WorkerMessage,
    decode_client_message,
    encode,
    read_line,
)
from vlmtui.worker.loaded_files import LoadedFiles

_ROOT = Path(__file__).parents[2]
_RUN_CLI = """
import sys; sys.path.insert(0, {root!r})
import functools, vlmtui.bootstrap
from tests.support.fake_worker import fake_launcher
vlmtui.bootstrap.WorkerHost = functools.partial(vlmtui.bootstrap.WorkerHost, launcher=fake_launcher())
from vlmtui.cli import main
sys.exit(main())
"""
OPTIONS_VARIABLE = "FAKE_WORKER_OPTIONS"
"""Environment variable with further options as JSON, for tests that can't change the spec."""
_RUN = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from tests.support.fake_worker import main; main()"


def fake_launcher() -> Launcher:
    """Return a launcher that starts this process instead of the real worker."""
    return Launcher(lambda spec: WorkerProgram(("-c", _RUN)))


def fake_cli() -> list[str]:
    """Run the command line `vlmtui` with this process as its worker."""
    return [sys.executable, "-c", _RUN_CLI.format(root=str(_ROOT))]


class FakeWorker:
    """State shared by all connections."""

    def __init__(self, spec: LoadSpec, options: dict[str, object], keep_alive_s: float | None) -> None:
        self.spec = spec
        self.options = options
        self.keep_alive_s = keep_alive_s
        self.files = LoadedFiles(spec)
        self.info = msgspec.structs.replace(scripted_info(spec), files=self.files.loaded(None))
        if template := options.get("template"):
            self.info = msgspec.structs.replace(self.info, chat_template=str(template))
        self.ready = asyncio.Event()
        self.over = asyncio.Event()
        self.clients: set[asyncio.StreamWriter] = set()
        self.visitors: set[asyncio.StreamWriter] = set()
        """Connections of `vlmtui ps` and `vlmtui stop`, which do not count as clients."""
        self.cancels: dict[str, asyncio.Event] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    async def serve(self, socket: Path, ready: int) -> None:
        server = await asyncio.start_unix_server(self.client, socket, limit=MAX_MESSAGE_BYTES)
        socket.chmod(0o600)
        os.write(ready, b"1")
        os.close(ready)
        await self.load()
        await self.over.wait()
        server.close()  # `async with` would wait for the clients, from Python 3.12 on

    async def load(self) -> None:
        match self.options.get("load", "ready"):
            case "die":
                while not self.clients:
                    await asyncio.sleep(0.01)
                print(f"the engine is about to die\n{END_MARK}exited with status 3.", flush=True)
                os._exit(3)
            case "fail":
                while not self.clients:
                    await asyncio.sleep(0.01)
                failure = Failure(kind=ErrorKind.OUT_OF_MEMORY, message="The model does not fit.")
                self.tell_all(LoadFailed(failure))
                self.over.set()
            case "ready":
                self.ready.set()

    def strings(self, option: str) -> tuple[str, ...]:
        return msgspec.convert(self.options.get(option, ()), tuple[str, ...])

    def tell_all(self, message: WorkerMessage) -> None:
        for writer in self.clients:
            writer.write(encode(message))

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not await self.greet(reader, writer):
            writer.close()
            return
        self.clients.add(writer)
        self.spawn(self.report_load(writer))
        while (line := await read_line(reader)) is not None:
            self.take(decode_client_message(line), writer)
        was_user = writer not in self.visitors
        self.clients.discard(writer)
        self.visitors.discard(writer)
        writer.close()
        if self.keep_alive_s == 0 and was_user and not self.clients - self.visitors:
            self.over.set()

    async def greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        hello = decode_client_message(await read_line(reader) or b"")
        assert isinstance(hello, Hello)
        if hello.client in ("ps", "stop"):
            self.visitors.add(writer)
        info = self.info if self.ready.is_set() else None
        changed = self.files.changed()
        welcome = Welcome(version=PROTOCOL_VERSION, pid=os.getpid(), spec=self.spec, info=info, changed=changed)
        match self.options.get("greeting"):
            case "old":
                writer.write(encode(msgspec.structs.replace(welcome, version=PROTOCOL_VERSION + 98)))
            case "refuse":
                writer.write(encode(Refused(Failure(kind=ErrorKind.PROTOCOL, message="You are too new."))))
                return False
            case "garbage":
                writer.write(b"\x00\xff{]\n")
                return False
            case "none":
                await self.over.wait()
            case _:
                writer.write(encode(welcome))
        return True

    async def report_load(self, writer: asyncio.StreamWriter) -> None:
        if self.ready.is_set():
            return
        for stage in LoadStage:
            writer.write(encode(LoadProgress(stage=stage, elapsed_s=0.5)))
        await self.ready.wait()
        writer.write(encode(EngineReady(self.info)))

    def take(self, message: object, writer: asyncio.StreamWriter) -> None:
        silent = bool(self.options.get("silent"))
        match message:
            case GenerateRequest() | ScoreRequest() | RenderRequest():
                self.cancels[message.request_id] = asyncio.Event()
                self.spawn(self.answer(message, writer))
            case Cancel(request_id):
                if request_id in self.cancels:
                    self.cancels[request_id].set()
            case GetStatus() if not silent:
                writer.write(encode(self.status()))
            case GetLog(lines=lines, follow=follow):
                told = self.strings("log") or tuple(f"line {number}" for number in range(5))
                writer.write(encode(LogLines(told[-lines:])))
                if follow:
                    writer.write(encode(LogLines(("a new line",))))
            case Shutdown() if not self.options.get("stubborn"):
                self.over.set()

    def status(self) -> StatusReport:
        status = EngineStatus(
            spec=self.spec,
            state=Activity.IDLE if self.ready.is_set() else Activity.LOADING,
            clients=len(self.clients) - len(self.visitors),
            running=len(self.cancels),
            idle_s=1.0,
            keep_alive_s=self.keep_alive_s,
            rss_bytes=2**20,
            gpu_bytes=None,
            changed=self.files.changed(),
        )
        return StatusReport(pid=os.getpid(), status=status)

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        request_id = request.request_id
        prompt = scripted_prompt(request)
        started = time.monotonic()
        tokens = 0
        writer.write(encode(prompt))
        cancelled = self.cancels[request_id]
        words = self.strings("says") or prompt_text(request.prompt).split()
        for word in () if isinstance(request, RenderRequest) else words:
            await writer.drain()
            match word:
                case "hold":
                    await cancelled.wait()
                case "die":
                    os._exit(9)
                case "fail":
                    failure = Failure(kind=ErrorKind.CONTEXT_TOO_LONG, message="The prompt is too long.")
                    writer.write(encode(Failed(request_id=request_id, failure=failure)))
                    return
                case "garbage":
                    writer.write(b'{"type":"nonsense"}\n')
                case "oversized":
                    writer.write(b"x" * (MAX_REPLY_BYTES + 2) + b"\n")
                case "foreign":
                    writer.write(encode(Delta(request_id="another", text="not yours", tokens=1)))
                case _:
                    tokens += 1
                    writer.write(encode(scripted_delta(request, Say(f"{word} "))))
            if cancelled.is_set():
                break
        del self.cancels[request_id]
        usage = usage_of(prompt, tokens)
        timings = Timings(ttft_s=0.01, total_s=time.monotonic() - started)
        if cancelled.is_set():
            writer.write(encode(Cancelled(request_id=request_id, usage=usage, timings=timings)))
            return
        end = Finished(request_id=request_id, finish_reason="stop", usage=usage, timings=timings, stop="<|im_end|>")
        writer.write(encode(end))

    def spawn(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--socket", "--spec", "--log", "--keep-alive", "--ready"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    spec = msgspec.json.decode(Path(options.spec).read_bytes(), type=LoadSpec)
    further = msgspec.json.decode(os.environ.get(OPTIONS_VARIABLE, "{}"), type=dict[str, object])
    behaviour = {**spec.engine_args, **further}
    if behaviour.get("start") == "die":
        sys.exit("nothing works here")
    if behaviour.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    children = behaviour.get("children", 0)
    assert isinstance(children, int)
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    for _ in range(children):
        subprocess.Popen([sys.executable, "-c", code])
    keep_alive_s = None if options.keep_alive == "none" else float(options.keep_alive)
    asyncio.run(FakeWorker(spec, behaviour, keep_alive_s).serve(Path(options.socket), int(options.ready)))
    Path(options.socket).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
