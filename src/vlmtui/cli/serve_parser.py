"""The arguments of `vlmtui serve`."""

from __future__ import annotations

import argparse

_RANKS_MAX = 1024


def fill_serve(serve: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    serve.description = (
        "Print the exact `vllm serve` command line for a model, from its record: a line for each node, with the reason "
        "for each flag and an estimate of the memory. It works with vLLM 0.32. Nothing is started without --run."
    )
    serve.add_argument("name", metavar="MODEL", help="a family, a repository id or a local folder")
    serve.add_argument("--tensor", type=_size, metavar="N", help="split each layer over N GPUs (default: the record's)")
    serve.add_argument("--pipeline", type=_size, metavar="N", help="deal the layers out to N stages (default: 1)")
    serve.add_argument("--data", type=_size, metavar="N", help="N copies that share the requests (default: 1)")
    serve.add_argument("--nodes", type=_size, default=1, metavar="N", help="spread them over N machines (1)")
    serve.add_argument(
        "--node-address", default="", metavar="ADDRESS", help="the first machine's address, for the other machines"
    )
    serve.add_argument(
        "--launcher",
        choices=("vllm", "ray"),
        default="vllm",
        help="what starts the ranks on the other machines: vLLM itself, by a line for each (default), or Ray",
    )
    serve.add_argument("--host", default="127.0.0.1", help="where it listens (127.0.0.1)")
    serve.add_argument("--port", type=_port, default=8000, help="where it listens (8000)")
    serve.add_argument(
        "--trust-remote-code", action="store_true", help="let the model run Python code of its own repository"
    )
    serve.add_argument(
        "--engine-arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an additional vLLM engine argument, for example max_model_len=4096; may be repeated",
    )
    serve.add_argument(
        "--run",
        action="store_true",
        help="start the server on this machine, reached by you alone, and open the app on it; without a terminal, or "
        "with --json: print its address and stay until interrupted",
    )
    serve.add_argument("--json", action="store_true", help="print one JSON object")


def _size(text: str) -> int:
    size = int(text)
    if not 1 <= size <= _RANKS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: from 1 to {_RANKS_MAX}")
    return size


def _port(text: str) -> int:
    port = int(text)
    if not 1 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{text}: from 1 to 65535")
    return port
