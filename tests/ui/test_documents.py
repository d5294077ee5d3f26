"""Pages of a document in a message."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from tests.ui.conftest import StartChat


async def test_chosen_pages_are_attached_in_their_order(chatting: StartChat, tmp_path: Path) -> None:
    pages = [Image.new("RGB", (40, 20), colour) for colour in ("red", "green", "blue")]
    pages[0].save(tmp_path / "paper.pdf", save_all=True, append_images=pages[1:])
    async with chatting() as chat:
        await chat.send(f"/attach {tmp_path}/paper.pdf#page=2-3")
        await chat.until(lambda: len(chat.controller.draft.tokens) == 2)
        await chat.until(lambda: all(token.attachment for token in chat.controller.draft.tokens))
        names = [token.attachment.name for token in chat.controller.draft.tokens if token.attachment]
        assert names == ["paper.pdf (page 2)", "paper.pdf (page 3)"]
        await chat.send(f"/attach {tmp_path}/paper.pdf#page=4")
        await chat.until(lambda: "paper.pdf has no page 4: there are 3." in chat.notes)
        (tmp_path / "cut.pdf").write_bytes((tmp_path / "paper.pdf").read_bytes()[:-9])
        await chat.send(f"/attach {tmp_path}/cut.pdf")
        await chat.until(lambda: "cut.pdf: damaged: the end of the document is missing" in chat.notes)
