"""Conversations and attachments to fill a store with."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

from vlmtui.domain.conversation import Attachment, Modality, Role, Turn, user_turn
from vlmtui.domain.generation import Timings, Usage
from vlmtui.domain.sampling import Sampling
from vlmtui.media.content_store import store_bytes
from vlmtui.store.records import AnswerData, ConversationId, GenerationRecord, Statistics
from vlmtui.store.store import Store, match_expression

RECIPE = GenerationRecord(
    model="owner/model",
    revision="abc123",
    family="qwen2_vl",
    record_sha256="f" * 64,
    engine="vLLM",
    engine_version="0.32.0",
    mode="raw",
    prompt="<image>What is it?",
    sampling=Sampling(temperature=0.7, top_p=0.9, stop=("</s>",), extra={"min_p": 0.1}),
    seed=7,
    attachments=("a" * 64,),
    engine_args={"dtype": "bfloat16"},
)
STATISTICS = Statistics(
    usage=Usage(prompt_tokens=12, completion_tokens=3, image_tokens=8),
    timings=Timings(ttft_s=0.25, total_s=1.5),
    finish_reason="stop",
    stop="</s>",
)
COMPLETE = AnswerData(state="complete", tokens=3, statistics=STATISTICS)


def opened(folder: Path, **options: float) -> Store:
    """The store in `folder`, which must be sound."""
    found = Store.open(folder, **options)  # type: ignore[arg-type]
    assert found.notice == ""
    return found


def attachment(media: Path, content: bytes, *, name: str = "cat.png", modality: Modality = "image") -> Attachment:
    """A stored file of this content (no true image) as an attachment."""
    sha256 = hashlib.sha256(content).hexdigest()
    path = store_bytes(content, media, ".png" if modality == "image" else ".mp4", name=name).path
    return Attachment(
        modality=modality,
        name=name,
        path=str(path),
        sha256=sha256,
        width=4,
        height=3,
        size_bytes=len(content),
        format="PNG" if modality == "image" else "MP4",
    )


def exchange(store: Store, conversation: ConversationId, number: int) -> None:
    """Add a question to the end of the shown branch, and its answer."""
    leaf = store.conversation(conversation).leaf
    asked = store.add_turn(conversation, leaf, user_turn(f"question {number} {'about the picture ' * 20}"))
    answer = store.begin_answer(asked, RECIPE)
    store.write_answer(answer, f"answer {number} {'the picture shows a cat ' * 20}", COMPLETE)


def bulk(store: Store, turns: int, images: int = 0) -> ConversationId:
    """A conversation of that many turns, written in one transaction; every image is a file of its own by name only."""
    conversation = store.new_conversation(title=f"{turns} turns", model="shapes")
    every = max(1, turns // images) if images else 0
    with store.together():
        last = None
        for number in range(turns):
            items = []
            if images and number % every == 0:
                sha256 = hashlib.sha256(str(number).encode()).hexdigest()
                items = [
                    Attachment(
                        modality="image",
                        name=f"{number}.png",
                        path=f"/media/{sha256}.png",
                        sha256=sha256,
                        width=4,
                        height=3,
                        size_bytes=9,
                        format="PNG",
                    )
                ]
            words = user_turn(f"turn {number} of many words", items)
            role: Role = "user" if number % 2 == 0 else "assistant"
            last = store.add_turn(conversation, last, Turn(role, words.parts))
    return conversation


def needed(store: Store) -> set[str]:
    """The hashes of the media that turns and drafts refer to."""
    return {row[0] for row in store.database.rows("SELECT sha256 FROM media_references")}


def search(store: Store, words: str) -> list[int]:
    """The turns whose text the index finds by these words, newest first."""
    sql = "SELECT rowid FROM turns_search WHERE turns_search MATCH ? ORDER BY rowid DESC"
    return [row[0] for row in store.database.rows(sql, (match_expression(words),))]


def integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        for index in ("turns_search", "titles_search"):
            connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
