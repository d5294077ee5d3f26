"""Requests to a server: messages with media, sampling parameters."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.domain.conversation import Text, Turn
from vlmtui.domain.prompt import MessagesPrompt, RawPrompt
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.reading import read_whole

_FILE_MAX = 500_000_000
_VERBATIM = "{{ raw }}"
"""A chat template that writes a raw prompt as it is."""
_FROM_MESSAGES = "{%- set messages = raw_messages -%}"
"""Before a chat template, has it write other messages than the chat's own, which carry the media."""
_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp", b"GIF8": "image/gif"}


class MediaPart(msgspec.Struct, frozen=True):
    """An image, video or sound as a server takes it."""

    modality: str
    url: str | None
    """A data URL: an image's file, a video's frames as PNG files, which lose nothing, or a sound as WAV: one channel,
    16,000 samples a second, 16 bits. None: the server has it."""
    uuid: str
    """Identifies the content in the server's cache; empty for a server that takes none."""
    frames: dict[str, object] | None = None
    """Of a video: when its frames are, for servers that take it (`media_io_kwargs`)."""

    @property
    def part(self) -> dict[str, Any]:
        """As a part of a chat message."""
        kind = f"{self.modality}_url"
        part: dict[str, Any] = {"type": kind, kind: {"url": self.url} if self.url is not None else None}
        return {**part, "uuid": self.uuid} if self.uuid else part

    @property
    def content_part(self) -> dict[str, Any]:
        """As a part of a request by token ids."""
        return {"type": f"{self.modality}_url", "url": self.url, "uuid": self.uuid}


async def read_media(attachments: Sequence[Attachment]) -> list[MediaPart]:
    """Read all attachments one after another; the order is kept. Raises VlmtuiError naming the unreadable file."""
    return [await asyncio.to_thread(_read, attachment) for attachment in attachments]


def messages_of(turns: Sequence[Turn], media: Sequence[MediaPart]) -> list[dict[str, Any]]:
    """Return the turns as messages; media are taken in order."""
    left = iter(media)
    return [_message(turn, left) for turn in turns]


def raw_chat(prompt: RawPrompt | MessagesPrompt, media: Sequence[MediaPart], own_template: str) -> dict[str, Any]:
    """Return the fields of a chat whose template writes the raw prompt: as it is, or from the messages given beside the
    chat's own. The prompt's tokens begin as those of any raw prompt do, with the tokenizer's own BOS token.

    own_template: the model's. Raises VlmtuiError(NO_CHAT_TEMPLATE) if messages need it and the server tells none.
    """
    given: dict[str, object]
    if isinstance(prompt, RawPrompt):
        template, given = _VERBATIM, {"raw": prompt.text}
    else:
        written_by = prompt.chat_template or own_template
        if not written_by:
            message = "The model's chat template is not known, so the raw prompt can't be written."
            raise VlmtuiError(ErrorKind.NO_CHAT_TEMPLATE, message, hint="Write the raw prompt yourself.")
        template, given = _FROM_MESSAGES + written_by, {"raw_messages": msgspec.to_builtins(prompt.messages)}
    return {
        "messages": [{"role": "user", "content": [one.part for one in media]}],
        "chat_template": template,
        "chat_template_kwargs": given,
        "add_special_tokens": True,
    }


def sampling_body(sampling: Sampling, stop_token_ids: Sequence[int]) -> dict[str, Any]:
    """Return the sampling parameters by vLLM's names; what is left out is the server's own default."""
    names = (
        "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
        "max_tokens", "seed",
    )  # fmt: skip
    body: dict[str, Any] = {name: value for name in names if (value := getattr(sampling, name)) is not None}
    body["skip_special_tokens"] = sampling.skip_special_tokens
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if stop_token_ids:
        body["stop_token_ids"] = list(stop_token_ids)
    return {**body, **sampling.extra}


def _message(turn: Turn, left: Iterator[MediaPart]) -> dict[str, Any]:
    if not turn.attachments:
        return {"role": turn.role, "content": turn.text}
    parts = [{"type": "text", "text": part.text} if isinstance(part, Text) else next(left).part for part in turn.parts]
    return {"role": turn.role, "content": parts}


def _read(attachment: Attachment) -> MediaPart:
    if attachment.modality == "image":
        content = read_whole(Path(attachment.path), bytes_max=_FILE_MAX)
        kind = next((name for head, name in _TYPES.items() if content.startswith(head)), "image/png")
        return MediaPart("image", f"data:{kind};base64,{base64.b64encode(content).decode()}", attachment.sha256)
    return _sound(attachment) if attachment.modality == "audio" else _video(attachment)


def _sound(attachment: Attachment) -> MediaPart:
    import hashlib
    import wave

    from vlmtui.media.sound import RATE, read_sound

    samples = (read_sound(Path(attachment.path)) * 32767).round().clip(-32768, 32767).astype("<i2")
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())
    uuid = hashlib.sha256(f"{attachment.sha256} sound".encode()).hexdigest()
    return MediaPart("audio", f"data:audio/wav;base64,{base64.b64encode(written.getvalue()).decode()}", uuid)


def _video(attachment: Attachment) -> MediaPart:
    import hashlib

    from PIL import Image

    from vlmtui.media.frames import sample_frames

    sampling = attachment.sampling or VideoSampling()
    found = sample_frames(Path(attachment.path), sampling)
    pictures: list[str] = []
    for frame in found.frames:
        written = io.BytesIO()
        Image.fromarray(frame).save(written, "PNG", compress_level=1)
        pictures.append(base64.b64encode(written.getvalue()).decode())
    uuid = hashlib.sha256(attachment.sha256.encode() + msgspec.json.encode(sampling)).hexdigest()
    times = {
        "fps": found.fps,
        "frames_indices": list(found.indices),
        "total_num_frames": found.total_frames,
        "duration": found.duration_s,
    }
    return MediaPart("video", f"data:video/jpeg;base64,{','.join(pictures)}", uuid, times)
