"""The media of a batch, until the items are answered."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from vlmtui.media.content_store import require_intact
from vlmtui.session.batch.items import MediaSource
from vlmtui.session.batch.media_desk import MediaDesk, stored_place


async def test_a_medium_stays_until_its_item_is_answered(tmp_path: Path) -> None:
    desk = MediaDesk(tmp_path / "cache", num_frames=8)
    Image.new("RGB", (32, 32), "red").save(tmp_path / "red.png")
    source = MediaSource(modality="image", place=str(tmp_path / "red.png"))
    first, second = [await desk.prepare(source) for _ in range(2)]
    desk.remove([first])
    assert not Path(first.path).exists()
    require_intact(Path(second.path))
    desk.close()
    assert not list((tmp_path / "cache" / "batches").iterdir())


def test_a_place_is_stored_without_the_secrets_of_its_address() -> None:
    assert stored_place("https://me:key@host/a.png?sig=secret#page=2") == "https://host/a.png"
    assert stored_place("/pictures/a?b@c.pdf#page=2") == "/pictures/a?b@c.pdf#page=2"
