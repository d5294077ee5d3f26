"""A conversation as Markdown, as a web page, as JSON, as messages of the OpenAI API. Pure functions of a document; the
only thing read is the media's files, and nothing is written."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Media, Part, Text
from vlmtui.errors import bad_input
from vlmtui.store.columns import to_json
from vlmtui.store.document import Document, DocumentMedia, DocumentTurn

NAMES = {"system": "System", "user": "User", "assistant": "Assistant"}
_MIME = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".mp4": "video/mp4",
    ".m4v": "video/mp4",
    ".mov": "video/quicktime",
    ".webm": "video/webm",
    ".mkv": "video/x-matroska",
    ".avi": "video/x-msvideo",
}
_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Copy(NamedTuple):
    """A file to be put beside the export."""

    name: str
    """Relative, with `/`."""
    source: Path


class Exported(NamedTuple):
    """An export: its text, and the files that belong beside it."""

    text: str
    copies: tuple[Copy, ...] = ()


def to_markdown(document: Document, *, media_folder: str = "media") -> Exported:
    """The branch that is shown. Texts are left as they are: they are Markdown already, or read well as such."""
    lines = [f"# {_line(document.title) or 'Conversation'}", ""]
    copies: dict[str, Copy] = {}
    for turn in document.shown:
        lines += [f"## {NAMES[turn.role]}", ""]
        for part in turn.parts:
            match part:
                case Text(text):
                    lines += [text, ""] if text else []
                case Media(attachment):
                    name = f"{media_folder}/{attachment.sha256[:16]}{suffix_of(attachment)}"
                    lines += [_markdown_media(attachment, name), ""]
                    if Path(attachment.path).is_file():
                        copies[name] = Copy(name, Path(attachment.path))
        lines += [f"> {note}\n" for note in notes_of(turn)]
    return Exported("\n".join(lines).rstrip("\n") + "\n", tuple(copies.values()))


def to_openai(document: Document) -> str:
    """The branch that is shown as `{"model": …, "messages": […]}`: images as `image_url` and videos (as vLLM takes
    them) as `video_url`, both data URLs. Raises VlmtuiError when a stored file is gone."""
    messages = [{"role": turn.role, "content": _openai_content(turn)} for turn in document.shown]
    return to_json({"model": document.model, "messages": messages})


def to_json_document(document: Document, *, inline: bool = False, media_folder: str = "media") -> Exported:
    """Everything, every branch included; `vlmtui.store.importing` reads it.

    Args:
        inline: media inside the document as base64; otherwise as files beside it.
    """
    media: dict[str, DocumentMedia] = {}
    copies: list[Copy] = []
    for attachment in document.attachments:
        if attachment.sha256 in media:
            continue
        path, suffix = Path(attachment.path), suffix_of(attachment)
        name = f"{media_folder}/{attachment.sha256}{suffix}"
        entry = DocumentMedia(sha256=attachment.sha256, suffix=suffix)
        if path.is_file():
            if inline:
                entry = msgspec.structs.replace(entry, base64=base64.b64encode(_content(attachment)).decode())
            else:
                entry = msgspec.structs.replace(entry, file=name)
                copies.append(Copy(name, path))
        media[attachment.sha256] = entry

    def portable(attachment: Attachment) -> Attachment:
        return msgspec.structs.replace(attachment, path=f"{media_folder}/{attachment.sha256}{suffix_of(attachment)}")

    moved = msgspec.structs.replace(with_attachments(document, portable), media=tuple(media.values()))
    return Exported(msgspec.json.format(to_json(moved), indent=1), tuple(copies))


def with_attachments(document: Document, change: Callable[[Attachment], Attachment]) -> Document:
    """The document with every attachment changed."""

    def changed(part: Part) -> Part:
        return Media(change(part.attachment)) if isinstance(part, Media) else part

    turns = tuple(
        msgspec.structs.replace(turn, parts=tuple(changed(part) for part in turn.parts)) for turn in document.turns
    )
    kept = {number: change(item) for number, item in document.draft.attachments.items()}
    return msgspec.structs.replace(
        document, turns=turns, draft=msgspec.structs.replace(document.draft, attachments=kept)
    )


def data_url(attachment: Attachment) -> str:
    """The stored file as a `data:` URL. Raises VlmtuiError when it is gone."""
    mime = _MIME.get(suffix_of(attachment), "application/octet-stream")
    return f"data:{mime};base64,{base64.b64encode(_content(attachment)).decode()}"


def notes_of(turn: DocumentTurn) -> list[str]:
    """What there is to say about how an answer came about and ended, a line each."""
    notes = []
    if turn.state != "complete":
        notes.append({"stopped": "Stopped by the user.", "failed": "Failed."}.get(turn.state, "Interrupted."))
    if turn.failure is not None:
        notes.append(_line(f"{turn.failure.message} {turn.failure.hint}".strip()))
    if turn.recipe is not None:
        # What the user calls it: where a model lies on this machine is nothing for a page that is given to others.
        model = turn.recipe.spec.name if turn.recipe.spec is not None else turn.recipe.model
        facts = [model, turn.recipe.mode]
        if turn.statistics is not None:
            usage = turn.statistics.usage
            facts.append(f"{usage.prompt_tokens} + {usage.completion_tokens} tokens")
            facts.append(f"{turn.statistics.timings.total_s:.1f} s")
        notes.append(_line(", ".join(facts)))
    return notes


def visible(text: str) -> str:
    """`text` with its control characters (line breaks and tabs stay) and bidi marks written out."""
    return _UNSEEN.sub(lambda match: ascii(match.group())[1:-1], text.replace("\r\n", "\n"))


def suffix_of(attachment: Attachment) -> str:
    suffix = Path(attachment.path).suffix.lower()
    return suffix if _SUFFIX.fullmatch(suffix) else ""


def _markdown_media(attachment: Attachment, name: str) -> str:
    label = re.sub(r"([\\\[\]<>!`*_])", r"\\\1", _line(attachment.name))
    if not Path(attachment.path).is_file():
        return f"*[{label}: the file is gone]*"
    return f"{'!' if attachment.modality == 'image' else ''}[{label}](<{name}>)"


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
                content.append({"type": kind, kind: {"url": data_url(attachment)}})
    return content


def _content(attachment: Attachment) -> bytes:
    try:
        return Path(attachment.path).read_bytes()
    except OSError as error:
        raise bad_input(
            f"The stored file of {visible(attachment.name)} is gone, so the conversation cannot be exported with it.",
            detail=str(error),
        ) from error


def _line(text: str) -> str:
    return visible(" ".join(text.split()))
