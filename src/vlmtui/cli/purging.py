"""`vlmtui store purge`: shows what would go, asks, and removes it."""

from __future__ import annotations

import argparse
import asyncio
import sys

import msgspec

from vlmtui.bootstrap import build_workers
from vlmtui.cli.output import is_tty, note, print_json, print_table
from vlmtui.config.duration import parse_duration
from vlmtui.domain.times import local_time
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.session.raw_draft import draft_file
from vlmtui.store.opening import FILE
from vlmtui.store.purge_on_request import PurgePlan, PurgeWish, plan_purge, purge_on_request, store_to_purge
from vlmtui.text import counted, human_bytes, one_line

_SHOWN_MAX = 20
_TITLE_MAX = 50


def purge_store(arguments: argparse.Namespace, paths: Paths) -> int:
    """Return the exit code: 1 if the user refused. Raises VlmtuiError."""
    wish = _wish(arguments)
    if not (paths.data / FILE).exists():
        return _nothing(is_json=arguments.json)
    with store_to_purge(paths.data, paths.media) as store:
        plan = plan_purge(store, wish)
        if not arguments.json:
            _show(plan)
        if not (plan.conversations or plan.files):
            return _nothing(is_json=arguments.json)
        if arguments.dry_run:
            if arguments.json:
                print_json(_as_json(plan, is_done=False))
            return 0
        _require_rest()
        if not arguments.yes and not _agreed():
            note("Nothing was purged.")
            return 1
        done = purge_on_request(store, plan, wish)
        for conversation in done.conversations:
            draft_file(paths, conversation).unlink(missing_ok=True)
    if arguments.json:
        print_json({**_as_json(plan, is_done=True), "freed_bytes": done.bytes})
    else:
        gone = f"{counted(len(done.conversations), 'conversation')} and {counted(done.files, 'stored file')}"
        note(f"Erased {gone}: {human_bytes(done.bytes)}.")
    return 0


def _wish(arguments: argparse.Namespace) -> PurgeWish:
    age = None if arguments.older_than is None else parse_duration(arguments.older_than)
    if arguments.older_than is not None and age is None:
        raise VlmtuiError(ErrorKind.BAD_USAGE, "Nothing is older than forever.", hint="Give an age: 90d.")
    default = age is None and not (arguments.deleted or arguments.unreferenced)
    return PurgeWish(
        deleted=arguments.deleted or default, unreferenced=arguments.unreferenced or default, older_than_s=age
    )


def _require_rest() -> None:
    """Raise VlmtuiError while a worker answers: what it was given may be stored files that no message refers to yet."""
    workers = asyncio.run(build_workers().find_all())
    if busy := [worker.name for worker in workers if worker.status is None or worker.status.running]:
        message = f"{', '.join(busy)} is answering, so nothing was purged."
        raise VlmtuiError(ErrorKind.INTERNAL, message, hint="Try again when it has ended; `vlmtui ps` shows it.")


def _agreed() -> bool:
    if not is_tty(sys.stdin):
        raise VlmtuiError(ErrorKind.BAD_USAGE, "Nobody is there to be asked.", hint="Add --yes, or --dry-run.")
    sys.stderr.write("Erase this for good? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _show(plan: PurgePlan) -> None:
    if plan.conversations:
        rows = [
            [
                one.id,
                local_time(one.changed_ms).strftime("%Y-%m-%d"),
                str(one.turns),
                "deleted" if one.is_deleted else "",
                one_line(one.title)[:_TITLE_MAX],
            ]
            for one in plan.conversations[:_SHOWN_MAX]
        ]
        print_table(["CONVERSATION", "CHANGED", "TURNS", "", "TITLE"], rows)
        if len(plan.conversations) > _SHOWN_MAX:
            note(f"and {len(plan.conversations) - _SHOWN_MAX:,} more")
    if plan.conversations or plan.files:
        counts = f"{counted(len(plan.conversations), 'conversation')} and {counted(len(plan.files), 'stored file')}"
        note(f"{counts} ({human_bytes(plan.bytes)}) can go.")


def _nothing(*, is_json: bool) -> int:
    if is_json:
        print_json(_as_json(PurgePlan(conversations=(), files=(), bytes=0), is_done=False))
    else:
        note("There is nothing to purge.")
    return 0


def _as_json(plan: PurgePlan, *, is_done: bool) -> dict[str, object]:
    return {
        "purged": is_done,
        "conversations": msgspec.to_builtins(plan.conversations),
        "files": [file.name for file in plan.files],
        "bytes": plan.bytes,
    }
