"""The copies of a batch's media, for as long as answers need them."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from vlmtui.media.content_store import require_intact
from vlmtui.session.batch.item import MediaSource
from vlmtui.session.batch.media_desk import MediaDesk


async def test_copies_lie_side_by_side_and_all_go(tmp_path: Path) -> None:
    """A folder for each first byte of a hash, as conversations have it, takes as long to remove as many items."""
    desk = MediaDesk(tmp_path / "cache", num_frames=8)
    copies = []
    for number in range(20):
        picture = tmp_path / f"{number}.png"
        Image.new("RGB", (32, 32), (number, 0, 0)).save(picture)
        copies.append(await desk.prepare(MediaSource(modality="image", place=str(picture))))
    assert len({Path(copy.path).parent for copy in copies}) == 1
    assert len({copy.sha256[:2] for copy in copies}) > 1
    for copy in copies:
        require_intact(Path(copy.path))
    desk.close()
    assert not list((tmp_path / "cache" / "batches").iterdir())


async def test_a_copy_stays_as_long_as_an_item_uses_it(tmp_path: Path) -> None:
    """Unused ones are kept for the next items, the latest 64 of them."""
    desk = MediaDesk(tmp_path / "cache", num_frames=8)
    sources = []
    for number in range(100):
        picture = tmp_path / f"{number}.png"
        Image.new("RGB", (8, 8), (number, 0, 0)).save(picture)
        sources.append(MediaSource(modality="image", place=str(picture)))
    copies = [await desk.prepare(source) for source in sources]
    assert (await desk.prepare(sources[0])).path == copies[0].path
    desk.release(copies)
    there = [Path(copy.path).exists() for copy in copies]
    assert (there[0], there[1], sum(there)) == (True, False, 65)
    desk.close()
