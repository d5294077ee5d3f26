"""A package `vllm` without a model: its server is a process with an engine core, and speaks HTTP as the fault server
does. The name of the model's folder selects its behaviour: a key of `_SAYS`, or `hangs-answering`."""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.fault_server import FaultServer, first_event, send, stream, token_event

VERSION = "9.9.9"
STARTED = "started.json"
"""Name of the file in the working directory with the command line, the pids, and the requests."""
_SMALL = 1024
_SAYS = {
    "dies-loading": ("ValueError: the weights are torn", 1),
    "refuses-code": ("ValueError: The repository m contains custom code which must be executed", 1),
    "small-context": (
        "  Value error, User-specified max_model_len (4096) is greater than the derived max_model_len "
        f"(max_position_embeddings={_SMALL} or model_max_length=None in model's config.json). To allow overriding "
        "this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
        1,
    ),
    "bad-argument": ("vllm serve: error: unrecognized arguments: --nonsense 1", 2),
}


def write_fake_vllm(folder: Path, *, has_sockets: bool = True) -> Path:
    """Write the package into a folder for Python's search path. `has_sockets`: True if its server accepts `--uds`."""
    package = folder / "vllm"
    (package / "entrypoints" / "cli").mkdir(parents=True)
    (package / "entrypoints" / "openai").mkdir()
    (package / "engine").mkdir()
    for place in (package, package / "entrypoints", package / "entrypoints" / "cli"):
        (place / "__init__.py").write_text("")
    code = "from tests.support.fake_vllm import main\n\nif __name__ == '__main__':\n    main()\n"
    (package / "entrypoints" / "cli" / "main.py").write_text(code)
    options = "trust_request_chat_template: bool\n" + ("uds: str | None\n" if has_sockets else "")
    (package / "entrypoints" / "openai" / "cli_args.py").write_text(options)
    (package / "engine" / "arg_utils.py").write_text('"--served-model-name" "--dtype" "--max-model-len"\n')
    return folder


def _core() -> None:
    while True:
        time.sleep(60)


def main(argv: Sequence[str] | None = None, server: type[KeyedServer] | None = None) -> None:
    """Serve until killed. `server`: the server to use instead of the normal one."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("model")
    parser.add_argument("--uds")
    parser.add_argument("--port", type=int)
    parser.add_argument("--max-model-len", type=int, default=0)
    arguments, _ = parser.parse_known_args(words)
    behaviour = Path(arguments.model).name
    core = multiprocessing.get_context("spawn").Process(target=_core)
    core.start()
    facts = {
        "words": words,
        "pids": [os.getpid(), core.pid],
        "version": importlib.metadata.version("vllm"),
        "key": os.environ.get("VLLM_API_KEY", ""),
        "socket_was_there": bool(arguments.uds) and Path(arguments.uds).exists(),
    }
    Path(STARTED).write_text(json.dumps(facts))
    if behaviour in _SAYS and not (behaviour == "small-context" and arguments.max_model_len <= _SMALL):
        said, status = _SAYS[behaviour]
        print(said, file=sys.stderr, flush=True)
        core.kill()
        os._exit(status)
    asyncio.run(_serve(arguments, behaviour, (server or KeyedServer)(str(facts["key"]))))


async def _serve(arguments: argparse.Namespace, behaviour: str, server: KeyedServer) -> None:
    if behaviour == "hangs-answering":
        server.replies["/v1/chat/completions"] = [_hangs]
    if arguments.uds:
        listening = await asyncio.start_unix_server(server.serve, arguments.uds)
    else:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", arguments.port)
    await listening.serve_forever()


class KeyedServer(FaultServer):
    """A server that requires a key if it has one."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key

    async def honest(self, path: str, asked: dict[str, object], writer: asyncio.StreamWriter) -> None:
        if self._key and f"authorization: bearer {self._key}".lower() not in self.heads[-1].lower():
            await send(writer, {"error": "Unauthorized"}, status=401)
            return
        await super().honest(path, asked, writer)


async def _hangs(server: FaultServer, writer: asyncio.StreamWriter) -> None:
    """Stream a word, print a dying engine's message, and fall silent."""
    await stream(writer, [first_event(), token_event(4)])
    print("ERROR EngineCore: torch.OutOfMemoryError: CUDA out of memory.", file=sys.stderr, flush=True)
    await server.released.wait()
