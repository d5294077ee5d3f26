"""The arguments of `vlmtui store`. Nothing heavy is imported here."""

from __future__ import annotations

import argparse


def fill_store(store: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    store.description = "Check, back up, restore and measure the stored conversations."
    actions = store.add_subparsers(title="commands", metavar="COMMAND", dest="action", required=True)
    verify = actions.add_parser("verify", help="check the database and every stored file; nothing is changed")
    verify.epilog = "exit codes: 0 no finding, 1 findings"
    backup = actions.add_parser("backup", help="write the database and all stored files to one archive")
    backup.add_argument("file", metavar="FILE", help="the archive to write (tar)")
    restore = actions.add_parser("restore", help="continue with a backup; the database that is there is kept")
    restore.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="an archive, or a file of the folder `backups`; without it, the newest good backup of a damaged database",
    )
    stats = actions.add_parser("stats", help="show what takes the space")
    for one in (verify, backup, restore, stats):
        one.add_argument("--json", action="store_true", help="print one JSON object")
