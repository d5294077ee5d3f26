"""One-line descriptions of attachments."""

from __future__ import annotations

from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.text import counted, human_bytes


def attachment_line(attachment: Attachment) -> str:
    """Return `cat.jpg · 1280 × 720 · 340 kB`; for a video, its length and number of sampled frames; for audio, its
    length, rate and channels.

    Starts with the original file name, which is hostile text: escape it before showing.
    """
    return f"{attachment.name} · {attachment_facts(attachment)}"


def attachment_facts(attachment: Attachment) -> str:
    if attachment.modality == "audio":
        return " · ".join(_sound_facts(attachment))
    parts = [f"{attachment.width} × {attachment.height}"]
    if attachment.modality == "video":
        if attachment.duration_s is not None:
            parts.append(human_duration(attachment.duration_s))
        if attachment.sampling is not None:
            parts.append(_sampled(attachment.sampling))
    else:
        parts.append(human_bytes(attachment.size_bytes))
    return " · ".join(parts)


def _sound_facts(attachment: Attachment) -> list[str]:
    parts = [human_duration(attachment.duration_s or 0.0)]
    if attachment.sample_rate is not None:
        parts.append(f"{attachment.sample_rate / 1000:g} kHz")
    if attachment.channels is not None:
        parts.append("mono" if attachment.channels == 1 else f"{attachment.channels} channels")
    return parts


def _sampled(sampling: VideoSampling) -> str:
    if sampling.fps is not None:
        return f"{sampling.fps:g} frames per second"
    return counted(sampling.num_frames, "frame")


def human_duration(seconds: float) -> str:
    """Return a duration for people: `4.2 s`, `3:07`, `2:00:05`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def clock(seconds: float) -> str:
    """Return a time in a video: `1.25 s`, `1:02.50`, `1:00:05.00`."""
    hundredths = round(seconds * 100)
    if hundredths < 6000:
        return f"{hundredths / 100:.2f} s"
    minutes, rest = divmod(hundredths, 6000)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}:{minutes:02}" if hours else f"{minutes}") + f":{rest / 100:05.2f}"
