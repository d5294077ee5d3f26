"""Saves the open conversation as a file."""

from __future__ import annotations

import asyncio
from pathlib import Path

from vlmtui.errors import bad_input
from vlmtui.session.conversation import Conversation
from vlmtui.session.conversation_holder import Teller
from vlmtui.store.document import document_of
from vlmtui.store.export import format_of, write_document
from vlmtui.text import one_line


async def save_conversation(chat: Conversation, name: str, teller: Teller) -> None:
    """Write the conversation to a new file, in the format of its ending, and tell its path. Raises VlmtuiError."""
    await chat.record()
    conversation = chat.id
    if not name:
        raise bad_input("/save takes a file name.", hint="FILE.md or .html to read, .json with everything.")
    if conversation is None:
        raise bad_input("There is no message to save yet.")
    path = Path(name).expanduser()
    if path.exists():
        raise bad_input(f"{one_line(name)} already exists.", hint="Choose another name.")
    document = await chat.recorder.store.run(lambda store: document_of(store, conversation))
    for damaged in await asyncio.to_thread(write_document, document, path, format_of(path)):
        text = f"The stored file of {one_line(damaged)} is damaged, so the export is without it."
        teller.tell(text, severity="warning")
    teller.tell(f"Saved {one_line(str(path))}")
