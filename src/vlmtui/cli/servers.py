"""`vlmtui engines probe`: what servers serve and offer."""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor

from vlmtui.bootstrap import build
from vlmtui.cli.output import print_json, print_table
from vlmtui.engine.remote_models import Server, engine_settings, look_at_server
from vlmtui.errors import bad_input
from vlmtui.text import one_line


def probe_servers(arguments: argparse.Namespace) -> int:
    """Ask servers, and print what they serve and offer. Return 1 if one did not answer. Raises VlmtuiError."""
    application = build({})
    engines = application.settings.engines
    names: list[str] = arguments.engine or list(engines)
    if not names:
        hint = "Give an address (http://HOST:PORT), or write [engines.NAME] url = … in config.toml."
        raise bad_input("No server is named.", hint=hint)
    wanted = [(name, engine_settings(engines, name, key_env=arguments.key_env)) for name in names]
    with ThreadPoolExecutor(len(wanted)) as threads:
        found = list(threads.map(lambda one: look_at_server(application.registry, *one), wanted))
    if arguments.json:
        print_json([_as_json(server) for server in found])
    else:
        for number, server in enumerate(found):
            _print(server, is_first=number == 0)
    return int(any(server.error is not None for server in found))


def _print(server: Server, *, is_first: bool) -> None:
    if not is_first:
        print()
    name = f"{server.name}: " if server.name != server.address else ""
    if server.error is not None or server.facts is None:
        print(one_line(f"{name}{server.error}"))
        return
    facts = server.facts
    kind = f"vLLM {facts.version}" if facts.version else "not vLLM"
    print(one_line(f"{name}{server.address} · {kind} · answers in {facts.latency_s * 1000:.0f} ms"))
    print_table(["MODEL", "FAMILY", "CONTEXT"], [_model_row(server, index) for index in range(len(server.models))])
    print()
    rows = [[one.name, "yes" if one.on else "no", "" if one.on else one.flag] for one in facts.features]
    print_table(["FEATURE", "", "SWITCHED ON BY"], rows)


def _model_row(server: Server, index: int) -> list[str]:
    model = server.models[index]
    served = next(one for one in (server.facts.models if server.facts else ()) if one.id == model.spec.model)
    name = f"  {served.id} (LoRA)" if served.parent else served.id
    context = "?" if served.max_model_len is None else f"{served.max_model_len:,}"
    return [name, model.family.family or "not in the registry", context]


def _as_json(server: Server) -> dict[str, object]:
    facts, error = server.facts, server.error
    told = {"engine": server.name, "address": server.address}
    if facts is None:
        return {**told, "error": None if error is None else {"message": error.message, "hint": error.hint}}
    families = {model.spec.model: model.family.family or None for model in server.models}
    return {
        **told,
        "version": facts.version or None,
        "latency_s": facts.latency_s,
        "models": [
            {"id": one.id, "family": families.get(one.id), "parent": one.parent, "max_model_len": one.max_model_len}
            for one in facts.models
        ],
        "features": [{"name": one.name, "on": one.on, "flag": one.flag or None} for one in facts.features],
    }
