"""Sent frames, shown frames and their description come from one sampling."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image

from tests.unit.media.made import Pixels, gif, numbers, video
from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.errors import VlmtuiError
from vlmtui.media.frames import frames_as_images, sample_frames
from vlmtui.media.images import open_prepared
from vlmtui.media.stage import stage
from vlmtui.worker.hf.media_items import load_items

_CODECS = {"a.mp4": "libx264", "a.mov": "libx264", "a.mkv": "libx264", "a.webm": "libvpx", "a.avi": "mpeg4"}
_SAMPLINGS = (
    VideoSampling(),
    VideoSampling(num_frames=3, start_s=0.4, end_s=1.2),
    VideoSampling(fps=5),
    VideoSampling(fps=2.5, start_s=0.6, end_s=1.6),
)


def _made(name: str, folder: Path) -> Path:
    if name.endswith(".gif"):
        return gif(folder / name, frames=20)
    return video(folder / name, frames=20, rate=10, codec=_CODECS[name])


async def _sent(attachment: Attachment) -> tuple[Pixels, dict[str, object]]:
    (item,) = await load_items([attachment])
    frames, metadata = item.data
    return frames, metadata


@pytest.mark.parametrize("name", [*_CODECS, "a.gif"])
@pytest.mark.parametrize("sampling", _SAMPLINGS)
async def test_frames_and_metadata_agree(name: str, sampling: VideoSampling, tmp_path: Path) -> None:
    attachment = stage(_made(name, tmp_path), tmp_path / "store", sampling=sampling)
    sent, metadata = await _sent(attachment)
    shown = sample_frames(attachment.path, attachment.sampling)
    carried = numbers(sent)
    assert list(carried) == metadata["frames_indices"] == list(shown.indices)
    assert numbers(shown.frames) == carried
    assert list(shown.times_s) == pytest.approx([number / 10 for number in carried], abs=0.002)
    assert (metadata["fps"], metadata["total_num_frames"]) == (10.0, 20)
    assert metadata["duration"] == pytest.approx(2.0, abs=0.03) == pytest.approx(attachment.duration_s, abs=0.03)
    assert carried == sample_frames(tmp_path / name, sampling).indices
    if sampling.fps == 5:
        assert carried == tuple(range(0, 20, 2))
    if sampling.fps == 2.5:
        assert carried == (6, 10, 14)


async def test_they_agree_at_a_varying_frame_rate(tmp_path: Path) -> None:
    shown_at = [0, 1, 2, 15, 16, 30, 31, 32, 33, 45]
    for name in ("a.mp4", "a.mkv"):
        path = video(tmp_path / name, frames=len(shown_at), rate=15, pts=shown_at)
        attachment = stage(path, tmp_path / "store", sampling=VideoSampling(fps=1))
        sent, metadata = await _sent(attachment)
        shown = sample_frames(attachment.path, attachment.sampling)
        assert numbers(sent) == (0, 3, 5, 9), "what is on screen at 0, 1, 2 and 3 s"
        assert list(shown.times_s) == pytest.approx([0, 1, 2, 3], abs=0.002)
        assert metadata["frames_indices"] == list(shown.indices)


@pytest.mark.parametrize(("counterclockwise", "turns"), [(90, 1), (180, 2), (-90, 3)])
async def test_they_agree_on_a_turned_video(counterclockwise: int, turns: int, tmp_path: Path) -> None:
    path = video(tmp_path / "phone.mp4", frames=20, rate=10, rotation=counterclockwise)
    attachment = stage(path, tmp_path / "store")
    sent, metadata = await _sent(attachment)
    shown = sample_frames(attachment.path, attachment.sampling).frames
    assert sent.shape[1:3] == (attachment.height, attachment.width) == shown.shape[1:3]
    for frames in (sent, shown):
        assert list(numbers(np.rot90(frames, -turns, axes=(1, 2)))) == metadata["frames_indices"]


@pytest.mark.parametrize("sampling", _SAMPLINGS)
def test_frames_as_images_are_the_sampled_frames(sampling: VideoSampling, tmp_path: Path) -> None:
    attachment = stage(_made("a.mp4", tmp_path), tmp_path / "store", sampling=sampling)
    frames = sample_frames(attachment.path, sampling)
    images = frames_as_images(attachment, tmp_path / "store", most=100)
    assert len(images) == len(frames.frames)
    for image, pixels, time in zip(images, frames.frames, frames.times_s, strict=True):
        assert (np.asarray(open_prepared(image.path)) == pixels).all()
        assert (image.modality, image.format, image.name) == ("image", "PNG", f"a.mp4 @ {time:.2f} s")
        assert (image.width, image.height, image.source) == (80, 48, attachment.source)
        assert image.path.endswith(f"{image.sha256}.png")


def test_no_more_images_than_the_model_takes(tmp_path: Path) -> None:
    attachment = stage(_made("a.mp4", tmp_path), tmp_path / "store", sampling=VideoSampling(fps=10))
    for sampling in (VideoSampling(fps=10), VideoSampling(num_frames=20)):
        given = msgspec.structs.replace(attachment, sampling=sampling)
        images = frames_as_images(given, tmp_path / "store", most=4)
        assert [image.name for image in images] == [f"a.mp4 @ {time} s" for time in ("0.00", "0.60", "1.20", "1.90")]
    assert images[0].notes == ("frame 1 of the 4 sampled from a video",)


def test_frames_of_a_video_that_is_gone(tmp_path: Path) -> None:
    attachment = stage(_made("a.mp4", tmp_path), tmp_path / "store")
    Path(attachment.path).unlink()
    with pytest.raises(VlmtuiError, match="missing or damaged"):
        frames_as_images(attachment, tmp_path / "store", most=4)


def test_a_moving_picture_over_white(tmp_path: Path) -> None:
    clear, ink = Image.new("RGBA", (8, 8)), Image.new("RGBA", (8, 8), "red")
    clear.save(tmp_path / "a.webp", save_all=True, append_images=[ink], duration=100, lossless=True)
    attachment = stage(tmp_path / "a.webp", tmp_path / "store")
    assert (attachment.modality, attachment.notes) == ("video", ("transparency over white",))
    first, second = frames_as_images(attachment, tmp_path / "store", most=2)
    assert open_prepared(first.path).getpixel((0, 0)) == (255, 255, 255)
    assert open_prepared(second.path).getpixel((0, 0)) == (255, 0, 0)
