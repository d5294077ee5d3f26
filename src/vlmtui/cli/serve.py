"""`vlmtui serve`: prints the `vllm serve` command line for a model, and the reason for each flag."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator

from vlmtui.bootstrap import build
from vlmtui.cli.engine import add_engine_arg_option, add_trust_option, with_consent
from vlmtui.cli.output import note, print_json
from vlmtui.engines.serve import Flag, feature_flags, model_flags
from vlmtui.registry.match import resolve, with_engine_args, with_preset
from vlmtui.text import visible

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def fill_serve(serve: argparse.ArgumentParser) -> None:
    serve.description = (
        "Print the `vllm serve` command line for a model, from its record, with the reason for each flag. Run it where "
        "the GPUs are; `vlmtui --engine ADDRESS` then uses that server. Nothing is started. It works with vLLM 0.32."
    )
    serve.add_argument("name", metavar="MODEL", help="a family, a repository id or a local folder")
    serve.add_argument("--host", default="127.0.0.1", help="the address to listen at (127.0.0.1)")
    serve.add_argument("--port", type=int, default=8000, help="the port to listen at (8000)")
    add_trust_option(serve)
    add_engine_arg_option(serve)
    serve.add_argument("--json", action="store_true", help="print one JSON object")


def serve(arguments: argparse.Namespace) -> int:
    """Print the command line to stdout, reasons and warnings to stderr. Raises VlmtuiError."""
    application = build(tell=note)
    model = with_preset(resolve(application.registry, arguments.name), arguments.preset)
    model = with_engine_args(model, arguments.engine_arg)
    model = with_consent(model, trust=arguments.trust_remote_code)
    flags = [
        *model_flags(model.spec),
        *feature_flags(video="video" in model.family.takes),
        Flag(("--host", arguments.host), "the address to listen at"),
        Flag(("--port", str(arguments.port)), "the port to listen at"),
    ]
    command = ["vllm", "serve", model.spec.model, *(word for flag in flags for word in flag.words)]
    warnings = list(_warnings(arguments.host, [adapter.name for adapter in model.spec.loras]))
    if arguments.json:
        told = [{"words": list(flag.words), "reason": flag.reason} for flag in flags]
        print_json({"command": command, "flags": told, "warnings": warnings})
        return 0
    for flag in flags:
        note(f"{' '.join(flag.words)}: {flag.reason}")
    for warning in warnings:
        note(f"warning: {warning}")
    print(visible(shlex.join(command)), flush=True)
    return 0


def _warnings(host: str, adapters: list[str]) -> Iterator[str]:
    if host not in _LOOPBACK:
        yield (
            "Others on the network can reach it: set VLLM_API_KEY in its environment, never on its command line. "
            "vLLM asks for no key at /metrics, /tokenize and /invocations, and the last one answers chats."
        )
    for name in adapters:
        yield f"The record's adapter {name!r} is not part of this line: add --lora-modules NAME=FOLDER."
