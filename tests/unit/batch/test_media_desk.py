"""The copies of a batch's media, until the items are answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

from PIL import Image

from vlmtui.media.content_store import require_intact
from vlmtui.session.batch.items import MediaSource
from vlmtui.session.batch.media_desk import MediaDesk


async def test_a_copy_stays_as_long_as_an_item_uses_it(tmp_path: Path) -> None:
    desk = MediaDesk(tmp_path / "cache", num_frames=8)
    sources = []
    for name in ("red", "blue"):
        Image.new("RGB", (32, 32), name).save(tmp_path / f"{name}.png")
        sources.append(MediaSource(modality="image", place=str(tmp_path / f"{name}.png")))
    red, blue = sources
    first, second, other = [await desk.prepare(one, desk.content(one)) for one in (red, red, blue)]
    path = Path(first.attachment.path)
    assert second is first and Path(other.attachment.path).parent != path.parent
    await desk.release([first, other])
    require_intact(path)
    assert not Path(other.attachment.path).exists()
    await desk.release([second])
    assert not path.exists()
    desk.close()
    assert not list((tmp_path / "cache" / "batches").iterdir())


async def test_items_that_come_at_once_share_a_copy(tmp_path: Path) -> None:
    desk = MediaDesk(tmp_path / "cache", num_frames=8)
    Image.new("RGB", (32, 32), "red").save(tmp_path / "a.png")
    source = MediaSource(modality="image", place=str(tmp_path / "a.png"))
    copies = await asyncio.gather(*(desk.prepare(source, desk.content(source)) for _ in range(4)))
    assert len(set(map(id, copies))) == 1 and copies[0].users == 4
    desk.close()
