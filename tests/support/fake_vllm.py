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

from tests.support.fault_server import FaultServer, first_event, stream, token_event

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


def write_fake_vllm(folder: Path) -> Path:
    """Write the package into a folder for Python's search path."""
    package = folder / "vllm"
    (package / "entrypoints" / "cli").mkdir(parents=True)
    (package / "entrypoints" / "openai").mkdir()
    (package / "engine").mkdir()
    for place in (package, package / "entrypoints", package / "entrypoints" / "cli"):
        (place / "__init__.py").write_text("")
    code = "from tests.support.fake_vllm import main\n\nif __name__ == '__main__':\n    main()\n"
    (package / "entrypoints" / "cli" / "main.py").write_text(code)
    (package / "entrypoints" / "openai" / "cli_args.py").write_text("trust_request_chat_template: bool\n")
    (package / "engine" / "arg_utils.py").write_text('"--served-model-name" "--dtype" "--max-model-len"\n')
    return folder


def _core() -> None:
    while True:
        time.sleep(60)


def main(argv: Sequence[str] | None = None, server: type[FaultServer] = FaultServer) -> None:
    """Serve until killed."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("model")
    parser.add_argument("--uds")
    parser.add_argument("--max-model-len", type=int, default=0)
    arguments, _ = parser.parse_known_args(words)
    behaviour = Path(arguments.model).name
    core = multiprocessing.get_context("spawn").Process(target=_core)
    core.start()
    facts = {
        "words": words,
        "pids": [os.getpid(), core.pid],
        "version": importlib.metadata.version("vllm"),
        "socket_was_there": Path(arguments.uds).exists(),
    }
    Path(STARTED).write_text(json.dumps(facts))
    if behaviour in _SAYS and not (behaviour == "small-context" and arguments.max_model_len <= _SMALL):
        said, status = _SAYS[behaviour]
        print(said, file=sys.stderr, flush=True)
        core.kill()
        os._exit(status)
    asyncio.run(_serve(arguments, behaviour, server()))


async def _serve(arguments: argparse.Namespace, behaviour: str, server: FaultServer) -> None:
    if behaviour == "hangs-answering":
        server.replies["/v1/chat/completions"] = [_hangs]
    listening = await asyncio.start_unix_server(server.serve, arguments.uds)
    await listening.serve_forever()


async def _hangs(server: FaultServer, writer: asyncio.StreamWriter) -> None:
    """Stream a word, print a dying engine's message, and fall silent."""
    await stream(writer, [first_event(), token_event(4)])
    print("ERROR EngineCore: torch.OutOfMemoryError: CUDA out of memory.", file=sys.stderr, flush=True)
    await server.released.wait()
