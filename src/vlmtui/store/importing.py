"""Imports a conversation from JSON: validates it strictly, then adds it as a new conversation."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.reading import is_file, read_whole
from vlmtui.store import listing, tree
from vlmtui.store.document import Document, DocumentMedia, DocumentTurn, fields_of
from vlmtui.store.export import with_attachments
from vlmtui.store.media_files import keep, place
from vlmtui.store.records import ConversationData, ConversationId, TurnData, TurnId
from vlmtui.store.store import Store
from vlmtui.store.tables import COMPARISONS, CONVERSATIONS, TURNS
from vlmtui.text import one_line

_MEDIA_BYTES_MAX = 16_000_000_000
_PIXELS_MAX = 10_000_000
_NUMBER_MAX = 1e9


class ImportResult(NamedTuple):
    """What was added, and what was not."""

    conversation: ConversationId
    missing: tuple[str, ...]
    """Names of attachments whose files were missing or damaged."""
    left_out: tuple[str, ...]
    """Names of files that are no picture, video, sound or document."""


def read_document(data: bytes) -> Document:
    """Parse a document written by `to_json_document`. Raises VlmtuiError naming the place (`$.turns[3].parent`) of
    anything invalid or unknown."""
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


def add_document(store: Store, document: Document, folder: Path) -> ImportResult:
    """Add a document as a new conversation, media first. `folder` holds the document's files. Missing or damaged files,
    and those that are no media by their content, are skipped and reported. Raises VlmtuiError for a file that is
    refused, or if the disk is full."""
    paths: dict[str, Path] = {}
    names: dict[str, list[str]] = {}
    for attachment in document.attachments:
        names.setdefault(attachment.sha256, []).append(attachment.name)
    missing: list[str] = []
    left_out: list[str] = []
    for at, item in enumerate(document.media):
        path = None
        data = _content(item, folder, f"$.media[{at}]")
        if data is None or hashlib.sha256(data).hexdigest() != item.sha256:
            missing += names.get(item.sha256, [])
        elif (path := keep(store.media, item.sha256, data)) is None:
            left_out += names.get(item.sha256, [item.file or f"{item.sha256[:12]}…"])
        paths[item.sha256] = path or place(store.media, item.sha256)

    def local(attachment: Attachment) -> Attachment:
        return msgspec.structs.replace(attachment, path=str(paths[attachment.sha256]))

    moved = with_attachments(document, local)
    return ImportResult(_add(store, moved), tuple(dict.fromkeys(missing)), tuple(dict.fromkeys(left_out)))


def _add(store: Store, document: Document) -> ConversationId:
    database = store.database
    with database.writing() as now:
        conversation = listing.insert_conversation(database, now, title=document.title, model=document.model)
        ids: dict[int, TurnId] = {}
        for turn in document.turns:
            ids[turn.id] = _add_turn(store, conversation, turn, ids)
        for turn in document.turns:
            if turn.active_child is not None:
                child = ids[turn.active_child]
                database.rows("UPDATE turns SET active_child = ? WHERE id = ?", (child, ids[turn.id]))
        if document.active_root is not None:
            tree.show_branch(database, ids[document.active_root])
        values = CONVERSATIONS.encode({**fields_of(ConversationData, document), "imported": True})
        sets = ", ".join(f"{name} = ?" for name in values)
        database.rows(f"UPDATE conversations SET {sets} WHERE id = ?", (*values.values(), conversation))
        listing.replace_draft(database, now, conversation, document.draft)
    return conversation


def _add_turn(store: Store, conversation: ConversationId, turn: DocumentTurn, ids: Mapping[int, TurnId]) -> TurnId:
    fields = fields_of(TurnData, turn)
    if turn.generation is not None:
        # The id of a request belongs to an engine of the machine that wrote the document.
        fields["generation"] = msgspec.structs.replace(turn.generation, imported=True, request_id="")
    fields["mode"] = turn.generation.mode if turn.generation else "chat"
    values = TURNS.encode({**fields, **tree.parts_fields(fields.pop("parts"))})
    parent = None if turn.parent is None else ids[turn.parent]
    added = tree.insert_turn(store.database, conversation, parent, values, turn.attachments)
    for item in turn.comparisons:
        store.database.insert("comparisons", COMPARISONS.encode({**msgspec.structs.asdict(item), "turn": added}))
    return added


def _content(item: DocumentMedia, folder: Path, where: str) -> bytes | None:
    """Return the bytes that the document has of a file, or None."""
    try:
        if item.base64 is not None:
            return base64.b64decode(item.base64, validate=True)
        if item.file is None:
            return None
        path = _beside(folder, item.file)
        return read_whole(path, bytes_max=_MEDIA_BYTES_MAX, may_be_empty=True) if is_file(path) else None
    except (binascii.Error, ValueError) as error:
        raise _refused(f"no base64 - at `{where}.base64`" if item.base64 else f"{error} - at `{where}`") from error
    except VlmtuiError as error:
        raise _refused(f"{error.message} - at `{where}`") from error


def _beside(folder: Path, name: str) -> Path:
    """Resolve a file name of the document; it must be below the document's folder."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
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
        _check_sizes(attachment)


def _check_sizes(attachment: Attachment) -> None:
    """Reject implausible sizes, which are shown and calculated with."""
    name = one_line(attachment.name)
    if not (0 <= attachment.width <= _PIXELS_MAX and 0 <= attachment.height <= _PIXELS_MAX):
        raise _refused(f"{name} is said to be {attachment.width} x {attachment.height} pixels - at `$.turns`")
    if not (0 <= attachment.size_bytes <= 2**53 and 1 <= attachment.page <= 2**31 and 0 <= attachment.pages <= 2**31):
        raise _refused(f"the size or the pages of {name} are no numbers of a file - at `$.turns`")
    for number in (attachment.duration_s, attachment.fps):
        if number is not None and not 0 <= number <= _NUMBER_MAX:
            raise _refused(f"the duration or frame rate of {name} is no number of a video - at `$.turns`")


def _refuse_unknown(raw: object, known: object, where: str) -> None:
    """Reject fields of the file that were not decoded."""
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
