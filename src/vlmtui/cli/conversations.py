"""`vlmtui conversations`, `export` and `import`: lists, writes and reads stored conversations."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vlmtui.cli.output import note, print_error, print_json, print_table
from vlmtui.cli.streams import is_utf8, read_input
from vlmtui.domain.times import local_time
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.export.conversation import DEFAULT, FORMATS, Place, file_name_of, format_of, write_document
from vlmtui.paths import Paths
from vlmtui.reading import is_folder
from vlmtui.store.document import DOCUMENT_BYTES_MAX, Document, add_document, document_of, read_document
from vlmtui.store.opening import FILE
from vlmtui.store.records import ConversationId, ConversationRecord
from vlmtui.store.store import Store
from vlmtui.text import visible

_JSON = frozenset({"json", "openai"})
"""Formats whose text is JSON."""
_PAGE = 500
_READABLE = frozenset({ErrorKind.DISK_FULL, ErrorKind.BAD_INPUT})
"""Errors after which the store may still be opened for reading; a full disk causes either."""


def fill_conversations(conversations: argparse.ArgumentParser) -> None:
    conversations.description = "List the conversations: pinned ones first, then the most recently changed."
    conversations.add_argument("query", metavar="QUERY", nargs="?", help="only those that contain these words")
    conversations.add_argument("--limit", type=int, default=50, metavar="N", help="list at most N (50); 0: all")
    conversations.add_argument("--json", action="store_true", help="print a JSON array")


def fill_export(export: argparse.ArgumentParser) -> None:
    export.description = (
        "Write a conversation to stdout or to a file. JSON is complete, and `vlmtui import` reads it; "
        "the other formats contain the active branch. Media go to a folder next to a Markdown or JSON file."
    )
    which = export.add_mutually_exclusive_group(required=True)
    which.add_argument("id", metavar="ID", nargs="?", help="the id in `vlmtui conversations`, or its first characters")
    which.add_argument("--all", action="store_true", help="every conversation, a file each; needs -o FOLDER")
    export.add_argument("--format", choices=tuple(FORMATS), help="(default: by the file's name, or md)")
    export.add_argument("-o", "--output", metavar="FILE|FOLDER", help="the target; an existing file is replaced")
    export.add_argument("--json", action="store_true", help="print a JSON array of the written files; needs -o")


def fill_import(reading: argparse.ArgumentParser) -> None:
    reading.description = (
        "Import conversations written by `vlmtui export --format json`, and print their new ids. "
        "Nothing is overwritten."
    )
    reading.add_argument("files", metavar="FILE", nargs="+", help="the JSON document, its media in it or next to it")
    reading.add_argument("--json", action="store_true", help="print a JSON array of the new conversations")


def conversations(arguments: argparse.Namespace) -> int:
    with _opened(to_read=True) as store:
        found = list(_listed(store, arguments.query, arguments.limit))
    if arguments.json:
        print_json([_as_json(one) for one in found])
    elif not found:
        note("No conversations yet." if arguments.query is None else "No conversation matches these words.")
    else:
        rows = [[one.id, _date(one.updated_ms), one.model, str(one.messages), _title(one)] for one in found]
        print_table(["ID", "CHANGED", "MODEL", "MESSAGES", "TITLE"], rows)
    return 0


def export(arguments: argparse.Namespace) -> int:
    if arguments.output == "":
        raise VlmtuiError(ErrorKind.BAD_USAGE, "-o needs the name of a file or folder.")
    kind = arguments.format or (DEFAULT if arguments.output is None else format_of(Path(arguments.output)))
    target = Path(arguments.output) if arguments.output is not None and arguments.output != "-" else None
    if arguments.all and target is None:
        raise VlmtuiError(ErrorKind.BAD_USAGE, "--all needs a folder: `vlmtui export --all -o FOLDER`.")
    if arguments.json and target is None:
        raise VlmtuiError(
            ErrorKind.BAD_USAGE, "--json lists the written files: it needs -o.", hint="Or: --format json."
        )
    written: list[dict[str, str]] = []
    failed: VlmtuiError | None = None
    with _opened(to_read=True) as store:
        if arguments.all:
            found = list(_listed(store, None, 0))
        else:
            found = [store.conversation(find_conversation(store, arguments.id))]
        for one in found:
            if target is None:
                _print(document_of(store, one.id), kind)
                continue
            into = target / file_name_of(one, kind) if arguments.all or is_folder(target) else target
            try:
                _warn(write_document(document_of(store, one.id), into, kind))
            except VlmtuiError as error:
                if not arguments.all or error.kind is ErrorKind.DISK_FULL:
                    raise
                print_error(error)
                failed = error
                continue
            written.append({"id": one.id, "file": str(into)})
            note(f"Written: {into}")
    if arguments.json:
        print_json(written)
    if not found:
        note("No conversations yet.")
    return 0 if failed is None else failed.exit_code


def import_(arguments: argparse.Namespace) -> int:
    """Import documents as new conversations, each completely or not at all. Raises VlmtuiError."""
    documents: list[tuple[Path, Document]] = []
    for name in arguments.files:
        path = Path(name)
        data = read_input(name, bytes_max=DOCUMENT_BYTES_MAX)
        try:
            documents.append((path, read_document(data)))
        except VlmtuiError as error:
            raise VlmtuiError(error.kind, f"{name}: {error.message}", detail=error.detail, hint=error.hint) from error
    added: list[dict[str, object]] = []
    with _opened() as store:
        for path, document in documents:
            found = add_document(store, document, path.parent)
            told = {"missing": list(found.missing), "left_out": list(found.left_out)}
            added.append({"id": found.conversation, "file": str(path), **told})
            if not arguments.json:
                print(found.conversation)
            for missing in found.missing:
                note(f"warning: {path}: the file of {missing} is missing or damaged; everything else was imported.")
            for name in found.left_out:
                note(f"warning: {path}: left out: {name} is not an image, video, audio file or document.")
    if arguments.json:
        print_json(added)
    return 0


def newest_conversations(limit: int) -> list[ConversationRecord]:
    """Return the first `limit` stored conversations, in the order of the app's list; [] if there is no database yet.
    Raises VlmtuiError."""
    if not (Paths.default().data / FILE).is_file():
        return []
    with _opened(to_read=True) as store:
        return list(_listed(store, None, limit))


def find_conversation(store: Store, given: str) -> ConversationId:
    """Return the conversation with this id, or the only one whose id starts with it. Raises VlmtuiError."""
    every = [one.id for one in _listed(store, None, 0)]
    found = [one for one in every if one == given] or [one for one in every if given and one.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        raise bad_input(f"{len(found)} conversations have ids that begin with {given!r}.", hint="Give more characters.")
    raise bad_input(f"There is no conversation {given!r}.", hint="`vlmtui conversations` lists them.")


@contextmanager
def _opened(*, to_read: bool = False) -> Iterator[Store]:
    """Open the store, and close it afterwards. `to_read`: if it can't be opened for writing, as on a full disk, open it
    read-only."""
    paths = Paths.default()
    try:
        store = Store.open(paths.data, paths.media)
    except VlmtuiError as error:
        if not to_read or error.kind not in _READABLE:
            raise
        try:
            store = Store.open_on_full_disk(paths.data, paths.media)
        except VlmtuiError:
            raise error from None
        note(f"warning: {error.message} What is saved can be read.")
    if store.notice:
        note(f"warning: {store.notice}")
    try:
        yield store
    finally:
        store.close()


def _listed(store: Store, query: str | None, limit: int) -> Iterator[ConversationRecord]:
    """Yield at most `limit` conversations; 0: all."""
    offset = 0
    while page := store.conversations(query, limit=_PAGE, offset=offset):
        for one in page:
            yield one.conversation
            offset += 1
            if offset == limit:
                return


def _print(document: Document, kind: str) -> None:
    """Print an export to stdout. JSON embeds its media; Markdown refers to files that are not written."""
    exported = FORMATS[kind].render(document, Place("media", inline=True))
    _warn(exported.damaged)
    text = exported.text
    if kind in _JSON and not is_utf8():
        text = json.dumps(json.loads(text), indent=1)
    if sys.stdout.isatty():
        text = visible(text)
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    if exported.copies:
        note("note: media are not written to stdout; -o FILE writes them next to the file.")


def _warn(damaged: Sequence[str]) -> None:
    for name in damaged:
        note(f"warning: the stored file of {name} is damaged, so the export is without it.")


def _title(conversation: ConversationRecord) -> str:
    return f"{'imported: ' if conversation.imported else ''}{conversation.title}"


def _date(milliseconds: int) -> str:
    return local_time(milliseconds).strftime("%Y-%m-%d %H:%M")


def _as_json(conversation: ConversationRecord) -> dict[str, object]:
    return {
        "id": conversation.id,
        "title": conversation.title,
        "model": conversation.model,
        "created": _iso(conversation.created_ms),
        "updated": _iso(conversation.updated_ms),
        "pinned": conversation.pinned,
        "imported": conversation.imported,
        "turns": conversation.length,
    }


def _iso(milliseconds: int) -> str:
    return local_time(milliseconds).astimezone().isoformat(timespec="seconds")
