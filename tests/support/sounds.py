"""Makes audio files for tests."""

from __future__ import annotations

import wave
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt


def tone(seconds: float, rate: int, channels: int = 1) -> npt.NDArray[np.int16]:
    """Return a tone of 440 Hz at half amplitude, `(N, channels) int16`."""
    wave_form = np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate)) / rate) * 16_384
    return np.repeat(wave_form.astype(np.int16)[:, None], channels, axis=1)


def write_tone(path: Path, seconds: float = 1.0, rate: int = 44_100) -> Path:
    """Write a tone as WAV, with two channels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(tone(seconds, rate, 2).tobytes())
    return path


def write_with_pictures(path: Path, seconds: float = 1.0, *, pictures: bool = True) -> Path:
    """Write a video with a tone, in the container of the path's ending. Without `pictures` only its audio track."""
    import av

    kind = {".m4a": "ipod", ".mkv": "matroska"}.get(path.suffix, "mp4")
    with av.open(str(path), "w", format=kind) as container:
        video = container.add_stream("mpeg4", rate=10) if pictures else None
        audio = container.add_stream("aac", rate=48_000)
        if video is not None:
            video.width = video.height = 64
            video.pix_fmt = "yuv420p"
            for number in range(round(10 * seconds)):
                shade = np.full((64, 64, 3), number * 20 % 255, np.uint8)
                container.mux(video.encode(av.VideoFrame.from_ndarray(shade, format="rgb24")))
            container.mux(video.encode())
        samples = tone(seconds, 48_000)
        for start in range(0, len(samples), 1024):
            frame = av.AudioFrame.from_ndarray(samples[start : start + 1024, 0][None], format="s16", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 48_000, start, Fraction(1, 48_000)
            container.mux(audio.encode(frame))
        container.mux(audio.encode())
    return path
