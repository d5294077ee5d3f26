"""`vlmtui models`: what is known, one family in full, and the skeleton of a new record."""

from __future__ import annotations

import argparse
import re

import msgspec

from vlmtui.bootstrap import Application, build
from vlmtui.cli.output import note, print_json, print_table, print_warnings
from vlmtui.engine.fit import describe, judge
from vlmtui.engine.machine import Machine
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.registry.cache import downloaded, read_config
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import family_of_config, family_of_name, resolve
from vlmtui.registry.routes import closed, route_name, status_of
from vlmtui.registry.schema import Family
from vlmtui.registry.skeleton import skeleton


def models(arguments: argparse.Namespace) -> int:
    """List the families, show one of them, or begin a new one."""
    application = build()
    print_warnings(application.registry.warnings)
    match arguments.action:
        case "show":
            return _show(application, arguments)
        case "new":
            return _new(application, arguments)
    return _list(application, arguments)


def _list(application: Application, arguments: argparse.Namespace) -> int:
    here = _downloaded(application.registry)
    families = [
        family
        for family in application.registry.values()
        if (arguments.modality is None or arguments.modality in family.takes)
        and (not arguments.runnable or status_of(family) in ("runs", "no vLLM"))
    ]
    if arguments.json:
        print_json([_as_json(family, here.get(family.family, [])) for family in families])
        return 0
    rows = [
        [
            family.family,
            f"{family.parameters_b:g}" if family.parameters_b is not None else "?",
            ", ".join(f"{takes.max_items} {modality}" for modality, takes in family.takes.items()),
            f"{family.context}" if family.context is not None else "?",
            route_name(family),
            status_of(family),
            f"{len(here[family.family])}" if family.family in here else "",
            family.models[0],
        ]
        for family in families
    ]
    print_table(["NAME", "SIZE (B)", "TAKES AT MOST", "CONTEXT", "ROUTE", "STATUS", "HERE", "MODEL"], rows)
    return 0


def _downloaded(registry: Registry) -> dict[str, list[str]]:
    """The downloaded models, by family; those of no family are left out."""
    found: dict[str, list[str]] = {}
    for one in downloaded():
        try:
            family = next((family for family in registry.values() if one.name in family.models), None)
            family = family or family_of_config(registry, read_config(one.folder), one.name)
            family = family or family_of_name(registry, one.name.rpartition("/")[2])
        except VlmtuiError:
            continue
        if family is not None:
            found.setdefault(family.family, []).append(one.name)
    return found


def _as_json(family: Family, here: list[str]) -> dict[str, object]:
    return {
        "name": family.family,
        "title": family.title,
        "models": list(family.models),
        "takes": {modality: takes.max_items for modality, takes in family.takes.items()},
        "parameters_b": family.parameters_b,
        "context": family.context,
        "licence": family.licence,
        "gated": family.gated,
        "trust_remote_code": family.trust_remote_code,
        "route": route_name(family),
        "status": status_of(family),
        "runnable": closed(family) is None,
        "checked": family.checked,
        "downloaded": here,
        "note": family.note,
    }


def _show(application: Application, arguments: argparse.Namespace) -> int:
    model = resolve(application.registry, arguments.name)
    family, error = model.family, closed(model.family)
    machine = Machine.measure()
    if arguments.json:
        record = msgspec.to_builtins(family)
        record |= {
            "model": model.spec.name,
            "route": route_name(family),
            "status": status_of(family),
            "runnable": error is None,
            "why_not": str(error) if error else None,
            "resolved_engine_args": dict(model.spec.engine_args),
            "fit": describe(judge(model, machine), machine),
        }
        print_json(record)
        return 0
    print(f"# {family.title}: {model.spec.name}, route {route_name(family)}: {status_of(family)}")
    if error:
        print(f"# {error}")
    print(f"# {describe(judge(model, machine), machine)}")
    print(_as_toml(msgspec.to_builtins(family)), end="")
    return 0


def _as_toml(record: dict[str, object], table: str = "") -> str:
    """The record as TOML: plain values first, then its tables."""
    plain = {key: value for key, value in record.items() if not _is_table(value)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items() if value is not None]
    text = "\n".join(lines) + "\n" if lines else ""
    for key, value in record.items():
        name = f"{table}.{_key(key)}" if table else _key(key)
        if not _is_table(value):
            continue
        if isinstance(value, dict):
            text += f"\n[{name}]\n{_as_toml(value, name)}"
        elif isinstance(value, list | tuple):
            text += "".join(f"\n[[{name}]]\n{_as_toml(one, name)}" for one in value)
    return text


def _is_table(value: object) -> bool:
    """Whether it is written as a table or several; an empty one is a plain value."""
    return bool(value) and (isinstance(value, dict) or (isinstance(value, list | tuple) and isinstance(value[0], dict)))


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case dict():
            return "{" + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(_value(one) for one in value) + "]"
        case _:
            # JSON's strings are TOML's, but for the characters that only JSON may hold as they are.
            return msgspec.json.encode(str(value)).decode().replace("\x7f", "\\u007F")


def _new(application: Application, arguments: argparse.Namespace) -> int:
    name: str = arguments.name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise bad_input(f"{name!r} is no name for a family.", hint="Letters, digits, '.', '_' and '-' will do.")
    file = application.paths.families / f"{name}.toml"
    if file.exists():
        raise bad_input(f"{file} is there already.", hint="Edit it, or take another name.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(skeleton(name, application.registry.get(name)), encoding="utf-8")
    except OSError as error:
        raise bad_input(f"{file} cannot be written.", detail=str(error)) from error
    note("Edit it, then look at `vlmtui models show` and `vlmtui prompt` of it.")
    print(file)
    return 0
