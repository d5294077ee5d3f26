"""`vlmtui conversations`, `export` and `import`: what is kept, from outside the app."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from vlmtui.cli.output import is_tty, note, print_json, print_table
from vlmtui.cli.results import write_file
from vlmtui.domain.text import visible
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.paths import Paths
from vlmtui.store.document import Document, document_of
from vlmtui.store.export import Exported, to_json_document, to_markdown, to_openai
from vlmtui.store.importing import add_document, read_document
from vlmtui.store.page import to_html
from vlmtui.store.records import Conversation, ConversationId
from vlmtui.store.store import Store

_SUFFIXES = {"md": ".md", "html": ".html", "json": ".json", "openai": ".openai.json"}
_FORMATS = {".md": "md", ".markdown": "md", ".html": "html", ".htm": "html", ".json": "json"}
_PAGE = 500
_NO_WORD = re.compile(r"[^\w]+")


def conversations(arguments: argparse.Namespace) -> int:
    """List what is kept."""
    with _opened() as store:
        found = list(_listed(store, arguments.query, arguments.limit))
    if arguments.json:
        print_json([_as_json(one) for one in found])
    elif not found:
        note("Nothing is kept yet." if arguments.query is None else "No conversation has these words.")
    else:
        rows = [[one.id, _date(one.updated_ms), one.model, str(one.length), one.title] for one in found]
        print_table(["ID", "CHANGED", "MODEL", "TURNS", "TITLE"], rows)
    return 0


def export(arguments: argparse.Namespace) -> int:
    """Write conversations. Raises VlmtuiError."""
    kind = arguments.format or _format_of(arguments.output)
    target = Path(arguments.output) if arguments.output is not None and arguments.output != "-" else None
    if arguments.all and target is None:
        raise VlmtuiError(ErrorKind.BAD_USAGE, "Say into which folder: `vlmtui export --all -o FOLDER`.")
    with _opened() as store:
        if arguments.all:
            found = list(_listed(store, None, 0))
        else:
            found = [store.conversation(identified(store, arguments.id))]
        for one in found:
            document = document_of(store, one.id)
            if target is None:
                _print(document, kind)
            else:
                into = target / _file_name(one, kind) if arguments.all or target.is_dir() else target
                _write(document, kind, into)
                note(f"Written: {into}")
    if not found:
        note("Nothing is kept yet.")
    return 0


def import_(arguments: argparse.Namespace) -> int:
    """Add documents as new conversations, each whole or not at all. Raises VlmtuiError."""
    documents: list[tuple[Path, Document]] = []
    for name in arguments.files:
        path = Path(name)
        try:
            data = sys.stdin.buffer.read() if name == "-" else path.read_bytes()
        except (OSError, ValueError) as error:
            raise bad_input(f"{name} cannot be read.", detail=str(error)) from error
        try:
            documents.append((path, read_document(data)))
        except VlmtuiError as error:
            raise VlmtuiError(error.kind, f"{name}: {error.message}", detail=error.detail, hint=error.hint) from error
    with _opened() as store:
        for path, document in documents:
            added = add_document(store, document, path.parent)
            print(added.conversation)
            for missing in added.missing:
                note(f"warning: {path}: the file of {missing} was missing already.")
    return 0


def identified(store: Store, given: str) -> ConversationId:
    """The conversation of that id, or the only one whose id begins so. Raises VlmtuiError."""
    every = [one.id for one in _listed(store, None, 0)]
    found = [one for one in every if one == given] or [one for one in every if given and one.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        raise bad_input(f"{len(found)} conversations have ids that begin with {given!r}.", hint="Name more of it.")
    raise bad_input(f"There is no conversation {given!r}.", hint="`vlmtui conversations` lists them.")


@contextmanager
def _opened() -> Iterator[Store]:
    paths = Paths.default()
    opened = Store.open(paths.data, paths.media)
    if opened.recovered is not None:
        note(f"warning: {opened.recovered.summary}")
    try:
        yield opened.store
    finally:
        opened.store.close()


def _listed(store: Store, query: str | None, limit: int) -> Iterator[Conversation]:
    """At most `limit`; 0: all."""
    offset = 0
    while page := store.conversations(query, limit=_PAGE, offset=offset):
        for one in page:
            yield one.conversation
            offset += 1
            if offset == limit:
                return


def _format_of(output: str | None) -> str:
    if output is None:
        return "md"
    if output.lower().endswith(_SUFFIXES["openai"]):
        return "openai"
    return _FORMATS.get(Path(output).suffix.lower(), "md")


def _print(document: Document, kind: str) -> None:
    """To stdout. JSON holds its media; Markdown names files that are not written."""
    text, media = _text(document, kind, inline=True, media_folder="media")
    if is_tty(sys.stdout):
        text = visible(text)
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    if media.copies:
        note("note: the media are not written to stdout; -o FILE puts them beside the file.")


def _write(document: Document, kind: str, path: Path) -> None:
    """To a file, its media into a folder beside it."""
    text, exported = _text(document, kind, inline=False, media_folder=f"{path.stem}.media")
    for copy in exported.copies:
        beside = path.parent / copy.name
        if not (beside.is_file() and beside.stat().st_size == copy.source.stat().st_size):
            write_file(beside, copy.source)
    write_file(path, text.encode("utf-8", "replace"))


def _text(document: Document, kind: str, *, inline: bool, media_folder: str) -> tuple[str, Exported]:
    match kind:
        case "md":
            exported = to_markdown(document, media_folder=media_folder)
        case "html":
            exported = Exported(to_html(document))
        case "openai":
            exported = Exported(to_openai(document))
        case _:
            exported = to_json_document(document, inline=inline, media_folder=media_folder)
    return exported.text, exported


def _file_name(conversation: Conversation, kind: str) -> str:
    """`a-red-circle-01hx….md`: letters and digits of any script."""
    words = _NO_WORD.sub("-", visible(conversation.title).lower()).strip("-_")
    title = words.encode()[:60].decode(errors="ignore").strip("-")
    return "-".join(part for part in (title, conversation.id) if part) + _SUFFIXES[kind]


def _date(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000).strftime("%Y-%m-%d %H:%M")


def _as_json(conversation: Conversation) -> dict[str, object]:
    return {
        "id": conversation.id,
        "title": conversation.title,
        "model": conversation.model,
        "created": _iso(conversation.created_ms),
        "updated": _iso(conversation.updated_ms),
        "pinned": conversation.pinned,
        "turns": conversation.length,
    }


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().isoformat(timespec="seconds")
