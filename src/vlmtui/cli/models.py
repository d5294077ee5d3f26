"""`vlmtui models`: lists families, shows one, or creates a new record."""

from __future__ import annotations

import argparse
import re

import msgspec

from vlmtui.bootstrap import Application, build
from vlmtui.cli.output import note, print_json, print_table
from vlmtui.engine.machine import Machine, check_fit, fit_text
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import write_new
from vlmtui.paths import private_dir
from vlmtui.registry.hub_cache import downloaded_models, read_config
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import family_of_config, family_of_name, resolve
from vlmtui.registry.routes import route_name, status_of, why_closed
from vlmtui.registry.schema import Family
from vlmtui.registry.skeleton import skeleton
from vlmtui.text import one_line, visible

_NAME_MAX = 100
"""Most characters of a family's name, which is also a file name."""


def fill_models(models: argparse.ArgumentParser) -> None:
    """Add the arguments and subcommands."""
    models.description = "List the known model families, and whether they run here."
    models.add_argument("--json", action="store_true", help="print a JSON array")
    models.add_argument("--modality", choices=("image", "video", "audio"), help="only families that accept it")
    models.add_argument("--runnable", action="store_true", help="only families that the installed vLLM runs")
    models.set_defaults(action="list")
    actions = models.add_subparsers(metavar="ACTION")
    show = actions.add_parser("show", help="the whole record of a family, resolved", description="Print a record.")
    show.add_argument("name", metavar="FAMILY", help="a family, a repository id or a local folder")
    show.add_argument("--json", action="store_true", help="print one JSON object instead of TOML")
    show.set_defaults(action="show")
    new = actions.add_parser(
        "new",
        help="write a commented record to your families folder",
        description="Write a commented record; for a known family, one that overrides parts of it.",
    )
    new.add_argument("name", metavar="FAMILY", help="the family's name")
    new.add_argument("--json", action="store_true", help="print one JSON object")
    new.set_defaults(action="new")


def models(arguments: argparse.Namespace) -> int:
    """List the families, show one, or create a new record."""
    application = build(tell=note)
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
    """Return the downloaded models by family, without those of no family."""
    found: dict[str, list[str]] = {}
    for one in downloaded_models():
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
        "runnable": why_closed(family) is None,
        "checked": family.checked,
        "downloaded": here,
        "note": family.note,
    }


def _show(application: Application, arguments: argparse.Namespace) -> int:
    model = resolve(application.registry, arguments.name)
    family, error = model.family, why_closed(model.family)
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
            "fit": fit_text(check_fit(model, machine), machine),
        }
        print_json(record)
        return 0
    head = [f"{family.title}: {model.spec.name}, route {route_name(family)}: {status_of(family)}"]
    head += [str(error)] if error else []
    for line in (*head, fit_text(check_fit(model, machine), machine)):
        print(f"# {one_line(line)}")
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
    """Return whether a value is written as TOML tables; an empty one is a plain value."""
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
            # JSON strings are valid TOML; characters that a terminal may interpret are escaped.
            text = msgspec.json.encode(str(value)).decode()
            return "".join(char if visible(char) == char else f"\\U{ord(char):08X}" for char in text)


def _new(application: Application, arguments: argparse.Namespace) -> int:
    name: str = arguments.name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or len(name) > _NAME_MAX:
        hint = f"Use at most {_NAME_MAX} letters, digits, '.', '_' and '-'."
        raise bad_input(f"{one_line(name)[: _NAME_MAX + 1]!r} is not a valid family name.", hint=hint)
    file = application.paths.families / f"{name}.toml"
    private_dir(file.parent)
    write_new(file, skeleton(name, application.registry.get(name)).encode())
    note("Edit it, then check it with `vlmtui models show` and `vlmtui prompt`.")
    if arguments.json:
        print_json({"family": name, "file": str(file)})
    else:
        print(file)
    return 0
