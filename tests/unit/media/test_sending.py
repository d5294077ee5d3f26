"""Between attaching and sending the stored copy counts, and its changes are reported."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from tests.unit.media.made import corners, numbered, video
from vlmtui import files
from vlmtui.domain.conversation import Attachment
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.media.stage import stage
from vlmtui.worker.hf.media_items import load_items


def _both(folder: Path) -> tuple[Path, Path]:
    corners().save(folder / "a.png")
    return folder / "a.png", video(folder / "a.mp4")


async def _send(attachment: Attachment) -> np.ndarray:
    (item,) = await load_items([attachment])
    return np.asarray(item.data if attachment.modality == "image" else item.data[0])


@pytest.mark.parametrize("number", [0, 1])
async def test_the_file_may_change_or_vanish(number: int, tmp_path: Path) -> None:
    path = _both(tmp_path)[number]
    attachment = stage(path, tmp_path / "store")
    before = await _send(attachment)
    path.write_bytes(b"something else")
    assert (await _send(attachment) == before).all()
    path.unlink()
    assert (await _send(attachment) == before).all()
    assert Path(attachment.path).stem == attachment.sha256


@pytest.mark.parametrize("number", [0, 1])
async def test_a_stored_copy_that_is_gone(number: int, tmp_path: Path) -> None:
    attachment = stage(_both(tmp_path)[number], tmp_path / "store")
    await _send(attachment)
    Path(attachment.path).unlink()
    with pytest.raises(VlmtuiError, match=f"The stored copy {attachment.sha256}.* is missing or damaged") as caught:
        await _send(attachment)
    assert (caught.value.kind, caught.value.hint) == (ErrorKind.BAD_INPUT, "Attach the file again.")


@pytest.mark.parametrize("number", [0, 1])
async def test_a_stored_copy_that_was_replaced_by_another_picture(number: int, tmp_path: Path) -> None:
    attachment = stage(_both(tmp_path)[number], tmp_path / "store")
    await _send(attachment)
    corners((640, 480)).save(tmp_path / "other.png")
    other = (tmp_path / "other.png", video(tmp_path / "other.mp4", frames=[numbered(9)] * 20))[number]
    Path(attachment.path).write_bytes(other.read_bytes())
    with pytest.raises(VlmtuiError, match="was changed after it was attached") as caught:
        await _send(attachment)
    assert attachment.path in caught.value.hint


async def test_one_changed_byte_is_noticed(tmp_path: Path) -> None:
    attachment = stage(_both(tmp_path)[1], tmp_path / "store")
    data = bytearray(Path(attachment.path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(attachment.path).write_bytes(bytes(data))
    with pytest.raises(VlmtuiError, match="changed after it was attached"):
        await _send(attachment)


async def test_a_stored_copy_that_became_a_pipe_does_not_block(tmp_path: Path) -> None:
    for path in _both(tmp_path):
        attachment = stage(path, tmp_path / "store")
        Path(attachment.path).unlink()
        os.mkfifo(attachment.path)
        with pytest.raises(VlmtuiError, match="missing or damaged"):
            await _send(attachment)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("number", [0, 1])
def test_disk_full_in_the_midst_of_storing(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, store = _both(tmp_path)[number], tmp_path / "store"
    honest = files._open_unfinished

    def full(folder: Path) -> tuple[int, Path]:
        descriptor, path = honest(folder)
        os.close(descriptor)
        return os.open("/dev/full", os.O_WRONLY), path

    monkeypatch.setattr(files, "_open_unfinished", full)
    with pytest.raises(VlmtuiError, match=rf"write {path.name}: the disk is full") as caught:
        stage(path, store)
    assert os.strerror(errno.ENOSPC) in caught.value.detail
    assert not [left for left in store.rglob("*") if not left.is_dir()], "no partial file is left"
    monkeypatch.undo()
    assert Path(stage(path, store).path).is_file()


@pytest.mark.parametrize("number", [0, 1])
def test_a_file_still_being_written(number: int, tmp_path: Path) -> None:
    path, store = _both(tmp_path)[number], tmp_path / "store"
    data = path.read_bytes()
    for there in (0, len(data) // 3, len(data) * 9 // 10):
        path.write_bytes(data[:there])
        with pytest.raises(VlmtuiError, match=path.name) as caught:
            stage(path, store)
        assert "still being written" in caught.value.hint
    path.write_bytes(data)
    assert Path(stage(path, store).path).is_file()


def test_a_video_that_grows_while_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _both(tmp_path)[1]
    honest = files._open_unfinished

    def growing(folder: Path) -> tuple[int, Path]:
        with path.open("ab") as file:
            file.write(b"more")
        return honest(folder)

    monkeypatch.setattr(files, "_open_unfinished", growing)
    with pytest.raises(VlmtuiError, match=r"a\.mp4 changed while it was being read"):
        stage(path, tmp_path / "store")
