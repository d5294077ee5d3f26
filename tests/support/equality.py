"""Compares two engines that should be the same: sends prompts of all kinds and compares the reports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Protocol

from tests.support.pictures import Easel
from vlmtui.domain.conversation import Attachment, ChatPrompt, Prompt, RawPrompt, assistant_turn, system_turn, user_turn
from vlmtui.domain.generation import (
    Delta,
    EngineEvent,
    Failed,
    Finished,
    GenerateRequest,
    PromptReady,
    Request,
    TokenLogprob,
)
from vlmtui.domain.sampling import Sampling

LOGPROB_MAX = 1e-3
"""Maximum difference of equal log-probabilities: requests that run together are summed in another order."""


class Answering(Protocol):
    """The part of a worker's engine, or of a connection to it, that answers requests."""

    def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]: ...


class Report:
    """An engine's events for a request."""

    def __init__(self) -> None:
        self.prompt: PromptReady | None = None
        self.text = ""
        self.ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.end: Finished | None = None
        self.failure: Failed | None = None

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        return self.prompt.token_ids if self.prompt else ()

    @property
    def places(self) -> list[tuple[str, int, int, int]]:
        """Modality, number, offset and length of each media item in the prompt."""
        media = self.prompt.media if self.prompt else ()
        return [(span.modality, span.index, span.offset, span.length) for span in media]


async def report_of(engine: Answering, prompt: Prompt, number: int) -> Report:
    """Request 40 tokens with their log-probabilities, and return the events."""
    found = Report()
    asked = GenerateRequest(request_id=f"r{number}", prompt=prompt, sampling=Sampling(max_tokens=40), logprobs=2)
    async for event in engine.generate(asked):
        match event:
            case PromptReady():
                found.prompt = event
            case Delta():
                found.text += event.text
                found.ids += event.token_ids
                found.logprobs += event.logprobs
            case Finished():
                found.end = event
            case Failed():
                found.failure = event
    return found


def compare(here: Report, there: Report) -> dict[str, bool]:
    """Return for each part of two reports whether it is the same. Missing parts count as different."""
    is_whole = all((one.prompt_ids, one.ids, one.end) for one in (here, there))
    return {
        "prompt ids": is_whole and here.prompt_ids == there.prompt_ids,
        "prompt": here.prompt is not None and there.prompt is not None and here.prompt.prompt == there.prompt.prompt,
        "media": is_whole and here.places == there.places,
        "answer ids": is_whole and here.ids == there.ids,
        "answer": is_whole and here.text == there.text,
        "log-probabilities": is_whole and logprob_difference(here, there) < LOGPROB_MAX,
        "end": here.end is not None and there.end is not None and here.end.stop == there.end.stop,
    }


def logprob_difference(here: Report, there: Report) -> float:
    """Return the largest difference of a sampled token's log-probability; infinite if the tokens differ. Alternatives
    are not compared, since improbable ones change places."""
    one, other = here.logprobs, there.logprobs
    if not one or [a.token_id for a in one] != [b.token_id for b in other]:
        return float("inf")
    return max(abs(a.logprob - b.logprob) for a, b in zip(one, other, strict=True))


def prompts(folder: Path) -> Iterator[tuple[str, Prompt]]:
    """Return chats and raw prompts, by name, with images and videos in `folder`."""
    easel = Easel(folder)
    names = ("red", "green", "blue", "yellow")
    shapes = (("circle", "center"), ("square", "left"))
    pictures = [easel.picture((colour, shape, place)).attachment for shape, place in shapes for colour in names]
    clip = easel.clip("red", "circle", "left").attachment
    for number, picture in enumerate(pictures, 1):
        yield f"1 image ({number})", chat("What is in this image?", picture)
        yield f"1 image ({number}), raw", raw("What is in this image?", picture)
    yield "2 images", chat("What is different?", *pictures[:2])
    yield "2 images, raw", raw("What is different?", *pictures[:2])
    yield "8 images", chat("How many images are there?", *pictures)
    yield "8 images, raw", raw("How many images are there?", *pictures)
    yield "video", chat("What moves?", clip)
    yield "video, raw", raw("What moves?", clip)
    yield "video and image", chat("What is this?", clip, pictures[0])
    yield "image and video, raw", raw("What is this?", pictures[0], clip)
    for text in ("Hello!", "What can you do?", "naïve café ✓ 日本語", "  spaces  ", "x" * 300):
        yield f"text {text.strip()[:9]!r}", chat(text)
        yield f"text {text.strip()[:9]!r}, raw", raw(text)
    system = system_turn("Be brief.")
    first = (user_turn("Look.", pictures[:1]), assistant_turn("A red circle."))
    yield "system", ChatPrompt(turns=(system, user_turn("What is in this image?", pictures[:1])))
    yield "image in turn 2", ChatPrompt(turns=(*first, user_turn("And this one?", pictures[1:2])))
    yield "prefill", raw("What is in this image?", pictures[0], begun="A green")
    yield (
        "ends with an answer",
        ChatPrompt(turns=(user_turn("What is in this image?", pictures[:1]), assistant_turn("A green"))),
    )
    yield "system, image in turn 1 of 2", ChatPrompt(turns=(system, *first, user_turn("What colour was it?")))


def chat(text: str, *media: Attachment) -> ChatPrompt:
    return ChatPrompt(turns=(user_turn(text, media),))


def raw(text: str, *media: Attachment, begun: str = "") -> RawPrompt:
    pads = "".join(f"<|vision_start|><|{one.modality}_pad|><|vision_end|>" for one in media)
    return RawPrompt(
        text=f"<|im_start|>user\n{pads}{text}<|im_end|>\n<|im_start|>assistant\n{begun}", attachments=tuple(media)
    )
