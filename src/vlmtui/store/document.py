"""A whole conversation as one value: read from the store or from JSON, and added to the store."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from vlmtui.domain.conversation import Attachment, Media, with_changed_media
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.content_store import place, store_medium
from vlmtui.reading import is_file, read_whole
from vlmtui.store.records import (
    ConversationData,
    ConversationId,
    EndState,
    Milliseconds,
    Natural,
    StoredDraft,
    StoredTurn,
    TurnData,
    TurnId,
)
from vlmtui.store.store import Store, parts_fields
from vlmtui.store.tables import COMPARISONS, CONVERSATIONS, TURNS
from vlmtui.text import one_line

DOCUMENT_BYTES_MAX = 1_000_000_000
"""Maximum size of an exported conversation or comparison, embedded media included, in bytes."""
_MEDIA_BYTES_MAX = 16_000_000_000
_PIXELS_MAX = 10_000_000
_NUMBER_MAX = 1e9


class DocumentComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A stored comparison."""

    created_ms: Milliseconds
    document: object


class DocumentTurn(TurnData, frozen=True, kw_only=True):
    """One turn of the conversation's tree. Ids of turns are only valid within the document."""

    id: Natural
    parent: Natural | None = None
    state: EndState = "complete"
    active_child: Natural | None = None
    comparisons: tuple[DocumentComparison, ...] = ()

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        return tuple(part.attachment for part in self.parts if isinstance(part, Media))


class DocumentMedia(msgspec.Struct, frozen=True, kw_only=True):
    """One media file. `file` names a file next to the document; `base64` is the content itself. If both are None, the
    media file was missing when the document was exported."""

    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
    suffix: Annotated[str, msgspec.Meta(pattern=r"^(\.[a-z0-9]{1,8})?$")]
    """The ending of the exported file. An import detects the type by the content."""
    file: str | None = None
    """Relative to the document."""
    base64: str | None = None


class Document(ConversationData, frozen=True, kw_only=True):
    """A conversation with all turns of all branches. In a written document, an attachment's `path` is the `file` of its
    entry in `media`."""

    format: Literal["vlmtui conversation"] = "vlmtui conversation"
    version: Literal[1] = 1
    active_root: Natural | None = None
    draft: StoredDraft = msgspec.field(default_factory=StoredDraft)
    turns: tuple[DocumentTurn, ...] = ()
    """Parents before their children."""
    media: tuple[DocumentMedia, ...] = ()

    @property
    def attachments(self) -> Iterator[Attachment]:
        """Yield the attachments of all turns and of the draft. An attachment that is used twice is yielded twice."""
        for turn in self.turns:
            yield from turn.attachments
        yield from self.draft.attachments.values()

    @property
    def shown(self) -> list[DocumentTurn]:
        """Return the active branch, oldest turn first."""
        by_id = {turn.id: turn for turn in self.turns}
        found: list[DocumentTurn] = []
        turn = None if self.active_root is None else by_id.get(self.active_root)
        while turn is not None and len(found) < len(self.turns):
            found.append(turn)
            turn = None if turn.active_child is None else by_id.get(turn.active_child)
        return found


def document_of(store: Store, conversation: ConversationId) -> Document:
    """Return the conversation's current state. A running answer counts as interrupted."""
    row = store.conversation(conversation)
    return Document(
        **fields_of(ConversationData, row),
        active_root=row.active_root,
        draft=store.draft(conversation),
        turns=tuple(_exported(store, turn) for turn in store.tree(conversation)),
    )


def _exported(store: Store, turn: StoredTurn) -> DocumentTurn:
    fields = fields_of(TurnData, turn)
    return DocumentTurn(
        **{**fields, "state": "interrupted" if turn.state == "running" else turn.state},
        id=turn.id,
        parent=turn.parent,
        active_child=turn.active_child,
        comparisons=tuple(
            DocumentComparison(created_ms=item.created_ms, document=item.document)
            for item in store.comparisons(turn.id)
        ),
    )


def fields_of(kind: type[msgspec.Struct], record: msgspec.Struct) -> dict[str, Any]:
    """Return those fields of `record` that its base class `kind` defines, with their values."""
    return {field.name: getattr(record, field.name) for field in msgspec.structs.fields(kind)}


def with_attachments(document: Document, change: Callable[[Attachment], Attachment]) -> Document:
    """Return the document with `change` applied to every attachment."""
    turns = tuple(
        msgspec.structs.replace(turn, parts=with_changed_media(turn.parts, change)) for turn in document.turns
    )
    kept = {number: change(item) for number, item in document.draft.attachments.items()}
    return msgspec.structs.replace(
        document, turns=turns, draft=msgspec.structs.replace(document.draft, attachments=kept)
    )


class ImportResult(NamedTuple):
    """The result of an import."""

    conversation: ConversationId
    missing: tuple[str, ...]
    """Names of attachments whose files were missing or damaged."""
    left_out: tuple[str, ...]
    """Names of files that are no image, video, audio file or PDF."""


def read_document(data: bytes) -> Document:
    """Parse a document written by `to_json_document`. Raises VlmtuiError naming the place (`$.turns[3].parent`) of
    anything invalid or unknown."""
    try:
        raw = msgspec.json.decode(data)
        document = msgspec.json.decode(data, type=Document)
    except msgspec.ValidationError as error:
        raise _refused(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refused(f"it is not JSON ({error})") from error
    _refuse_unknown(raw, msgspec.to_builtins(document, str_keys=True), "$")
    _check_tree(document)
    _check_media(document)
    return document


def add_document(store: Store, document: Document, folder: Path) -> ImportResult:
    """Add a document to the store as a new conversation, after storing its media. `folder` contains the document's
    files. Files that are missing, damaged or not media are skipped and reported. Raises VlmtuiError for a file outside
    `folder`, or if the disk is full."""
    local = with_stored_media(document, folder, store.media)
    return ImportResult(_add(store, local.document), local.missing, local.left_out)


class LocalDocument(NamedTuple):
    """A document whose attachments are in a media store."""

    document: Document
    missing: tuple[str, ...]
    left_out: tuple[str, ...]
    """Both as in `ImportResult`."""


def with_stored_media(document: Document, folder: Path, media: Path) -> LocalDocument:
    """Store a document's media in `media`. `folder` contains the document's files. Raises VlmtuiError for a file
    outside `folder`, or if the disk is full."""
    paths: dict[str, Path] = {}
    names: dict[str, list[str]] = {}
    for attachment in document.attachments:
        names.setdefault(attachment.sha256, []).append(attachment.name)
    missing: list[str] = []
    left_out: list[str] = []
    for at, item in enumerate(document.media):
        data = _content(item, folder, f"$.media[{at}]")
        if data is None or hashlib.sha256(data).hexdigest() != item.sha256:
            missing += names.get(item.sha256, [])
        elif store_medium(io.BytesIO(data), media, name=item.sha256) is None:
            left_out += names.get(item.sha256, [item.file or f"{item.sha256[:12]}…"])
        paths[item.sha256] = place(media, item.sha256)

    def local(attachment: Attachment) -> Attachment:
        return msgspec.structs.replace(attachment, path=str(paths[attachment.sha256]))

    moved = with_attachments(document, local)
    return LocalDocument(moved, tuple(dict.fromkeys(missing)), tuple(dict.fromkeys(left_out)))


def _add(store: Store, document: Document) -> ConversationId:
    with store.together():
        conversation = store.new_conversation()
        ids: dict[int, TurnId] = {}
        for turn in document.turns:
            ids[turn.id] = _add_turn(store, conversation, turn, ids)
        for turn in document.turns:
            if turn.active_child is not None:
                store.update(TURNS, ids[turn.id], active_child=ids[turn.active_child])
        if document.active_root is not None:
            store.activate(ids[document.active_root])
        store.update(CONVERSATIONS, conversation, **fields_of(ConversationData, document), imported=True)
        store.save_draft(conversation, document.draft)
    return conversation


def _add_turn(store: Store, conversation: ConversationId, turn: DocumentTurn, ids: Mapping[int, TurnId]) -> TurnId:
    fields = fields_of(TurnData, turn)
    if turn.generation is not None:
        # The id of a request belongs to an engine of the machine that wrote the document.
        fields["generation"] = msgspec.structs.replace(turn.generation, imported=True, request_id="")
    fields["mode"] = turn.generation.mode if turn.generation else "chat"
    fields |= parts_fields(fields.pop("parts"))
    parent = None if turn.parent is None else ids[turn.parent]
    added = store.insert_turn(conversation, parent, fields, turn.attachments)
    for item in turn.comparisons:
        store.database.insert("comparisons", COMPARISONS.encode({**msgspec.structs.asdict(item), "turn": added}))
    return added


def _content(item: DocumentMedia, folder: Path, where: str) -> bytes | None:
    try:
        if item.base64 is not None:
            return base64.b64decode(item.base64, validate=True)
        if item.file is None:
            return None
        path = _beside(folder, item.file)
        return read_whole(path, bytes_max=_MEDIA_BYTES_MAX, may_be_empty=True) if is_file(path) else None
    except (binascii.Error, ValueError) as error:
        raise _refused(f"invalid base64 - at `{where}.base64`" if item.base64 else f"{error} - at `{where}`") from error
    except VlmtuiError as error:
        raise _refused(f"{error.message} - at `{where}`") from error


def _beside(folder: Path, name: str) -> Path:
    """Resolve a file name of the document; it must be below the document's folder."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise bad_input(f"{name!r} is not a file below the document's folder.")
    return path


def _check_tree(document: Document) -> None:
    turns: dict[int, DocumentTurn] = {}
    for at, turn in enumerate(document.turns):
        where = f"$.turns[{at}]"
        if turn.id in turns:
            raise _refused(f"the id {turn.id} occurs twice - at `{where}.id`")
        if turn.parent is not None and turn.parent not in turns:
            raise _refused(f"no earlier turn has the id {turn.parent} - at `{where}.parent`")
        if turn.role != "assistant" and turn.state != "complete":
            raise _refused(f"only an answer can be {turn.state} - at `{where}.state`")
        turns[turn.id] = turn
    for at, turn in enumerate(document.turns):
        child = turn.active_child
        if child is not None and (child not in turns or turns[child].parent != turn.id):
            raise _refused(f"the turn {child} is not a child of this turn - at `$.turns[{at}].active_child`")
    root = document.active_root
    if root is not None and (root not in turns or turns[root].parent is not None):
        raise _refused(f"no first turn has the id {root} - at `$.active_root`")


def _check_media(document: Document) -> None:
    known: set[str] = set()
    for at, item in enumerate(document.media):
        if item.sha256 in known:
            raise _refused(f"the same file occurs twice - at `$.media[{at}].sha256`")
        if item.file is not None and item.base64 is not None:
            raise _refused(f"both a file and base64 - at `$.media[{at}]`")
        known.add(item.sha256)
    for attachment in document.attachments:
        if attachment.sha256 not in known:
            raise _refused(f"the attachment {attachment.sha256[:12]}… is not listed - at `$.media`")
        _check_sizes(attachment)


def _check_sizes(attachment: Attachment) -> None:
    """Raise VlmtuiError if an attachment's size, page, duration or frame rate is impossible: the app shows these
    numbers, and calculates with them."""
    name = one_line(attachment.name)
    if not (0 <= attachment.width <= _PIXELS_MAX and 0 <= attachment.height <= _PIXELS_MAX):
        raise _refused(f"{name} has an impossible size, {attachment.width} × {attachment.height} pixels - at `$.turns`")
    if not (0 <= attachment.size_bytes <= 2**53 and 1 <= attachment.page <= 2**31 and 0 <= attachment.pages <= 2**31):
        raise _refused(f"{name} has an impossible size or page number - at `$.turns`")
    for number in (attachment.duration_s, attachment.fps):
        if number is not None and not 0 <= number <= _NUMBER_MAX:
            raise _refused(f"{name} has an impossible duration or frame rate - at `$.turns`")


def _refuse_unknown(raw: object, known: object, where: str) -> None:
    """Raise VlmtuiError for fields in the file that are not part of a document."""
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
    return bad_input(f"Can't read the conversation: {why}.")
