"""`vlmtui store`: checks, backs up and restores the stored conversations."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import msgspec

from vlmtui.cli.output import note, print_json, print_table
from vlmtui.paths import Paths
from vlmtui.store.backup import restore_archive, restore_newest, write_archive
from vlmtui.store.holder import hold, is_on_network
from vlmtui.store.opening import FILE, verify_store
from vlmtui.text import counted

_HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
"""The hash that names a stored file. Tables show its first 12 digits."""
_LOST_MEDIA_BACK = (
    "A missing or damaged file comes back if it is attached again, or from a backup: `vlmtui store restore FILE`."
)


def fill_store(store: argparse.ArgumentParser) -> None:
    store.description = "Check, back up and restore the stored conversations."
    actions = store.add_subparsers(title="commands", metavar="COMMAND", dest="action", required=True)
    verify = actions.add_parser("verify", help="check the database and every stored file; nothing is changed")
    verify.epilog = "exit codes: 0 no finding, 1 findings"
    backup = actions.add_parser("backup", help="write the database and all stored files to one archive")
    backup.add_argument("file", metavar="FILE", help="the archive to write (tar)")
    restore = actions.add_parser("restore", help="replace the database with a backup; the old database file is kept")
    restore.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="an archive, or a file in `backups` (default: the newest good backup, if the database is damaged)",
    )
    take = actions.add_parser(
        "take", help="on a network file system: write on this machine, and only read on the others"
    )
    for one in (verify, backup, restore, take):
        one.add_argument("--json", action="store_true", help="print one JSON object")


def store(arguments: argparse.Namespace) -> int:
    """Run a subcommand and return its exit code. Raises VlmtuiError."""
    paths = Paths.default()
    match arguments.action:
        case "verify":
            return _verify(paths, is_json=arguments.json)
        case "backup":
            target = Path(arguments.file)
            count = write_archive(paths.data, paths.media, target)
            return _done({"file": str(target), "media": count}, f"Written: {target}", is_json=arguments.json)
        case "take":
            if not is_on_network(paths.data / FILE):
                said = f"Nothing to do: {paths.data} is not on a network file system."
            else:
                hold(paths.data / FILE, by_force=True)
                said = "This machine writes the conversations now; the others only read them."
            return _done({"done": said}, said, is_json=arguments.json)
        case "restore" if arguments.file is None:
            said = restore_newest(paths.data, paths.media)
            return _done({"done": said}, said, is_json=arguments.json)
        case _:
            restored = restore_archive(Path(arguments.file), paths.data, paths.media)
            aside = str(restored.set_aside) if restored.set_aside else None
            for name in restored.left_out:
                note(f"warning: left out: {name} is not an image, video, audio file or document.")
            said = f"Restored, with {counted(restored.media, 'stored file')}."
            if aside:
                said += f" The database from before is {aside}."
            told = {"media": restored.media, "left_out": restored.left_out, "set_aside": aside}
            return _done(told, said, is_json=arguments.json)


def _done(told: dict[str, object], said: str, *, is_json: bool) -> int:
    if is_json:
        print_json(told)
    else:
        note(said)
    return 0


def _verify(paths: Paths, *, is_json: bool) -> int:
    report = verify_store(paths.data, paths.media)
    if is_json:
        print_json(msgspec.to_builtins(report))
        return 1 if report.findings else 0
    if report.findings:
        rows = [[one.kind, _HASH.sub(r"\1…", one.where), one.what] for one in report.findings]
        print_table(["KIND", "WHERE", "WHAT"], rows)
        if any(one.kind == "database" for one in report.findings):
            note("`vlmtui store restore` rebuilds the search index, or continues with the newest good backup.")
        if any(one.kind in ("missing media", "damaged media") for one in report.findings):
            note(_LOST_MEDIA_BACK)
    unused = f", {report.unused_media} of them unused" if report.unused_media else ""
    conversations, turns = counted(report.conversations, "conversation"), counted(report.turns, "turn")
    found = counted(len(report.findings), "finding") if report.findings else "No findings"
    note(f"{found} in {conversations}, {turns}, {counted(report.media, 'stored file')}{unused}.")
    return 1 if report.findings else 0
