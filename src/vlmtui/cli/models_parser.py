"""The arguments of `vlmtui models`. Nothing heavy is imported here."""

from __future__ import annotations

import argparse


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
