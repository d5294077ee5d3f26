"""Exports a conversation: as Markdown, a web page, JSON, or OpenAI messages. Only `write_document` writes files.

To add a format, add a row to `FORMATS` and its name to `cli/conversations.py`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import NamedTuple

import msgspec

from vlmtui.domain.conversation import Attachment, Media, Part, Text
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.export.web_page import Figure, data_url, figure, render_page
from vlmtui.files import write_output
from vlmtui.media.content_store import require_intact
from vlmtui.media.paths import is_url, public_address
from vlmtui.reading import is_file
from vlmtui.store.document import Document, DocumentMedia, DocumentTurn, with_attachments
from vlmtui.store.records import ConversationRecord
from vlmtui.store.tables import to_json_text
from vlmtui.text import one_line, visible

NAMES = {"system": "System", "user": "User", "assistant": "Assistant"}
_SUBTYPES = {
    ".jpg": "jpeg",
    ".m4v": "mp4",
    ".mov": "quicktime",
    ".mkv": "x-matroska",
    ".avi": "x-msvideo",
    ".mp3": "mpeg",
    ".m4a": "mp4",
}
"""Subtypes of media types that differ from the suffix."""
_NO_WORD = re.compile(r"[^\w]+")
_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")


class Place(NamedTuple):
    """Where an export puts its media."""

    media_folder: str = "media"
    """A folder next to the export, for files that are not embedded."""
    inline: bool = False
    """There is no folder: embed media if the format allows it."""


HERE = Place()


class Copy(NamedTuple):
    """A file to copy next to the export."""

    name: str
    """Relative, with `/`."""
    source: Path


class ExportText(NamedTuple):
    """An export: its text, the files to copy next to it, and the names of attachments left out because their stored
    file is damaged."""

    text: str
    copies: tuple[Copy, ...] = ()
    damaged: tuple[str, ...] = ()


def to_markdown(document: Document, place: Place = HERE) -> ExportText:
    """Export the active branch as Markdown. Texts are assumed to be Markdown; their control characters and bidi marks
    are made visible."""
    lines = [f"# {_line(document.title) or 'Conversation'}", ""]
    copies: dict[str, Copy] = {}
    for turn in document.shown:
        lines += [f"## {NAMES[turn.role]}", ""]
        for part in turn.parts:
            match part:
                case Text(text):
                    lines += [visible(text.replace("\r\n", "\n")), ""] if text else []
                case Media(attachment):
                    name = f"{place.media_folder}/{attachment.sha256[:16]}{suffix_of(attachment)}"
                    lines += [_markdown_media(attachment, name), ""]
                    if is_intact(attachment):
                        copies[name] = Copy(name, Path(attachment.path))
        lines += [f"> {note}\n" for note in notes_of(turn)]
    text = "\n".join(lines).rstrip("\n") + "\n"
    return ExportText(text, tuple(copies.values()), damaged_of(document, shown_only=True))


def to_html(document: Document, _place: Place = HERE) -> ExportText:
    """Export the active branch as a self-contained web page, light or dark as the reader's browser prefers."""
    turns = [
        {
            "role": turn.role,
            "heading": NAMES[turn.role],
            "parts": [_html_part(part) for part in turn.parts],
            "notes": notes_of(turn),
        }
        for turn in document.shown
    ]
    page = render_page("conversation.html", title=document.title or "Conversation", turns=turns)
    return ExportText(page, damaged=damaged_of(document, shown_only=True))


def to_openai(document: Document, _place: Place = HERE) -> ExportText:
    """Export the active branch as `{"model": …, "messages": […]}`, with images as `image_url` and videos as `video_url`
    (vLLM's extension), both data URLs. Raises VlmtuiError for a missing file."""
    messages = [{"role": turn.role, "content": _openai_content(turn)} for turn in document.shown]
    return ExportText(to_json_text({"model": without_folders(document.model), "messages": messages}))


def to_json_document(document: Document, place: Place = HERE) -> ExportText:
    """Export all branches as JSON for `read_document`."""
    media: dict[str, DocumentMedia] = {}
    copies: list[Copy] = []
    for attachment in document.attachments:
        if attachment.sha256 in media:
            continue
        path, suffix = Path(attachment.path), suffix_of(attachment)
        name = f"{place.media_folder}/{attachment.sha256}{suffix}"
        entry = DocumentMedia(sha256=attachment.sha256, suffix=suffix)
        if is_intact(attachment):
            if place.inline:
                entry = msgspec.structs.replace(entry, base64=base64.b64encode(_content(attachment)).decode())
            else:
                entry = msgspec.structs.replace(entry, file=name)
                copies.append(Copy(name, path))
        media[attachment.sha256] = entry

    def portable(attachment: Attachment) -> Attachment:
        source = attachment.source
        if is_url(source):
            source = public_address(source)
        elif "://" in source:
            source = ""
        else:
            source = without_folders(source)
        path = f"{place.media_folder}/{attachment.sha256}{suffix_of(attachment)}"
        return msgspec.structs.replace(attachment, path=path, source=source)

    moved = msgspec.structs.replace(with_attachments(document, portable), media=tuple(media.values()))
    moved = without_model_folders(moved)
    return ExportText(msgspec.json.format(to_json_text(moved), indent=1), tuple(copies), damaged_of(document))


def _media_type(attachment: Attachment) -> str:
    suffix = suffix_of(attachment)
    return f"{attachment.modality}/{_SUBTYPES.get(suffix, suffix.removeprefix('.') or 'octet-stream')}"


def notes_of(turn: DocumentTurn) -> list[str]:
    """Return notes on how an answer was made and how it ended, one per line."""
    notes = []
    if turn.state != "complete":
        notes.append({"stopped": "Stopped by the user.", "failed": "Failed."}.get(turn.state, "Interrupted."))
    if turn.failure is not None:
        notes.append(_line(f"{turn.failure.message} {turn.failure.hint}".strip()))
    if turn.generation is not None:
        # The model's display name, as local paths should not appear in a shared page.
        made_by = turn.generation.made_by
        model = made_by.name if made_by is not None else turn.generation.model
        facts = [without_folders(model), turn.generation.mode]
        if turn.used is not None:
            facts += turn.used.drawn()
        if turn.statistics is not None:
            usage = turn.statistics.usage
            facts.append(f"{usage.prompt_tokens} + {usage.completion_tokens} tokens")
            facts.append(f"{turn.statistics.timings.total_s:.1f} s")
        notes.append(_line(", ".join(facts)))
    return notes


def is_intact(attachment: Attachment) -> bool:
    """Return True if the stored file exists and is unchanged."""
    if not is_file(Path(attachment.path)):
        return False
    try:
        require_intact(Path(attachment.path))
    except VlmtuiError:
        return False
    return True


def damaged_of(document: Document, *, shown_only: bool = False) -> tuple[str, ...]:
    """Return the names of attachments whose stored file exists but has changed."""
    turns = (item for turn in document.shown for item in turn.attachments)
    items = turns if shown_only else document.attachments
    damaged = (item for item in items if is_file(Path(item.path)) and not is_intact(item))
    return tuple(dict.fromkeys(item.name for item in damaged))


def without_folders(text: str) -> str:
    """Return the last part of an absolute path; return any other text unchanged."""
    return (PurePath(text).name or text) if text.startswith("/") else text


def without_model_folders(document: Document) -> Document:
    """Return the document with folders removed from the names of local models and from engine arguments."""

    def bare(turn: DocumentTurn) -> DocumentTurn:
        if turn.generation is None:
            return turn
        made = turn.generation
        made_by = made.made_by
        if made_by is not None:
            model, name = without_folders(made_by.model), without_folders(made_by.name)
            made_by = msgspec.structs.replace(made_by, model=model, name=name)
        made = msgspec.structs.replace(
            made,
            model=without_folders(made.model),
            engine_args=_without_argument_folders(made.engine_args),
            made_by=made_by,
            adapter=without_folders(made.adapter),
        )
        return msgspec.structs.replace(turn, generation=made)

    turns = tuple(bare(turn) for turn in document.turns)
    return msgspec.structs.replace(document, model=without_folders(document.model), turns=turns)


def _without_argument_folders(arguments: dict[str, object]) -> dict[str, object]:
    return {name: without_folders(value) if isinstance(value, str) else value for name, value in arguments.items()}


def suffix_of(attachment: Attachment) -> str:
    suffix = Path(attachment.path).suffix.lower()
    return suffix if _SUFFIX.fullmatch(suffix) else ""


def _markdown_media(attachment: Attachment, name: str) -> str:
    label = re.sub(r"([\\\[\]<>!`*_])", r"\\\1", _line(attachment.name))
    if not is_intact(attachment):
        return f"*[{label}: the file is missing or damaged]*"
    return f"{'!' if attachment.modality == 'image' else ''}[{label}](<{name}>)"


def _html_part(part: Part) -> Figure | dict[str, str]:
    if isinstance(part, Text):
        return {"text": part.text.replace("\r\n", "\n")}
    one = part.attachment
    content = _content(one) if is_intact(one) else None
    return figure(one.name, one.modality, _media_type(one), content, gone="the file is missing or damaged")


def _openai_content(turn: DocumentTurn) -> object:
    if not turn.attachments:
        return "".join(part.text for part in turn.parts if isinstance(part, Text))
    content: list[dict[str, object]] = []
    for part in turn.parts:
        match part:
            case Text(text):
                content.append({"type": "text", "text": text})
            case Media(attachment):
                kind = f"{attachment.modality}_url"
                content.append({"type": kind, kind: {"url": data_url(_media_type(attachment), _content(attachment))}})
    return content


def _content(attachment: Attachment) -> bytes:
    try:
        require_intact(Path(attachment.path))
        return Path(attachment.path).read_bytes()
    except (OSError, VlmtuiError) as error:
        raise bad_input(
            f"Can't export the conversation: the stored file of {one_line(attachment.name)} is missing or damaged.",
            detail=str(error),
        ) from error


def _line(text: str) -> str:
    return one_line(" ".join(text.split()))


class Format(NamedTuple):
    suffixes: tuple[str, ...]
    """File extensions, lower case; new files get the first."""
    render: Callable[[Document, Place], ExportText]


FORMATS = {
    "md": Format((".md", ".markdown"), to_markdown),
    "html": Format((".html", ".htm"), to_html),
    "json": Format((".json",), to_json_document),
    "openai": Format((".openai.json",), to_openai),
}
DEFAULT = "md"


def file_name_of(conversation: ConversationRecord, kind: str) -> str:
    """Return a file name such as `a-red-circle-01hx….md`; letters and digits of any script stay."""
    words = _NO_WORD.sub("-", visible(conversation.title).lower()).strip("-_")
    title = words.encode()[:60].decode(errors="ignore").strip("-")
    return "-".join(part for part in (title, conversation.id) if part) + FORMATS[kind].suffixes[0]


def format_of(path: Path) -> str:
    """Return the name of the format for a file name: the one with the longest matching extension."""
    name = path.name.lower()
    fitting = [(len(end), key) for key, one in FORMATS.items() for end in one.suffixes if name.endswith(end)]
    return max(fitting, default=(0, DEFAULT))[1]


def write_document(document: Document, path: Path, kind: str) -> tuple[str, ...]:
    """Write an export, replacing an existing file, and its media to a folder next to it, without overwriting other
    files there. Return the names of attachments left out because their stored file is damaged. Raises VlmtuiError."""
    exported = FORMATS[kind].render(document, Place(f"{path.stem}.media"))
    for copy in exported.copies:
        write_output(path.parent / copy.name, copy.source)
    write_output(path, exported.text.encode("utf-8", "replace"))
    return exported.damaged
