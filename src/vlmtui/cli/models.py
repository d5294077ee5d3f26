"""`vlmtui models`: what is known."""

from __future__ import annotations

import argparse

from vlmtui.bootstrap import build
from vlmtui.cli.output import print_json, print_table
from vlmtui.registry.schema import Family


def models(arguments: argparse.Namespace) -> int:
    families = list(build().registry.values())
    if arguments.json:
        print_json([_as_json(family) for family in families])
        return 0
    rows = [
        [
            family.family,
            f"{family.parameters_b:g}" if family.parameters_b is not None else "?",
            ", ".join(f"{takes.max_items} {modality}" for modality, takes in family.takes.items()),
            f"{family.context}" if family.context is not None else "?",
            family.licence or "?",
            family.title,
        ]
        for family in families
    ]
    print_table(["NAME", "PARAMETERS (B)", "TAKES AT MOST", "CONTEXT", "LICENCE", "TITLE"], rows)
    return 0


def _as_json(family: Family) -> dict[str, object]:
    return {
        "name": family.family,
        "title": family.title,
        "models": list(family.models),
        "takes": {modality: takes.max_items for modality, takes in family.takes.items()},
        "parameters_b": family.parameters_b,
        "context": family.context,
        "licence": family.licence,
        "note": family.note,
    }
