"""Sampling by frames a second, and pixels that are not square."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

from tests.unit.media.made import numbered, numbers, video
from vlmtui.domain.conversation import VideoSampling
from vlmtui.errors import VlmtuiError
from vlmtui.media.describe import attachment_line
from vlmtui.media.frames import sample_frames
from vlmtui.media.sampling import VideoFacts, target_times
from vlmtui.media.stage import stage
from vlmtui.media.thumbnails import thumbnail

_FACTS = VideoFacts(format="MP4", suffix=".mp4", width=8, height=8, fps=10.0, last_s=9.9, total_frames=100)


@pytest.mark.parametrize(
    ("sampling", "times"),
    [
        (VideoSampling(fps=0.5), [0, 2, 4, 6, 8]),
        (VideoSampling(fps=0.5, num_frames=3), [0, 2, 4, 6, 8]),
        (VideoSampling(fps=2, start_s=1, end_s=2), [1, 1.5, 2]),
        (VideoSampling(fps=3, start_s=9), [9, 9 + 1 / 3, 9 + 2 / 3]),
        (VideoSampling(fps=10, start_s=9.7), [9.7, 9.8, 9.9]),
        (VideoSampling(fps=1, start_s=8, end_s=12), [8, 9]),
        (VideoSampling(fps=1 / 9.95), [0, 9.9]),
        (VideoSampling(fps=0.01), [0]),
        (VideoSampling(fps=1e-320), [0]),
        (VideoSampling(fps=7, start_s=9.95), [9.9]),
    ],
)
def test_times_at_a_rate(sampling: VideoSampling, times: list[float]) -> None:
    found = target_times(_FACTS, sampling, "a.mp4")
    assert found == pytest.approx(times)
    assert max(found) <= _FACTS.last_s


@pytest.mark.parametrize(
    ("fps", "words"),
    [
        (0.0, "Can't sample 0 frames per second of a.mp4"),
        (-1.0, "above 0"),
        (float("nan"), "nan frames per second"),
        (float("inf"), "inf frames per second"),
        (1000.0, "1000 frames per second of a.mp4 is too many: more than 4096 in 10.0 s"),
        (1e308, "too many"),
    ],
)
def test_a_rate_that_makes_no_sense(fps: float, words: str, tmp_path: Path) -> None:
    with pytest.raises(VlmtuiError, match=words):
        target_times(_FACTS, VideoSampling(fps=fps), "a.mp4")


def test_a_rate_is_refused_when_staging(tmp_path: Path) -> None:
    with pytest.raises(VlmtuiError, match=r"clip\.mp4 is too many"):
        stage(video(tmp_path / "clip.mp4"), tmp_path / "store", sampling=VideoSampling(fps=5000))


def test_a_rate_above_the_videos_own_gives_every_frame_once(tmp_path: Path) -> None:
    found = sample_frames(video(tmp_path / "a.mp4", frames=20), VideoSampling(fps=90))
    assert numbers(found.frames) == found.indices == tuple(range(20))
    found = sample_frames(tmp_path / "a.mp4", VideoSampling(fps=25))
    assert found.indices == tuple(range(20))


def test_facts_and_thumbnail_of_a_video_sampled_at_a_rate(tmp_path: Path) -> None:
    path = video(tmp_path / "a.mp4", frames=20, rate=10)
    attachment = stage(path, tmp_path / "store", sampling=VideoSampling(fps=0.5))
    assert attachment_line(attachment) == "a.mp4 · 80 × 48 · 2.0 s · 0.5 frames per second"
    assert thumbnail(attachment, tmp_path / "cache", (40, 40)).size == (40, 24)


@pytest.mark.parametrize(("ratio", "size"), [(Fraction(2), (160, 48)), (Fraction(1, 2), (80, 96)), (None, (80, 48))])
@pytest.mark.parametrize("name", ["a.mp4", "a.mkv"])
def test_oblong_pixels_are_stretched(name: str, ratio: Fraction | None, size: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / name
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 80, 48, "yuv420p"
        if ratio is not None:
            stream.codec_context.sample_aspect_ratio = ratio
        for number in range(10):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(numbered(number), format="rgb24")))
        container.mux(stream.encode())
    attachment = stage(path, tmp_path / "store")
    found = sample_frames(attachment.path, VideoSampling(num_frames=4))
    assert (attachment.width, attachment.height) == size == (found.frames.shape[2], found.frames.shape[1])
    assert attachment.notes == (("stretched from 80 × 48 to square pixels",) if ratio else ())
    assert numbers(found.frames) == found.indices == (0, 3, 6, 9)
