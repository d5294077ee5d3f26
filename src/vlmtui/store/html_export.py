"""Exports a conversation as a self-contained web page."""

from __future__ import annotations

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Media, Text
from vlmtui.store.document import Document, DocumentTurn
from vlmtui.store.export import NAMES, data_url, is_intact, notes_of
from vlmtui.web_page import render_page


def to_html(document: Document) -> str:
    """Export the active branch, with embedded images and videos; light or dark as the reader's system."""
    turns = [_turn(turn) for turn in document.shown]
    return render_page("conversation.html", title=document.title or "Conversation", turns=turns)


def _turn(turn: DocumentTurn) -> dict[str, object]:
    parts: list[dict[str, str]] = []
    for part in turn.parts:
        match part:
            case Text(text):
                parts.append({"text": text.replace("\r\n", "\n")})
            case Media(attachment):
                parts.append(_figure(attachment))
    return {"role": turn.role, "heading": NAMES[turn.role], "parts": parts, "notes": notes_of(turn)}


def _figure(attachment: Attachment) -> dict[str, str]:
    is_there = is_intact(attachment)
    return {
        "name": attachment.name,
        "modality": attachment.modality,
        "url": data_url(attachment) if is_there else "",
        "missing": "" if is_there else "the file is missing or damaged",
    }
