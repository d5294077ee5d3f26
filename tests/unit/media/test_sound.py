"""Sound files and the audio tracks of videos."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.support.sounds import write_tone, write_with_pictures
from vlmtui.errors import VlmtuiError
from vlmtui.media import sound
from vlmtui.media.describe import attachment_facts
from vlmtui.media.gather import gather
from vlmtui.media.sound import loudness, read_sound
from vlmtui.media.stage import stage
from vlmtui.media.thumbnails import open_pixels, thumbnail
from vlmtui.paths import bundled


def test_a_sound_file_is_staged_with_its_facts(tmp_path: Path) -> None:
    staged = stage(write_tone(tmp_path / "tone.wav", 1.5), tmp_path / "store")
    assert (staged.modality, staged.name, staged.format) == ("audio", "tone.wav", "WAV, pcm_s16le")
    assert (staged.sample_rate, staged.channels, staged.duration_s) == (44_100, 2, 1.5)
    assert attachment_facts(staged) == "1.5 s · 44.1 kHz · 2 channels"
    assert Path(staged.path).suffix == ".wav"


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000])
def test_the_model_gets_one_channel_at_its_own_rate(tmp_path: Path, rate: int) -> None:
    samples = read_sound(write_tone(tmp_path / "tone.wav", 1.0), rate)
    assert samples.dtype == np.float32
    assert abs(len(samples) - rate) <= 32
    assert float(np.abs(samples).max()) == pytest.approx(0.5, abs=0.02)
    spectrum = np.abs(np.fft.rfft(samples))
    assert np.argmax(spectrum) * rate / len(samples) == pytest.approx(440, abs=2)


def test_the_audio_track_of_a_video_is_attached_by_choice(tmp_path: Path) -> None:
    clip = write_with_pictures(tmp_path / "clip.mp4")
    assert stage(clip, tmp_path / "store").modality == "video"
    (path,) = gather(f"{clip}#sound", base=tmp_path).paths
    staged = stage(path, tmp_path / "store")
    assert (staged.modality, staged.name, staged.sample_rate) == ("audio", "clip.mp4", 48_000)
    assert staged.duration_s == pytest.approx(1.0, abs=0.1)
    assert staged.format == "MOV, aac"


def test_a_container_without_pictures_is_a_sound(tmp_path: Path) -> None:
    assert stage(write_with_pictures(tmp_path / "said.m4a", pictures=False), tmp_path / "store").modality == "audio"
    assert stage(write_with_pictures(tmp_path / "said.mp4", pictures=False), tmp_path / "store").modality == "audio"
    assert stage(write_with_pictures(tmp_path / "said.mkv", pictures=False), tmp_path / "store").modality == "audio"


def test_a_file_without_sound_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(VlmtuiError, match=r"moving-circle\.mp4 has no sound"):
        stage(bundled("samples") / "moving-circle.mp4#sound", tmp_path / "store")


@pytest.mark.parametrize("kept", [4, 20, 44, 60])
def test_a_cut_off_or_empty_file_is_reported_by_name(tmp_path: Path, kept: int) -> None:
    whole = write_tone(tmp_path / "tone.wav").read_bytes()
    cut = tmp_path / "cut.wav"
    cut.write_bytes(whole[:kept])
    try:
        assert (stage(cut, tmp_path / "store").duration_s or 1) < 0.01
    except VlmtuiError as error:
        assert "cut.wav" in error.message


def test_a_sound_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sound, "SECONDS_MAX", 2)
    with pytest.raises(VlmtuiError, match=r"tone\.wav is too long: more than 2\.0 s"):
        stage(write_tone(tmp_path / "tone.wav", 3.0, rate=8000), tmp_path / "store")


def test_a_waveform_is_drawn_as_a_picture_and_in_cells(tmp_path: Path) -> None:
    staged = stage(write_tone(tmp_path / "tone.wav"), tmp_path / "store")
    assert thumbnail(staged, tmp_path / "cache", (320, 320)).size == (320, 80)
    assert open_pixels(staged).image(0).size == (1200, 300)
    shares = loudness(read_sound(Path(staged.path)), 5)
    assert shares == pytest.approx([0.5] * 5, abs=0.02)
    assert loudness(np.zeros(0, np.float32), 3) == [0, 0, 0]
    other = msgspec.structs.replace(staged, modality="video", sampling=None)
    assert other != staged


def test_a_file_named_as_a_sound_without_sound_is_reported(tmp_path: Path) -> None:
    (tmp_path / "fake.mp3").write_bytes(b"ID3" + bytes(500))
    with pytest.raises(VlmtuiError, match=r"fake\.mp3"):
        stage(tmp_path / "fake.mp3", tmp_path / "store")
