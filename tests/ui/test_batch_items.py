"""Items of a batch in the app: read again from its input, put into the chat with their media, and compared."""

from __future__ import annotations

import json
from pathlib import Path

from tests.ui.conftest import StartChat, picture
from vlmtui.domain.conversation import Media
from vlmtui.paths import Paths
from vlmtui.session.batch.records import BatchRecord, BatchRecords
from vlmtui.session.batch.result_table import ResultOrder
from vlmtui.session.batch.tally import Tally
from vlmtui.ui.batch.result_rows import ResultRows
from vlmtui.ui.batch.screen import BatchScreen
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.compare.screen import CompareScreen

QUESTION = "What is this?"


def batch_in(folder: Path) -> Path:
    """Write a batch that has ended: its input, its output and its record; return the output."""
    picture(folder)
    output = folder / "out.jsonl"
    items = [
        {"id": "a", "images": ["cat.png"], "prompt": QUESTION, "system": "Be brief."},
        {"id": "b", "messages": [{"role": role, "content": "x"} for role in ("user", "assistant", "user")]},
    ]
    (folder / "in.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    output.write_text(
        "".join(
            json.dumps({"id": id, "line": n, "key": "k", "sampling": {"temperature": 0.25}, "error": None}) + "\n"
            for n, id in enumerate(("a", "b", "changed"), 1)
        )
    )
    words = ("batch", "in.jsonl", "-o", "out.jsonl")
    record = BatchRecord(output=str(output), folder=str(folder), words=words, input="in.jsonl")
    with BatchRecords(Paths.below(folder)).running(record) as running:
        running.end(Tally(), 1.0, exit_code=0)
    return output


async def test_an_item_becomes_a_message_with_its_media_and_settings(chatting: StartChat, tmp_path: Path) -> None:
    output = batch_in(tmp_path)
    async with chatting(size=(120, 40)) as chat:
        await chat.write("a draft")
        chat.app.run_action_id("batch", str(output))
        await chat.until(lambda: isinstance(chat.app.screen, BatchScreen) and bool(chat.app.screen.query(ResultRows)))
        await chat.until(lambda: len(chat.app.screen.query_one(ResultRows).table) == 3)
        await chat.pilot.press("down", "e")
        await chat.until(lambda: "several messages" in chat.notes)
        await chat.pilot.press("down", "e")
        await chat.until(lambda: "another item now" in chat.notes)
        await chat.pilot.press("home", "e")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await chat.until(lambda: QUESTION in chat.composer.text)
        (medium,) = [part for part in chat.controller.draft.parts if isinstance(part, Media)]
        assert Path(medium.attachment.path).is_relative_to(Paths.below(tmp_path).media)
        assert Path(medium.attachment.path).exists()
        assert chat.controller.settings.system_prompt == "Be brief."
        assert chat.controller.settings.sampling.temperature == 0.25
        assert chat.controller.exchanges == []


async def test_an_item_is_compared(chatting: StartChat, tmp_path: Path) -> None:
    output = batch_in(tmp_path)
    async with chatting(size=(120, 40)) as chat:
        chat.app.run_action_id("batch", str(output))
        await chat.until(lambda: isinstance(chat.app.screen, BatchScreen) and bool(chat.app.screen.query(ResultRows)))
        await chat.until(lambda: len(chat.app.screen.query_one(ResultRows).table) == 3)
        await chat.pilot.press("a")
        await chat.until(lambda: chat.app.screen.query_one(ResultRows).table.order is ResultOrder.LINE)
        await chat.pilot.press("c")
        await chat.until(lambda: isinstance(chat.app.screen, CompareScreen) and chat.app.screen.is_mounted)
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, BatchScreen) and bool(chat.app.screen.query(ResultRows)))
        rows = chat.app.screen.query_one(ResultRows)
        await chat.until(lambda: len(rows.table) == 3)
        assert rows.table.order is ResultOrder.LINE
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        assert QUESTION in chat.composer.text


async def test_a_batch_that_ended_meanwhile_is_told_once(chatting: StartChat, tmp_path: Path) -> None:
    batch_in(tmp_path)
    async with chatting() as chat:
        await chat.until(lambda: "The batch of out.jsonl has ended" in chat.notes)
    records = BatchRecords(Paths.below(tmp_path))
    assert [records.is_news(record) for record in records.all()] == [False]
