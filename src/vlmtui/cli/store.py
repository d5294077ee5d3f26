"""`vlmtui store`: check, back up, restore and measure the stored conversations."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from vlmtui.cli.output import note, print_json, print_table
from vlmtui.paths import Paths, private_dir
from vlmtui.store.backup import restore_archive, restore_newest, write_archive
from vlmtui.store.opening import FILE, daily_backups
from vlmtui.store.verifying import StoreFaultKind, verify_store
from vlmtui.text import counted, human_bytes

_HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
"""The name of a stored file: its first digits find it, and all of them are wider than a terminal."""
_OF_DATABASE = (StoreFaultKind.DATABASE, StoreFaultKind.SEARCH)
_LOST_MEDIA = (StoreFaultKind.MISSING_MEDIA, StoreFaultKind.DAMAGED_MEDIA)
_LOST_MEDIA_BACK = (
    "A file that is missing or damaged comes back when it is attached again, or from a backup: "
    "`vlmtui store restore FILE`."
)


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
        case "restore" if arguments.file is None:
            said = restore_newest(paths.data, paths.media)
            return _done({"done": said}, said, is_json=arguments.json)
        case "restore":
            restored = restore_archive(Path(arguments.file), paths.data, paths.media)
            aside = str(restored.set_aside) if restored.set_aside else None
            for name in restored.left_out:
                note(f"warning: left out: {name} is no picture, video, sound or document.")
            said = f"Restored, with {counted(restored.media, 'stored file')}."
            if aside:
                said += f" The database from before is {aside}."
            return _done(
                {"media": restored.media, "left_out": restored.left_out, "set_aside": aside},
                said,
                is_json=arguments.json,
            )
        case _:
            return _stats(paths, is_json=arguments.json)


def _done(told: dict[str, object], said: str, *, is_json: bool) -> int:
    if is_json:
        print_json(told)
    else:
        note(said)
    return 0


def _verify(paths: Paths, *, is_json: bool) -> int:
    report = verify_store(paths.data, paths.media, private_dir(paths.cache))
    if is_json:
        print_json(msgspec.to_builtins(report))
        return 1 if report.findings else 0
    if report.findings:
        rows = [[one.kind.value, _HASH.sub(r"\1…", one.where), one.what] for one in report.findings]
        print_table(["KIND", "WHERE", "WHAT"], rows)
        if any(one.kind in _OF_DATABASE for one in report.findings):
            note("`vlmtui store restore` rebuilds the search index, or continues with the newest good backup.")
        if any(one.kind in _LOST_MEDIA for one in report.findings):
            note(_LOST_MEDIA_BACK)
    unused = f", {report.unused_media} of them unused" if report.unused_media else ""
    conversations, turns = counted(report.conversations, "conversation"), counted(report.turns, "turn")
    found = counted(len(report.findings), "finding") if report.findings else "No findings"
    note(f"{found} in {conversations}, {turns}, {counted(report.media, 'stored file')}{unused}.")
    return 1 if report.findings else 0


def _stats(paths: Paths, *, is_json: bool) -> int:
    data = paths.data
    places = {
        "database": [data / FILE, data / f"{FILE}-wal"],
        "pictures, videos and sounds": _files(paths.media),
        "daily backups": daily_backups(data),
        "databases set aside": [*data.glob("*.replaced-*.db")],
        "thumbnails": _files(paths.thumbnails),
        "logs and drafts": _files(paths.state),
    }
    sizes = {name: _measured(found) for name, found in places.items()}
    if is_json:
        print_json({name: {"files": count, "bytes": size} for name, (count, size) in sizes.items()})
    else:
        rows = [[name, str(count), human_bytes(size)] for name, (count, size) in sizes.items()]
        print_table(
            ["WHAT", "FILES", "SIZE"], [*rows, ["all", "", human_bytes(sum(size for _, size in sizes.values()))]]
        )
    return 0


def _files(folder: Path) -> Iterable[Path]:
    return folder.rglob("*")


def _measured(found: Iterable[Path]) -> tuple[int, int]:
    """Return the number of regular files, and their bytes."""
    sizes = [file.stat().st_size for file in found if file.is_file() and not file.is_symlink()]
    return len(sizes), sum(sizes)
