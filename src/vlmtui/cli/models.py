"""`vlmtui models`: lists model families, shows one, or creates a TOML record for a new one."""

from __future__ import annotations

import argparse
import re

import msgspec

from vlmtui.bootstrap import Application, build
from vlmtui.cli.output import note, print_json, print_table
from vlmtui.domain.template import TemplateVariables
from vlmtui.engine.machine import Machine, check_fit, fit_text
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.files import write_new
from vlmtui.paths import private_dir
from vlmtui.registry.hub_cache import downloaded_models, read_config
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import family_of_config, family_of_name, resolve
from vlmtui.registry.routes import model_closed, route_name, status_of, why_closed
from vlmtui.registry.schema import Family
from vlmtui.registry.skeleton import skeleton
from vlmtui.session.dials import described_variables
from vlmtui.session.models import template_variables
from vlmtui.text import one_line

_NAME_MAX = 100
"""Most characters of a family's name, which is also a file name."""


def fill_models(models: argparse.ArgumentParser) -> None:
    models.description = "List the known model families, and whether they run here."
    models.add_argument("--json", action="store_true", help="print a JSON array")
    models.add_argument("--modality", choices=("image", "video", "audio"), help="only families that accept it")
    models.add_argument("--runnable", action="store_true", help="only families that the installed vLLM runs")
    models.set_defaults(action="list")
    actions = models.add_subparsers(metavar="ACTION")
    show = actions.add_parser(
        "show", help="show a family: its inputs, and whether it runs here", description="Print a family's record."
    )
    show.add_argument("name", metavar="MODEL", help="a family, a repository id or a local folder")
    show.add_argument("--json", action="store_true", help="print the whole record as one JSON object")
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
    """Return the names of the downloaded models by family; models of unknown families are left out."""
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
    family, error = model.family, model_closed(model.family, model.spec)
    machine = Machine.measure()
    variables = template_variables(application.reader, model)
    if arguments.json:
        record = msgspec.to_builtins(family)
        record |= {
            "model": model.spec.name,
            "route": route_name(family),
            "status": _status(family, error),
            "runnable": error is None,
            "why_not": str(error) if error else None,
            "resolved_engine_args": dict(model.spec.engine_args),
            "fit": fit_text(check_fit(model, machine), machine),
            "template_variables": variables,
        }
        print_json(record)
        return 0
    takes = ", ".join(f"{limit.max_items} {modality}" for modality, limit in family.takes.items())
    lines = [
        f"{family.title}: {model.spec.name}, route {route_name(family)}: {_status(family, error)}",
        str(error) if error else "",
        fit_text(check_fit(model, machine), machine),
        f"Takes at most: {takes}. Context: {family.context or 'unknown'}. Licence: {family.licence or 'unknown'}.",
        family.note,
        *_variable_lines(family, variables),
    ]
    for line in filter(None, lines):
        print(one_line(line))
    note("--json prints the whole record.")
    return 0


def _status(family: Family, error: VlmtuiError | None) -> str:
    damaged = error is not None and error.kind is ErrorKind.WEIGHTS_MISSING
    return "files damaged" if damaged else status_of(family)


def _variable_lines(family: Family, variables: TemplateVariables | None) -> list[str]:
    if variables is None:
        return []
    return ["Its chat template reads:" if variables else "Its chat template reads no variables."] + [
        f"  {line}" for line in described_variables(family, variables)
    ]


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
