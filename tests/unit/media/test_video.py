"""The frames of a video: their choice, their times, and descriptions that are true of their pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from tests.unit.media.made import Pixels, gif, numbered, numbers, video
from vlmtui.domain.conversation import VideoSampling
from vlmtui.errors import VlmtuiError
from vlmtui.media import frames as frames_module
from vlmtui.media.describe import attachment_line
from vlmtui.media.frames import sample_frames
from vlmtui.media.stage import stage
from vlmtui.media.video import stage_video

_CODECS = {
    "a.mp4": "libx264",
    "a.mov": "libx264",
    "a.mkv": "libx264",
    "a.webm": "libvpx",
    "a.avi": "mpeg4",
    "a.ts": "libx264",
    "a.flv": "libx264",
    "a.mpg": "mpeg2video",
}


@pytest.mark.parametrize("name", _CODECS)
@pytest.mark.parametrize(
    "sampling",
    [
        None,
        VideoSampling(num_frames=1),
        VideoSampling(num_frames=16),
        VideoSampling(num_frames=4, start_s=0.5, end_s=1.5),
        VideoSampling(num_frames=500),
    ],
)
def test_frames_indices_and_times_agree(name: str, sampling: VideoSampling | None, tmp_path: Path) -> None:
    path = video(tmp_path / name, frames=53, codec=_CODECS[name])
    found = sample_frames(path, sampling)
    assert found.frames.dtype == np.uint8
    assert found.frames.shape == (len(found.indices), 48, 80, 3)
    assert numbers(found.frames) == found.indices
    assert found.times_s == pytest.approx([index / found.fps for index in found.indices], abs=0.002)
    assert (found.fps, found.total_frames) == (25.0, 53)
    assert found.duration_s == pytest.approx(53 / 25, abs=0.03)
    if sampling is None:
        assert found.indices == (0, 7, 14, 22, 29, 37, 44, 52), (
            "as vLLM's own loader: linspace over the frames, floored"
        )
    elif sampling.num_frames == 500:
        assert found.indices == tuple(range(53))
    elif sampling.start_s:
        assert found.indices == (12, 20, 29, 37)


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.png", "a.avif"])
def test_moving_pictures(name: str, tmp_path: Path) -> None:
    path = gif(tmp_path / name, frames=12)
    attachment = stage(path, tmp_path / "store")
    assert (attachment.modality, attachment.format) == ("video", name[2:].upper())
    found = sample_frames(attachment.path, VideoSampling(num_frames=4))
    assert numbers(found.frames) == found.indices == (0, 3, 7, 11)
    assert found.times_s == pytest.approx((0, 0.3, 0.7, 1.1))
    assert (found.fps, found.total_frames, found.duration_s) == pytest.approx((10.0, 12, 1.2))


def test_gif_whose_frames_last_differently(tmp_path: Path) -> None:
    path = gif(tmp_path / "a.gif", frames=4, duration_ms=[1000, 100, 100, 800])
    found = sample_frames(path, VideoSampling(num_frames=3))
    assert numbers(found.frames) == (0, 3)
    assert found.times_s == pytest.approx((0.0, 1.2))
    assert [index / found.fps for index in found.indices] == pytest.approx(found.times_s, abs=0.5 / found.fps)


def test_metadata_for_vllm(tmp_path: Path) -> None:
    found = sample_frames(video(tmp_path / "a.mp4", frames=20, rate=10), VideoSampling(num_frames=4))
    assert found.vllm_metadata() == {
        "fps": 10.0,
        "duration": pytest.approx(2.0),
        "total_num_frames": 20,
        "frames_indices": [0, 6, 12, 19],
        "video_backend": "pyav",
        "do_sample_frames": False,
    }


def test_the_stored_copy_gives_the_same_frames(tmp_path: Path) -> None:
    path = video(tmp_path / "a.mp4")
    attachment = stage(path, tmp_path / "store", sampling=VideoSampling(num_frames=5))
    stored = Path(attachment.path)
    assert stored.read_bytes() == path.read_bytes()
    assert stored.stat().st_mode & 0o777 == 0o600
    sheet, sent = sample_frames(path, attachment.sampling), sample_frames(stored, attachment.sampling)
    assert (sheet.frames == sent.frames).all() and sheet.times_s == sent.times_s
    before = stored.stat()
    stage_video(path, tmp_path / "store")
    assert stored.stat().st_ino == before.st_ino
    assert [kept for kept in (tmp_path / "store").rglob("*") if kept.is_file()] == [stored]


def test_attachment_of_a_video(tmp_path: Path) -> None:
    attachment = stage(video(tmp_path / "clip.mov", frames=105), tmp_path / "store")
    assert (attachment.width, attachment.height, attachment.fps, attachment.format) == (80, 48, 25.0, "MOV")
    assert attachment.duration_s == pytest.approx(4.2, abs=0.01)
    assert attachment.sampling == VideoSampling()
    assert attachment_line(attachment) == "clip.mov · 80 × 48 · 4.2 s · 8 frames"


def test_variable_frame_rate(tmp_path: Path) -> None:
    shown_at = [0, 1, 2, 30, 31, 60, 61, 62, 63, 64, 90]
    for name in ("v.mp4", "v.mkv"):
        path = video(tmp_path / name, frames=len(shown_at), rate=30, pts=shown_at)
        found = sample_frames(path, VideoSampling(num_frames=6))
        assert numbers(found.frames) == (0, 2, 4, 9, 10), "what is on screen at 0, 0.6, 1.2, 1.8 (again 4), 2.4, 3.0 s"
        assert found.times_s == pytest.approx([shown_at[number] / 30 for number in (0, 2, 4, 9, 10)], abs=0.002)
        assert [index / found.fps for index in found.indices] == pytest.approx(found.times_s, abs=1 / found.fps)
        assert found.total_frames > found.indices[-1]


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.avi", "a.webm"])
def test_one_frame(name: str, tmp_path: Path) -> None:
    found = sample_frames(video(tmp_path / name, frames=[numbered(5)], codec=_CODECS[name]))
    assert (numbers(found.frames), found.indices, found.times_s) == ((5,), (0,), (0.0,))
    assert found.total_frames == 1
    assert found.fps > 0 and found.duration_s > 0


def test_one_frame_gif_as_a_video(tmp_path: Path) -> None:
    found = sample_frames(gif(tmp_path / "a.gif", frames=1))
    assert (found.indices, found.times_s, found.total_frames) == ((0,), (0.0,), 1)


def test_an_unsaid_frame_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vlmtui.media import video as decoders

    monkeypatch.setattr(decoders, "_FPS_MAX", 0.0)
    found = sample_frames(video(tmp_path / "a.mp4", frames=11, rate=10), VideoSampling(num_frames=3))
    assert found.fps == pytest.approx(10.0)
    assert found.indices == (0, 5, 10)
    found = sample_frames(video(tmp_path / "a.mkv", frames=11, rate=10), VideoSampling(num_frames=3))
    assert found.fps == pytest.approx(10.0)
    assert numbers(found.frames) == found.indices == (0, 5, 10)


def _corner() -> Pixels:
    frame = np.zeros((32, 64, 3), np.uint8)
    frame[:16, :32] = 255
    return frame


@pytest.mark.parametrize(
    ("counterclockwise", "shape", "corner"),
    [(0, (32, 64), (0, 0)), (90, (64, 32), (1, 0)), (180, (32, 64), (1, 1)), (-90, (64, 32), (0, 1))],
)
def test_rotation_mark(counterclockwise: int, shape: tuple[int, int], corner: tuple[int, int], tmp_path: Path) -> None:
    path = video(tmp_path / "phone.mp4", frames=[_corner()] * 3, rotation=counterclockwise)
    attachment = stage(path, tmp_path / "store")
    frame = sample_frames(path).frames[0]
    assert frame.shape[:2] == shape == (attachment.height, attachment.width)
    height, width = shape
    top, left = corner[0] * height // 2, corner[1] * width // 2
    assert frame[top : top + height // 2, left : left + width // 2].mean() > 240
    assert frame.mean() == pytest.approx(255 / 4, abs=8)
    assert bool(attachment.notes) == (counterclockwise != 0)


def test_one_keyframe_for_the_whole_video(tmp_path: Path) -> None:
    path = video(tmp_path / "a.mp4", frames=300, gop=1000)
    found = sample_frames(path, VideoSampling(num_frames=10))
    assert numbers(found.frames) == found.indices == tuple(int(299 * k / 9) for k in range(10))


def test_a_long_video_is_sampled_by_seeking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vlmtui.media import video as decoders

    decoded: list[float] = []
    honest = decoders.ContainerVideo._decoded

    def counting(self: decoders.ContainerVideo) -> Any:
        for timed in honest(self):
            decoded.append(timed.time)
            yield timed

    monkeypatch.setattr(decoders.ContainerVideo, "_decoded", counting)
    for name in ("a.mp4", "a.mkv"):
        path = video(tmp_path / name, frames=1000, gop=10)
        decoded.clear()
        found = sample_frames(path, VideoSampling(num_frames=4))
        assert numbers(found.frames) == found.indices == (0, 333, 666, 999)
        assert len(decoded) < 100, "of 1000 frames only those between a keyframe and the wanted one"


def test_fragmented_mp4_and_one_without_lengths(tmp_path: Path) -> None:
    path = video(tmp_path / "a.mp4", frames=100, options={"movflags": "frag_keyframe+empty_moov"})
    assert sample_frames(path, VideoSampling(num_frames=3)).indices == (0, 49, 99)
    path = video(tmp_path / "live.mkv", frames=100, options={"live": "1"})
    found = sample_frames(path, VideoSampling(num_frames=3))
    assert numbers(found.frames) == found.indices == (0, 49, 99)


def test_sound_longer_than_the_picture(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as container:
        picture: Any = container.add_stream("libx264", rate=10)
        picture.width, picture.height, picture.pix_fmt = 80, 48, "yuv420p"
        sound: Any = container.add_stream("aac", rate=44100)
        for number in range(20):
            container.mux(picture.encode(av.VideoFrame.from_ndarray(numbered(number), format="rgb24")))
        container.mux(picture.encode())
        for _ in range(260):
            silence = av.AudioFrame.from_ndarray(np.zeros((2, 1024), np.float32), format="fltp", layout="stereo")
            silence.rate = 44100
            container.mux(sound.encode(silence))
        container.mux(sound.encode())
    found = sample_frames(path, VideoSampling(num_frames=3))
    assert numbers(found.frames) == found.indices == (0, 9, 19)
    assert found.duration_s == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        (VideoSampling(num_frames=0), "0 frames"),
        (VideoSampling(num_frames=100_000), "100000 frames"),
        (VideoSampling(start_s=2.0, end_s=1.0), "the end must come after the start"),
        (VideoSampling(start_s=-1.0), "is empty"),
        (VideoSampling(start_s=float("nan")), "is empty"),
        (VideoSampling(start_s=60.0), "is only 2.00 s long"),
    ],
)
def test_sampling_that_makes_no_sense(sampling: VideoSampling, words: str, tmp_path: Path) -> None:
    path = video(tmp_path / "a.mp4")
    with pytest.raises(VlmtuiError, match=words):
        stage(path, tmp_path / "store", sampling=sampling)
    with pytest.raises(VlmtuiError, match=words):
        sample_frames(path, sampling)


def test_frames_beyond_the_memory_limit_are_scaled_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "FRAMES_PIXELS_MAX", 4 * 40 * 24)
    for path in (video(tmp_path / "a.mp4"), gif(tmp_path / "a.gif")):
        assert sample_frames(path, VideoSampling(num_frames=4)).frames.shape == (4, 24, 40, 3)


def test_a_damaged_stretch_is_passed_over(tmp_path: Path) -> None:
    path = video(tmp_path / "a.ts", frames=200)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 2000] = bytes(2000)
    path.write_bytes(bytes(data))
    found = sample_frames(path, VideoSampling(num_frames=5))
    assert {0, 199} <= set(found.indices)
