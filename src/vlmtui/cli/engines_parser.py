"""The arguments of `vlmtui engines`."""

from __future__ import annotations

import argparse


def fill_engines(engines: argparse.ArgumentParser) -> None:
    """Add the actions."""
    engines.description = (
        "List the installed engines. An engine is a vLLM in its own environment in the data folder; "
        "the one marked with a star is used, those marked with a version serve the models that ask for it."
    )
    engines.add_argument("--json", action="store_true", help="print one JSON object")
    engines.set_defaults(action="list")
    actions = engines.add_subparsers(metavar="ACTION")
    listing = actions.add_parser("list", help="list the engines", description="List the installed engines.")
    listing.add_argument("--json", action="store_true", help="print one JSON object")
    listing.set_defaults(action="list")
    _add_install(actions)
    add = actions.add_parser(
        "add",
        help="use a vLLM that is installed elsewhere",
        description="Use a vLLM that is installed elsewhere. Nothing is installed into its environment.",
    )
    add.add_argument("python", metavar="PYTHON", help="the interpreter of its environment")
    add.add_argument("--json", action="store_true", help="print one JSON object")
    add.set_defaults(action="add")
    remove = actions.add_parser(
        "remove", help="delete an engine", description="Delete an engine and all that is in it."
    )
    remove.add_argument("name", metavar="NAME", help="as `vlmtui engines` lists it")
    remove.add_argument("--json", action="store_true", help="print one JSON object")
    remove.set_defaults(action="remove")
    _add_probe(actions)


def _add_install(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    install = actions.add_parser(
        "install",
        help="install vLLM for this machine, or another version for the models that need it",
        description="Install vLLM with uv. Run it again to continue an interrupted installation. Another version "
        "than the current one gets an environment of its own and serves only models that ask for it "
        "(--backend vllm==VERSION, or their record).",
    )
    install.add_argument(
        "which", metavar="WHICH", nargs="?", help="cpu, cuda, a version, or 0.23.0-cpu (default: what fits)"
    )
    install.add_argument("--python", metavar="PATH", help="the Python for its environment")
    install.add_argument("--json", action="store_true", help="print one JSON object")
    install.set_defaults(action="install")


def _add_probe(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    probe = actions.add_parser(
        "probe",
        help="ask vLLM servers what they serve and offer",
        description="Ask vLLM servers for their models and what they offer. What is off is told with the flag that "
        "switches it on.",
    )
    probe.add_argument(
        "engine", metavar="ENGINE", nargs="*", help="an address or a name in config.toml (default: all of config.toml)"
    )
    probe.add_argument("--key-env", metavar="NAME", help="the environment variable with the server's key")
    probe.add_argument("--json", action="store_true", help="print one JSON array")
    probe.set_defaults(action="probe")
