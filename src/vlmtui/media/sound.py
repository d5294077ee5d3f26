"""Audio: files and the audio tracks of videos, decoded with PyAV, and waveforms drawn as images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import av
import numpy as np
import numpy.typing as npt

from vlmtui.domain.conversation import Attachment
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.content_store import store_copy
from vlmtui.media.describe import human_duration
from vlmtui.media.notes import damage, differs, ends_early, lost
from vlmtui.media.sniff import HEAD_BYTES, sniff
from vlmtui.media.video import AV_ERRORS, open_container, pictures_in, require_end
from vlmtui.reading import file_name, opened, shown_name, source_text
from vlmtui.text import counted, one_line

if TYPE_CHECKING:
    from PIL.Image import Image


BYTES_MAX = 16_000_000_000
"""Maximum file size in bytes; videos may be large."""
SECONDS_MAX = 1800
"""Maximum length in seconds. Models take from 30 seconds to some minutes, and 30 minutes are 115 MB of samples."""
RATE = 16_000
"""Samples per second if a model does not name its rate: the rate of Whisper's feature extractor and similar ones."""
CHANNELS_MAX, RATE_MAX = 64, 768_000
_BAD_PACKETS_MAX = 1000
_LABELS = {"ogg": "Ogg"}
_PROMISING = frozenset({"wav", "w64", "flac", "aiff", "caf", "mov", "matroska", "ogg"})
"""Containers whose headers state the length."""
_MP3_HEAD_BYTES = 65_536
_WHOLE = 0.99
"""A sound shorter than this share of its declared length, less _SHORT_S, has a note."""
_SHORT_S = 0.05
_FLOATS = frozenset({"flt", "fltp", "dbl", "dblp"})
_LOUD = 2.0
"""Above this peak, full scale is not 1; decoders overshoot by less."""
_CANCELLED = 0.01
"""Channels that have nothing in common leave one part in as many as they are."""
_GAINS = ("replaygain_track_gain", "r128_track_gain")

Samples = npt.NDArray[np.float32]


class SoundFacts(NamedTuple):
    """Facts of an audio track."""

    format: str
    """The container's name and the codec: `MP4, aac`."""
    rate: int
    channels: int
    promised_s: float | None
    """Seconds by the file's header; None if the format has no such thing, or libav guesses it."""
    notes: tuple[str, ...]
    """Notes on features of the file that a player may follow and the samples do not."""
    heard: _Heard
    """Filled while the frames are read."""


class _Heard:
    """Counts of the samples decoded so far, of their faults, and of the packets that could not be decoded."""

    def __init__(self, notes: tuple[str, ...]) -> None:
        self.samples = 0
        self.not_finite = 0
        self.peak = 0.0
        self.apart = 0.0
        """Sum of the squares of the channels' samples, a mean over the channels."""
        self.mixed = 0.0
        """Sum of the squares of the channels' mean."""
        self.lost_s: list[float] = []
        self._notes = notes

    def notes(self, rate: int, promised_s: float | None) -> tuple[str, ...]:
        """Return the notes once all frames are read. `promised_s`: the length by the header."""
        notes, end_s = self._notes, self.samples / rate
        if promised_s is not None and end_s < promised_s * _WHOLE - _SHORT_S:
            notes += (ends_early(promised_s, end_s),)
        notes += lost(self.lost_s, "packet", are_all=True)
        if self.not_finite:
            notes += (damage(f"{counted(self.not_finite, 'sample')} not a finite number, taken as silence"),)
        if self.mixed < _CANCELLED * self.apart:
            notes += (differs("its channels cancel each other when they are mixed into one"),)
        if self.peak > _LOUD:
            notes += (f"samples up to {self.peak:,.3g} clipped to 1, as a player does",)
        return notes


def stage_sound(path: Path, store: Path) -> Attachment:
    """Check an audio file, or a video's audio track, and store a copy of the file. Blocking: call it in a thread.

    Decodes the whole track, which is the only way to know its length. Raises VlmtuiError (BAD_INPUT) naming the file
    and the reason: no audio, damaged, or longer than SECONDS_MAX.
    """
    with opened(path, bytes_max=BYTES_MAX) as file:
        with _track(file, path) as (facts, frames):
            count = sum(frame.samples for frame in frames)
            notes = (*facts.heard.notes(facts.rate, facts.promised_s), *facts.notes)
        if not count:
            raise bad_input(f"{shown_name(path)} is cut off or damaged: none of its sound can be decoded.")
        file.seek(0)
        suffix = sniff(file.read(HEAD_BYTES)).suffix
        stored = store_copy(file, store, suffix, name=shown_name(path))
        size_bytes = file.tell()
    return Attachment(
        modality="audio",
        name=file_name(path),
        path=str(stored.path),
        sha256=stored.sha256,
        width=0,
        height=0,
        size_bytes=size_bytes,
        format=facts.format,
        notes=notes,
        duration_s=count / facts.rate,
        sample_rate=facts.rate,
        channels=facts.channels,
        source=source_text(path),
    )


def read_sound(path: Path, rate: int = RATE) -> Samples:
    """Return the audio as one channel of `rate` samples per second, `(N,) float32` from -1 to 1. Blocking. Raises
    VlmtuiError if the file is missing or damaged."""
    # The channels' mean, as vLLM takes it: libav's own mix of two is louder by the root of two.
    resampler = av.AudioResampler(format="fltp", rate=rate)
    pieces: list[Samples] = []
    with opened(path, bytes_max=BYTES_MAX) as file, _track(file, path) as (_, frames):
        for frame in chain(frames, (None,)):
            pieces += [made.to_ndarray().mean(axis=0, dtype=np.float32) for made in resampler.resample(frame)]
    return np.concatenate(pieces).clip(-1.0, 1.0) if pieces else np.zeros(0, np.float32)


def loudness(samples: Samples, columns: int) -> list[float]:
    """Return the peak amplitude in each of `columns` equal parts, 0 to 1."""
    if not len(samples) or columns < 1:
        return [0.0] * max(0, columns)
    edges = np.linspace(0, len(samples), columns + 1).astype(int)
    parts = (samples[start : max(end, start + 1)] for start, end in pairwise(edges))
    return [min(1.0, float(np.abs(part).max(initial=0.0))) for part in parts]


def has_sound_only(path: Path) -> bool:
    """Return True if a file has an audio track and no video track; a cover image does not count. False if the file
    can't be opened. Blocking."""
    try:
        with (
            opened(path, bytes_max=BYTES_MAX) as file,
            closing(open_container(file, shown_name(path))[0]) as container,
        ):
            return bool(container.streams.audio) and not pictures_in(container)
    except VlmtuiError:
        return False


@contextmanager
def _track(file: BinaryIO, path: Path) -> Iterator[tuple[SoundFacts, Iterator[av.AudioFrame]]]:
    name = shown_name(path)
    container, checked = open_container(file, name)
    with closing(container):
        if not container.streams.audio:
            require_end(file, name)
            raise bad_input(f"{name} has no sound.")
        # As players do, take the track that is marked as the default.
        chosen = av.stream.Disposition.default
        stream = min(container.streams.audio, key=lambda stream: not stream.disposition & chosen)
        if getattr(stream, "codec_context", None) is None:
            require_end(file, name)
            raise bad_input(f"{name} uses an unknown audio codec.", hint="Convert it to WAV, FLAC or MP3.")
        rate, channels = stream.codec_context.sample_rate, stream.codec_context.channels
        if not (0 < rate <= RATE_MAX and 0 < channels <= CHANNELS_MAX):
            raise bad_input(f"{name} is damaged: {channels} channels of {rate:,} samples a second.")
        container_name = container.format.name.partition(",")[0]
        label = _LABELS.get(container_name, container_name.upper())
        promised_s = None
        if container_name in _PROMISING or _has_frame_count(file, container_name):
            promised_s = float(stream.duration * stream.time_base) if stream.duration and stream.time_base else None
            if promised_s is None and container.duration and not container.streams.video:
                promised_s = container.duration / av.time_base
        tags = {key.lower(): value for key, value in (*container.metadata.items(), *stream.metadata.items())}
        gain = next((tags[key] for key in _GAINS if key in tags), None)
        told = (f"its gain tag ({one_line(gain)[:20]}) not applied",) if gain else ()
        heard = _Heard(checked.notes)
        facts = SoundFacts(f"{label}, {stream.codec_context.name}", rate, channels, promised_s, told, heard)
        yield facts, _decoded(container, stream, rate, name, heard)


def _has_frame_count(file: BinaryIO, container_name: str) -> bool:
    """Return True if an MP3 file states its length. Keeps the position, which libav needs."""
    if container_name != "mp3":
        return False
    at = file.tell()
    file.seek(0)
    head = file.read(_MP3_HEAD_BYTES)
    file.seek(at)
    return b"Xing" in head or b"Info" in head


def _decoded(container: Any, stream: Any, rate: int, name: str, heard: _Heard) -> Iterator[av.AudioFrame]:
    """Yield the frames; damaged packets are skipped and counted. Raises VlmtuiError beyond SECONDS_MAX."""
    try:
        for packet in container.demux(stream):
            is_timed = packet.pts is not None and packet.time_base
            at = float(packet.pts * packet.time_base) if is_timed else heard.samples / rate
            try:
                frames = packet.decode()
            except AV_ERRORS as error:
                heard.lost_s.append(at)
                if len(heard.lost_s) > _BAD_PACKETS_MAX:
                    raise bad_input(f"{name} is damaged: its sound cannot be decoded.", detail=str(error)) from error
                continue
            if packet.is_corrupt and container.format.name != "wav":  # there it is only shorter than others
                heard.lost_s.append(at)
            for frame in frames:
                heard.samples += frame.samples
                if heard.samples > SECONDS_MAX * rate:
                    raise bad_input(
                        f"{name} is too long: more than {human_duration(SECONDS_MAX)} of sound.",
                        hint="Cut out the part that matters.",
                    )
                yield _finite(frame, heard)
    except VlmtuiError:
        raise
    except AV_ERRORS as error:
        if not heard.samples:
            raise bad_input(f"{name} is damaged: its sound cannot be read.", detail=str(error)) from error


def _finite(frame: av.AudioFrame, heard: _Heard) -> av.AudioFrame:
    """Return the frame with silence for samples that are not finite numbers, which a resampler would spread."""
    samples, channels = frame.to_ndarray(), frame.layout.nb_channels
    if frame.format.name in _FLOATS:
        good = np.isfinite(samples)
        if not good.all():
            heard.not_finite += int(samples.size - np.count_nonzero(good))
            samples = np.where(good, samples, np.zeros((), samples.dtype))
            made = av.AudioFrame.from_ndarray(samples, format=frame.format.name, layout=frame.layout.name)
            made.rate, made.pts, made.time_base = frame.rate, frame.pts, frame.time_base
            frame = made
        heard.peak = max(heard.peak, float(np.abs(samples).max(initial=0.0)))
    if channels > 1 and samples.dtype != np.uint8:
        each = samples.reshape(-1, channels).T if not frame.format.is_planar else samples
        heard.apart += float(np.square(each, dtype=np.float64).mean(axis=0).sum())
        heard.mixed += float(np.square(each.mean(axis=0, dtype=np.float64)).sum())
    return frame


PICTURE_SIZE = (1200, 300)
_BACKGROUND, _WAVE = (24, 26, 32), (120, 190, 240)


def sound_picture(path: Path, size: tuple[int, int] = PICTURE_SIZE) -> Image:
    """Return the waveform of a file as an RGB image. Blocking. Raises VlmtuiError if the file is missing or damaged."""
    return draw_sound(read_sound(path), size)


def draw_sound(samples: Samples, size: tuple[int, int]) -> Image:
    from PIL import Image, ImageDraw

    width, height = size
    picture = Image.new("RGB", size, _BACKGROUND)
    draw = ImageDraw.Draw(picture)
    middle = (height - 1) / 2
    for x, share in enumerate(loudness(samples, width)):
        draw.line((x, middle - share * middle, x, middle + share * middle), fill=_WAVE)
    return picture
