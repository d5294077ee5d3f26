"""Turns of a conversation with their attachments, and the forms of a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

Modality = Literal["image", "video", "audio"]


class VideoSampling(msgspec.Struct, frozen=True, kw_only=True):
    """The frames of a video that the model gets, evenly spaced from start to end.

    Either `num_frames` frames, or, if `fps` is set, that many frames per second of video; then `num_frames` is ignored.
    """

    num_frames: int = 8
    fps: float | None = None
    start_s: float = 0.0
    end_s: float | None = None
    """None: to the end of the video."""


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """An image, video or audio file of a conversation.

    `path` is the stored copy, named by its content hash. It never changes: the preview and the model both use it.
    """

    modality: Modality
    name: str
    """The original file name. Hostile text: may contain markup or control characters."""
    path: str
    sha256: str
    """Hex digest of the bytes at `path`."""
    width: int
    """Pixels, after rotation by EXIF; 0 for audio."""
    height: int
    size_bytes: int
    """Size of the original file in bytes."""
    format: str
    """`JPEG`, `PNG`, … for images; the container for videos (`MP4`); container and codec for audio (`WAV,
    pcm_s16le`)."""
    notes: tuple[str, ...] = ()
    """Changes made to the image when it was attached (`turned upright by EXIF`, `transparency over white`), for
    display."""
    duration_s: float | None = None
    fps: float | None = None
    sampling: VideoSampling | None = None
    """Set for videos only."""
    sample_rate: int | None = None
    """Samples per second in the file; set for audio only."""
    channels: int | None = None
    """Number of channels in the file; set for audio only."""
    source: str = ""
    """Where the file came from: an absolute path or a URL. Hostile text, for display only."""
    page: int = 1
    """Page of a multi-page document (TIFF), from 1."""
    scaled_from: tuple[int, int] | None = None
    """Width and height before the app or the user first shrank the image; None if it was not shrunk."""
    pages: int = 1
    """Number of pages in the file, or of frames for an animation attached as a still image."""


Role = Literal["system", "user", "assistant"]


class Text(msgspec.Struct, frozen=True, tag="text"):
    text: str


class Media(msgspec.Struct, frozen=True, tag="media"):
    """An attachment at its place among the texts of a message."""

    attachment: Attachment


Part = Text | Media


class Turn(msgspec.Struct, frozen=True):
    """One message: its role and its parts in order."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All text of the turn, without the attachments."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The turn's attachments, in order."""
        return tuple(part.attachment for part in self.parts if isinstance(part, Media))


def user_turn(text: str, attachments: Iterable[Attachment] = ()) -> Turn:
    """Return a user turn with the attachments before the text, the order most families were trained on."""
    return Turn("user", (*(Media(item) for item in attachments), Text(text)))


def assistant_turn(text: str) -> Turn:
    return Turn("assistant", (Text(text),))


def system_turn(text: str) -> Turn:
    return Turn("system", (Text(text),))


def with_changed_media(parts: Iterable[Part], change: Callable[[Attachment], Attachment | None]) -> tuple[Part, ...]:
    """Return the parts with `change` applied to every attachment. An attachment for which it returns None is left
    out."""
    found: list[Part] = []
    for part in parts:
        if not isinstance(part, Media):
            found.append(part)
        elif (new := change(part.attachment)) is not None:
            found.append(Media(new))
    return tuple(found)


def all_attachments(turns: Iterable[Turn]) -> tuple[Attachment, ...]:
    """Return all attachments of the turns, in prompt order."""
    return tuple(item for turn in turns for item in turn.attachments)


class ChatPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="chat"):
    """Turns to render with a chat template."""

    turns: tuple[Turn, ...]
    chat_template: str | None = None
    """Jinja source to use instead of the model's own template."""
    fallback_template: str | None = None
    """Jinja source to use if the model has no template."""


class RawPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="raw"):
    """A prompt text with placeholders, and the attachments in the order of their placeholders."""

    text: str
    attachments: tuple[Attachment, ...] = ()


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message for a chat template: a text with placeholders, or a list of parts."""

    role: Role
    content: str | tuple[dict[str, object], ...]


class MessagesPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="messages"):
    """Messages that the worker renders with a chat template, and then treats as a `RawPrompt`."""

    messages: tuple[Message, ...]
    by: Literal["tokenizer", "processor"]
    chat_template: str | None = None
    attachments: tuple[Attachment, ...] = ()
    """The attachments, in the order of their placeholders."""

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The messages as turns. A part that is no text stands for the next attachment."""
        left = iter(self.attachments)

        def part(given: dict[str, object]) -> Part:
            return Text(str(given.get("text", ""))) if given.get("type") == "text" else Media(next(left))

        return tuple(
            Turn(
                one.role,
                (Text(one.content),) if isinstance(one.content, str) else tuple([part(given) for given in one.content]),
            )
            for one in self.messages
        )


Prompt = ChatPrompt | RawPrompt | MessagesPrompt


def attachments_of(prompt: Prompt) -> tuple[Attachment, ...]:
    """Return the prompt's attachments in the order of their placeholders."""
    return all_attachments(prompt.turns) if isinstance(prompt, ChatPrompt) else prompt.attachments


def with_attachments(prompt: Prompt, change: Callable[[Attachment], Attachment]) -> Prompt:
    """Return the prompt with `change` applied to every attachment."""
    if not isinstance(prompt, ChatPrompt):
        return msgspec.structs.replace(prompt, attachments=tuple(change(item) for item in prompt.attachments))
    turns = tuple(Turn(turn.role, with_changed_media(turn.parts, change)) for turn in prompt.turns)
    return msgspec.structs.replace(prompt, turns=turns)
