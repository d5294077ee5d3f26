"""Reading a conversation's JSON: checked strictly first, then added as a new conversation. Nothing is overwritten."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.store import blobs, listing, tree
from vlmtui.store.columns import to_json
from vlmtui.store.database import Value
from vlmtui.store.document import Document, DocumentMedia, DocumentTurn
from vlmtui.store.export import with_attachments
from vlmtui.store.records import ConversationId, TurnId
from vlmtui.store.store import Store


class Imported(NamedTuple):
    """The new conversation, and the names of attachments whose files were missing when it was exported."""

    conversation: ConversationId
    missing: tuple[str, ...]


def read_document(data: bytes) -> Document:
    """The document that `to_json_document` has written. Raises VlmtuiError that names the place inside it
    (`$.turns[3].parent`) when anything is wrong or unknown."""
    try:
        raw = msgspec.json.decode(data)
        document = msgspec.json.decode(data, type=Document)
    except msgspec.ValidationError as error:
        raise _refused(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refused(f"it is no JSON ({error})") from error
    _refuse_unknown(raw, msgspec.to_builtins(document, str_keys=True), "$")
    _check_tree(document)
    _check_media(document)
    return document


def add_document(store: Store, document: Document, folder: Path) -> Imported:
    """Add a document as a new conversation, its media first. `folder` is where the document's files lie."""
    paths = {item.sha256: _keep(store, item, folder, f"$.media[{at}]") for at, item in enumerate(document.media)}
    missing = {item.sha256 for item in document.media if item.file is None and item.base64 is None}

    def local(attachment: Attachment) -> Attachment:
        return msgspec.structs.replace(attachment, path=str(paths[attachment.sha256]))

    moved = with_attachments(document, local)
    names = tuple(dict.fromkeys(item.name for item in document.attachments if item.sha256 in missing))
    return Imported(_add(store, moved), names)


def _add(store: Store, document: Document) -> ConversationId:
    database = store.database
    with database.writing() as now:
        conversation = listing.insert(database, now, title=document.title, model=document.model)
        ids: dict[int, TurnId] = {}
        for turn in document.turns:
            ids[turn.id] = _add_turn(store, conversation, turn, ids)
        for turn in document.turns:
            if turn.active_child is not None:
                child = ids[turn.active_child]
                database.rows("UPDATE turns SET active_child = ? WHERE id = ?", (child, ids[turn.id]))
        if document.active_root is not None:
            tree.show(database, ids[document.active_root])
        times = (document.created_ms, document.updated_ms, int(document.pinned), conversation)
        database.rows("UPDATE conversations SET created_ms = ?, updated_ms = ?, pinned = ? WHERE id = ?", times)
        listing.keep_draft(database, now, conversation, document.draft)
    return conversation


def _add_turn(store: Store, conversation: ConversationId, turn: DocumentTurn, ids: Mapping[int, TurnId]) -> TurnId:
    values: dict[str, Value] = {
        "role": turn.role,
        "state": turn.state,
        "created_ms": turn.created_ms,
        "ended_ms": turn.ended_ms,
        "tokens": turn.tokens,
        "statistics": None if turn.statistics is None else to_json(turn.statistics),
        "failure": None if turn.failure is None else to_json(turn.failure),
        "recipe": None if turn.recipe is None else to_json(turn.recipe),
        **tree.parts_columns(turn.parts),
    }
    parent = None if turn.parent is None else ids[turn.parent]
    added = tree.insert(store.database, conversation, parent, values, turn.attachments)
    for item in turn.comparisons:
        sql = "INSERT INTO comparisons (turn, created_ms, document) VALUES (?, ?, ?)"
        store.database.rows(sql, (added, item.created_ms, to_json(item.document)))
    return added


def _keep(store: Store, item: DocumentMedia, folder: Path, where: str) -> Path:
    """The stored file; a missing one gets the path where it would be."""
    try:
        if item.base64 is not None:
            data = base64.b64decode(item.base64, validate=True)
        elif item.file is not None:
            data = _beside(folder, item.file).read_bytes()
        else:
            return blobs.place(store.media, item.sha256, item.suffix)
        return blobs.keep(store.media, item.sha256, item.suffix, data)
    except (binascii.Error, ValueError) as error:
        raise _refused(f"no base64 - at `{where}.base64`" if item.base64 else f"{error} - at `{where}`") from error
    except OSError as error:
        raise _refused(f"its file {item.file!r} cannot be read or kept ({error}) - at `{where}.file`") from error
    except VlmtuiError as error:
        raise _refused(f"{error.message} - at `{where}`") from error


def _beside(folder: Path, name: str) -> Path:
    """A document names files below its own folder only."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise bad_input(f"{name!r} is no file below the document's folder.")
    return path


def _check_tree(document: Document) -> None:
    turns: dict[int, DocumentTurn] = {}
    for at, turn in enumerate(document.turns):
        where = f"$.turns[{at}]"
        if turn.id in turns:
            raise _refused(f"the id {turn.id} is there twice - at `{where}.id`")
        if turn.parent is not None and turn.parent not in turns:
            raise _refused(f"no earlier turn has the id {turn.parent} - at `{where}.parent`")
        if turn.role != "assistant" and turn.state != "complete":
            raise _refused(f"only an answer can be {turn.state} - at `{where}.state`")
        turns[turn.id] = turn
    for at, turn in enumerate(document.turns):
        child = turn.active_child
        if child is not None and (child not in turns or turns[child].parent != turn.id):
            raise _refused(f"the turn {child} is no child of this one - at `$.turns[{at}].active_child`")
    root = document.active_root
    if root is not None and (root not in turns or turns[root].parent is not None):
        raise _refused(f"no first turn has the id {root} - at `$.active_root`")


def _check_media(document: Document) -> None:
    known: set[str] = set()
    for at, item in enumerate(document.media):
        if item.sha256 in known:
            raise _refused(f"the same file is there twice - at `$.media[{at}].sha256`")
        if item.file is not None and item.base64 is not None:
            raise _refused(f"both a file and base64 - at `$.media[{at}]`")
        known.add(item.sha256)
    for attachment in document.attachments:
        if attachment.sha256 not in known:
            raise _refused(f"the attachment {attachment.sha256[:12]}… is not listed - at `$.media`")


def _refuse_unknown(raw: object, known: object, where: str) -> None:
    """Every field of the file must be one that was understood."""
    match raw, known:
        case dict(), dict():
            for key, value in raw.items():
                if key not in known:
                    raise _refused(f"the field `{key}` is unknown - at `{where}`")
                _refuse_unknown(value, known[key], f"{where}.{key}")
        case list(), list() | tuple():
            for at, (value, item) in enumerate(zip(raw, known, strict=True)):
                _refuse_unknown(value, item, f"{where}[{at}]")
        case _:
            pass


def _refused(why: str) -> VlmtuiError:
    return bad_input(f"This is no conversation that vlmtui can read: {why}.")
