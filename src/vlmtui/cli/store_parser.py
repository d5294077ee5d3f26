"""The arguments of `vlmtui store`. Nothing heavy is imported here."""

from __future__ import annotations

import argparse


def fill_store(store: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    store.description = "Check, repair, back up, measure and purge the stored conversations."
    actions = store.add_subparsers(title="commands", metavar="COMMAND", dest="action", required=True)
    verify = actions.add_parser("verify", help="check the database and every stored file; nothing is changed")
    verify.epilog = "exit codes: 0 no finding, 1 findings"
    repair = actions.add_parser("repair", help="mend what `verify` found; a damaged database stays beside the new one")
    backup = actions.add_parser("backup", help="write the database and all stored files to one archive")
    backup.add_argument("file", metavar="FILE", help="the archive to write (tar)")
    restore = actions.add_parser("restore", help="restore an archive or a daily backup")
    restore.add_argument("file", metavar="FILE", help="the archive, or a file of the folder `backups`")
    stats = actions.add_parser("stats", help="show what takes the space")
    purge = actions.add_parser("purge", help="erase deleted conversations, unused files, or what is old; asks first")
    purge.add_argument("--deleted", action="store_true", help="the deleted conversations, and files that only they use")
    purge.add_argument("--unreferenced", action="store_true", help="stored files that no message and no draft uses")
    purge.add_argument(
        "--older-than",
        metavar="AGE",
        help="only what has not changed for so long (90d); alone: every such conversation without a pin or draft",
    )
    purge.add_argument("--dry-run", action="store_true", help="only show what would go")
    purge.add_argument("--yes", action="store_true", help="don't ask")
    purge.epilog = "Without a choice: --deleted --unreferenced. Nothing goes while another vlmtui is open."
    for one in (verify, repair, backup, restore, stats, purge):
        one.add_argument("--json", action="store_true", help="print one JSON object")
