"""`vlmtui serve`: print the `vllm serve` command lines for a model, or start the server here and connect to it."""

from __future__ import annotations

import argparse

from vlmtui.bootstrap import build
from vlmtui.cli.ask_engine import with_consent
from vlmtui.cli.output import note, print_json, print_warnings
from vlmtui.engine.machine import Machine, gib
from vlmtui.engine.serve_plan import RankLayout, ServePlan, plan_serving
from vlmtui.registry.engine_values import with_engine_args
from vlmtui.registry.match import Model, resolve
from vlmtui.text import visible


def serve(arguments: argparse.Namespace) -> int:
    """Print the command lines, or start the server. Raises VlmtuiError if the model or the layout cannot be served."""
    application = build()
    print_warnings(application.registry.warnings)
    model = with_engine_args(resolve(application.registry, arguments.name), arguments.engine_arg)
    model = with_consent(model, trust=arguments.trust_remote_code)
    if arguments.run:
        from vlmtui.cli.serve_here import serve_here

        return serve_here(application, model, _layout(model, arguments), as_json=arguments.json)
    plan = plan_serving(model, _layout(model, arguments), Machine.measure() if arguments.nodes == 1 else None)
    if arguments.json:
        print_json(plan_json(plan))
        return 0
    print_plan(plan)
    return 0


def _layout(model: Model, arguments: argparse.Namespace) -> RankLayout:
    """Return the layout asked for; a size that is not given is the one of the model's record."""
    sizes = {name: getattr(arguments, name) or _recorded(model, name) for name in ("tensor", "pipeline", "data")}
    return RankLayout(
        **sizes,
        nodes=arguments.nodes,
        node_address=arguments.node_address,
        host=arguments.host,
        port=arguments.port,
        ray=arguments.launcher == "ray",
    )


def _recorded(model: Model, name: str) -> int:
    found = model.spec.engine_args.get(f"{name}_parallel_size")
    return found if isinstance(found, int) and found > 0 else 1


def print_plan(plan: ServePlan) -> None:
    """Print the lines to stdout, ready to be pasted, and the reasons to stderr."""
    for flag in (*plan.flags, *plan.node_flags[0]):
        note(f"{' '.join(flag.words)}: {flag.reason}")
    if len(plan.node_flags) > 1:
        for flag in plan.node_flags[1]:
            if flag not in plan.node_flags[0]:
                note(f"{' '.join(flag.words)}: {flag.reason}")
    memory = "of unknown size" if plan.bytes_per_gpu is None else f"about {gib(plan.bytes_per_gpu)} each"
    count = plan.layout.gpus_per_node
    note(f"Needs {count} GPU{'s' if count > 1 else ''}{' on each node' if plan.layout.nodes > 1 else ''}, {memory}.")
    for warning in plan.warnings:
        note(f"warning: {warning}")
    for number, lines in enumerate(plan.lines, 1):
        if plan.layout.nodes > 1:
            print(f"# node {number} of {plan.layout.nodes}")
        for line in lines:
            print(visible(line), flush=True)


def plan_json(plan: ServePlan) -> dict[str, object]:
    """Return the plan for `--json`."""
    return {
        "model": plan.model,
        "nodes": [
            {
                "command": list(words),
                "flags": [{"words": list(flag.words), "reason": flag.reason} for flag in (*plan.flags, *flags)],
            }
            for words, flags in zip(plan.commands, plan.node_flags, strict=True)
        ],
        **({"ray_starts": [list(words) for words in plan.ray_starts]} if plan.ray_starts else {}),
        "gpus_per_node": plan.layout.gpus_per_node,
        "bytes_per_gpu": plan.bytes_per_gpu,
        "warnings": list(plan.warnings),
    }
