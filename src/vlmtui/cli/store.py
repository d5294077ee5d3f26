"""`vlmtui store`: check, repair, back up, measure and purge the stored conversations."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from vlmtui.cli.output import note, print_json, print_table
from vlmtui.paths import Paths, private_dir
from vlmtui.store.backup import backups_folder, restore_archive, write_archive
from vlmtui.store.opening import FILE
from vlmtui.store.repairing import MENDABLE, repair_store
from vlmtui.store.verifying import StoreFaultKind, StoreReport, verify_store
from vlmtui.text import counted, human_bytes

_BUSY_S = 5.0
_HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
"""The name of a stored file: its first digits find it, and all of them are wider than a terminal."""
_LOST_MEDIA = (StoreFaultKind.MISSING_MEDIA, StoreFaultKind.DAMAGED_MEDIA)
_LOST_MEDIA_BACK = (
    "A file that is missing or damaged comes back when it is attached again, or from a backup: "
    "`vlmtui store restore FILE`."
)


def store(arguments: argparse.Namespace) -> int:
    """Run a subcommand and return its exit code. Raises VlmtuiError."""
    paths = Paths.default()
    match arguments.action:
        case "verify":
            return _verify(paths, is_json=arguments.json)
        case "repair":
            return _repair(paths, is_json=arguments.json)
        case "backup":
            target = Path(arguments.file)
            count = write_archive(paths.data, paths.media, target)
            return _done({"file": str(target), "media": count}, f"Written: {target}", is_json=arguments.json)
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
        case "purge":
            from vlmtui.cli.purging import purge_store

            return purge_store(arguments, paths)
        case _:
            return _stats(paths, is_json=arguments.json)


def _done(told: dict[str, object], said: str, *, is_json: bool) -> int:
    if is_json:
        print_json(told)
    else:
        note(said)
    return 0


def _checked(paths: Paths) -> StoreReport:
    return verify_store(paths.data, paths.media, private_dir(paths.cache))


def _verify(paths: Paths, *, is_json: bool) -> int:
    report = _checked(paths)
    if is_json:
        print_json(msgspec.to_builtins(report))
        return 1 if report.findings else 0
    if report.findings:
        rows = [[one.kind.value, _HASH.sub(r"\1…", one.where), one.what] for one in report.findings]
        print_table(["KIND", "WHERE", "WHAT"], rows)
        if any(one.kind in MENDABLE for one in report.findings):
            note("`vlmtui store repair` mends what can be mended; a database that is replaced is kept beside it.")
        if any(one.kind in _LOST_MEDIA for one in report.findings):
            note(_LOST_MEDIA_BACK)
    unused = f", {report.unused_media} of them unused" if report.unused_media else ""
    conversations, turns = counted(report.conversations, "conversation"), counted(report.turns, "turn")
    found = counted(len(report.findings), "finding") if report.findings else "No findings"
    note(f"{found} in {conversations}, {turns}, {counted(report.media, 'stored file')}{unused}.")
    return 1 if report.findings else 0


def _repair(paths: Paths, *, is_json: bool) -> int:
    before = _checked(paths).findings
    if not any(one.kind in MENDABLE for one in before):
        return _done({"repaired": False}, "There is nothing to repair in the database.", is_json=is_json)
    done = repair_store(paths.data, before, busy_s=_BUSY_S)
    after = _checked(paths).findings
    told = {
        "repaired": True,
        "set_aside": str(done.recovery.set_aside) if done.recovery else None,
        "indexes": done.indexes,
        "closed": done.closed,
        "changed": [one.where for one in before if one.kind is StoreFaultKind.CHECKSUM],
        "findings": msgspec.to_builtins(after),
    }
    said = [f"Other users can no longer read {', '.join(done.closed)}."] if done.closed else []
    said += ["Rebuilt the search index."] if done.indexes else []
    said += [done.recovery.summary] if done.recovery else []
    if changed := [one.where for one in before if one.kind is StoreFaultKind.CHECKSUM]:
        said.append(f"Kept as it reads, though it is not what was stored: {', '.join(changed)}.")
    _done(told, " ".join(said), is_json=is_json)
    if after and not is_json:
        remain = "1 finding remains" if len(after) == 1 else f"{len(after)} findings remain"
        note(f"{remain}; `vlmtui store verify` shows what to do.")
    return 1 if after else 0


def _stats(paths: Paths, *, is_json: bool) -> int:
    data = paths.data
    places = {
        "database": [data / FILE, data / f"{FILE}-wal"],
        "pictures, videos and sounds": _files(paths.media),
        "daily backups": _files(backups_folder(data)),
        "databases set aside": [*data.glob("*.damaged-*.db")],
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
