"""The tokenizer of the scripted engine: each word with the space before it is a token; so is each special token. An id
depends only on the text. The token texts of a prompt, joined, are the prompt."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import Candidate, MediaSpan, Token, TokenLogprob, Vocabulary

IMAGE_TOKENS = 16
"""Number of tokens of every attachment in a scripted prompt."""
SPECIAL_TOKENS = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>", "<image>", "<video>",
)  # fmt: skip
PLACEHOLDERS = {
    "image": ("<image>", "<|image_pad|>"),
    "video": ("<video>", "<|video_pad|>"),
    "audio": ("<|AUDIO|>",),
}
SIZE = (112, 112)
"""Output of a scripted processor for every image: 8 × 8 patches of 14 pixels, four to a token."""

_SPECIAL = "|".join(re.escape(token) for token in SPECIAL_TOKENS)
_TOKEN = re.compile(rf"{_SPECIAL}|\s*(?:(?!{_SPECIAL})\S)+|\s+")


def tokens_of(text: str) -> list[str]:
    """Return the tokens' texts; joined, they are the text."""
    return _TOKEN.findall(text)


def token_id(text: str) -> int:
    if text in SPECIAL_TOKENS:
        return SPECIAL_TOKENS.index(text)
    return 1000 + zlib.crc32(text.encode()) % 99_991


def vocabulary_of(texts: Iterable[str]) -> Vocabulary:
    return {token_id(text): Token(text=text, special=text in SPECIAL_TOKENS) for text in texts}


def cut(text: str, count: int) -> list[str]:
    """Split the text into this many tokens: into words if there are as many, else into equal slices."""
    words = tokens_of(text)
    if len(words) == count:
        return words
    return [text[len(text) * number // count : len(text) * (number + 1) // count] for number in range(count)]


def with_media(text: str, attachments: Sequence[Attachment]) -> tuple[list[str], tuple[MediaSpan, ...]]:
    """Return the prompt's tokens, with each attachment's placeholder expanded to `IMAGE_TOKENS` tokens, and their
    spans. Attachments without a placeholder come first."""
    tokens = tokens_of(text)
    waiting = list(enumerate(attachments))
    found: list[str] = []
    spans: list[MediaSpan] = []

    def put(number: int, item: Attachment, token: str) -> None:
        spans.append(_span(item, attachments[:number], len(found)))
        found.extend([token] * IMAGE_TOKENS)

    held = sum(any(token in names for names in PLACEHOLDERS.values()) for token in tokens)
    for _ in range(max(0, len(attachments) - held)):
        number, item = waiting.pop(0)
        put(number, item, PLACEHOLDERS[item.modality][0])
    for token in tokens:
        if waiting and token in PLACEHOLDERS[waiting[0][1].modality]:
            number, item = waiting.pop(0)
            put(number, item, token)
        else:
            found.append(token)
    return found, tuple(spans)


def scripted_logprob(text: str, count: int, top: Mapping[str, float] | None) -> tuple[TokenLogprob, Vocabulary]:
    """Return a token's log-probability with alternatives, most likely first: those of `top`, or invented ones."""
    values = dict(top or {text: -0.25, f"{text}?": -1.75, f"{text}!": -3.0})
    own = values.get(text, -4.0)
    best = sorted(values, key=lambda one: -values[one])[:count]
    one = TokenLogprob(
        token_id=token_id(text),
        logprob=own,
        top=tuple(Candidate(token_id=token_id(other), logprob=values[other]) for other in best),
    )
    return one, vocabulary_of([text, *best])


def _span(item: Attachment, before: Sequence[Attachment], offset: int) -> MediaSpan:
    return MediaSpan(
        modality=item.modality,
        index=sum(other.modality == item.modality for other in before),
        offset=offset,
        length=IMAGE_TOKENS,
        tokens=IMAGE_TOKENS,
        resized=SIZE,
        grid=(1, 8, 8),
        tensors={"pixel_values": (64, 1176), "image_grid_thw": (3,)},
    )
