"""The copies of a batch's media, until the items are answered."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from vlmtui.domain.attachment import Attachment
from vlmtui.media.content_store import require_intact
from vlmtui.session.batch.item import MediaSource
from vlmtui.session.batch.media_desk import MediaDesk


async def test_the_copies_of_an_item_lie_side_by_side_and_go_with_it(tmp_path: Path) -> None:
    """A folder for each first byte of a hash, as conversations have it, takes as long to remove as many items."""
    desk = MediaDesk(tmp_path / "cache", num_frames=8)
    sources = []
    for number in range(20):
        picture = tmp_path / f"{number}.png"
        Image.new("RGB", (32, 32), (number, 0, 0)).save(picture)
        sources.append(MediaSource(modality="image", place=str(picture)))
    first: list[Attachment] = []
    second: list[Attachment] = []
    await desk.prepare(sources, first)
    await desk.prepare(sources[:1], second)
    assert len({Path(copy.path).parent for copy in first}) == 1
    assert len({copy.sha256[:2] for copy in first}) > 1
    desk.release(first)
    assert not any(Path(copy.path).exists() for copy in first)
    require_intact(Path(second[0].path))
    desk.close()
    assert not list((tmp_path / "cache" / "batches").iterdir())
