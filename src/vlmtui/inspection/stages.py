"""Compare two engines' results for a request (or recorded results) stage by stage, to find where they first differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from enum import StrEnum

import msgspec

from vlmtui.domain.conversation import Modality
from vlmtui.domain.generation import MediaSpan, SeenMedium, TokenLogprob
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.pixel_values import PixelDifference, PixelStep, compare_values, read_pixel_values
from vlmtui.inspection.sequence_diff import common_start
from vlmtui.text import nats

LIKELY = 1e-3
"""Tokens with a smaller probability on both sides are not compared."""
_SHOWN = 24
"""The characters of each side that a message shows."""
_MARK = -1
"""Replaces an attachment's tokens when the tokens of the text are compared."""


_PIXELS = 1e-3
"""The largest difference of normalised pixel values that counts as equal: less than a tenth of one level of 8 bits."""
_CLOSE = {"float32": (1e-4, 1e-6), "float16": (5e-3, 5e-3), "bfloat16": (1e-2, 1e-2)}
"""Relative and absolute difference that two implementations of a model may have in a number format, as Transformers
compares two kinds of attention (`test_eager_matches_sdpa_inference`)."""


Item = tuple[Modality, int]
"""An attachment: (modality, index among the attachments of this modality)."""


class Stage(StrEnum):
    """The stages of making an answer, in order."""

    TEXT = "prompt text"
    TOKENS = "token ids"
    PLACES = "image tokens"
    PIXELS = "pixels"
    LOGPROBS = "log-probabilities"
    ANSWER = "answer"


class StageOutcome(StrEnum):
    """The outcome of comparing a stage."""

    SAME = "same"
    COUNTS = "same count"
    """Only the numbers of tokens are known, and they are equal."""
    DIFFERS = "differs"
    UNKNOWN = "not compared"


class CheckedSide(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's results for a request, or recorded results. With `error`, they are incomplete."""

    text: str = ""
    """The prompt's text before tokenizing; empty: unknown."""
    token_ids: tuple[int, ...] = ()
    media: tuple[MediaSpan, ...] = ()
    """The spans of the attachments. Those of a recorded prompt have length 0, as their places are unknown."""
    seen: tuple[SeenMedium, ...] = ()
    answer: str = ""
    answer_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    """An entry for each token of the answer; empty: unknown."""
    fixed: tuple[TokenLogprob, ...] = ()
    """An entry for each token of the base's answer, whatever this side answers; empty: unknown."""
    noise: float | None = None
    """The largest difference between this side's own log-probabilities when it computes the same again; None: not
    measured."""
    grey: float | None = None
    """How likely the answer is with grey images in place of its own: the natural logarithm of the ratio. None: not
    measured."""
    dtype: str = ""
    """The number format of the weights; empty: unknown."""
    prompt_tokens: int | None = None
    """The number of tokens of the prompt as the engine counts them; None: unknown."""
    is_answered: bool = False
    """True if the answer is complete."""
    words: dict[int, str] = msgspec.field(default_factory=dict)
    """The texts of tokens by id. Hostile text."""
    error: str = ""
    """Why there is no prompt, or no answer."""


class Limit(msgspec.Struct, frozen=True):
    """How far two log-probabilities may lie apart and still count as equal."""

    noise: float | None
    """The largest difference that an engine has from itself; None: not measured."""
    dtype: str = ""
    """The coarser number format of the two engines; empty: unknown, and taken for 16 bits."""

    def of(self, logprob: float) -> float:
        """Return the limit for this log-probability: the noise, and at least the rounding of the number format."""
        relative, absolute = _CLOSE.get(self.dtype, _CLOSE["bfloat16"])
        return max(self.noise or 0.0, absolute + relative * abs(logprob))


class StageResult(msgspec.Struct, frozen=True):
    """The result of comparing a stage."""

    stage: Stage
    outcome: StageOutcome
    message: str
    """The difference in words, or its size."""
    largest: float | None = None
    """The largest difference of a pixel value or of a log-probability."""
    mean: float | None = None
    """The mean difference of the pixel values."""
    step: PixelStep | None = None
    limit: float | None = None
    """The limit for the log-probability with the largest difference."""


_WHERE: dict[Stage, str] = {
    Stage.TEXT: "The chat templates differ, or what they are given: `vlmtui lint MODEL` names a template's faults.",
    Stage.TOKENS: "The same text gives other tokens: compare the tokenizers' files, and who adds BOS.",
    Stage.PLACES: "The processors expand the placeholder differently: compare their sizes, tiles and token counts.",
    Stage.LOGPROBS: "The inputs are the same and the numbers are not: weights, their names, number format, attention "
    "mask or positions. If only later tokens differ: the KV cache, or positions after the prompt.",
    Stage.ANSWER: "The probabilities agree and the answers do not: stop tokens, or sampling.",
}
_WHERE_PIXELS: dict[PixelStep, str] = {
    PixelStep.COUNT: "The processors cut the image into other tiles: compare their limits of tiles.",
    PixelStep.SIZE: "The processors resize to another size: compare size, min_pixels and max_pixels.",
    PixelStep.LEVELS: "A model gets levels of 0 to 255, and has nothing that normalises them. In vLLM, "
    "--engine-arg mm_device_do_normalize=false leaves it to the processor.",
    PixelStep.NORMALISATION: "The values are a linear function of the reference's: compare image_mean, image_std and "
    "rescale_factor.",
    PixelStep.CHANNELS: "Red and blue are exchanged.",
    PixelStep.ROUNDING: "At most one level of 255: another library resizes, such as the slow processor's.",
    PixelStep.RESAMPLING: "Same size, other pixels: compare resample (bicubic, bilinear), crop and padding.",
}


def where_to_look(found: StageResult) -> str:
    """Return advice for a stage that differs."""
    if found.stage is Stage.PIXELS:
        return _WHERE_PIXELS[found.step] if found.step is not None else ""
    return _WHERE[found.stage]


def compare_sides(ours: CheckedSide, theirs: CheckedSide) -> list[StageResult]:
    """Compare `ours` with the reference `theirs`, in the stages for which both have results. Blocking: reads the files
    with pixel values."""
    stages: list[StageResult] = []
    if ours.token_ids and theirs.token_ids:
        stages += [_text(ours, theirs), _tokens(ours, theirs), _places(ours, theirs), _pixels(ours, theirs)]
    elif (counted := _counts(ours, theirs)) is not None:
        stages.append(counted)
    pairs = _at_equal_tokens(ours, theirs)
    limit = _limit(ours, theirs)
    if pairs:
        stages.append(_logprobs(pairs, limit, ours, theirs))
    elif ours.is_answered and theirs.is_answered:
        said = "a side doesn't tell log-probabilities"
        stages.append(StageResult(Stage.LOGPROBS, StageOutcome.UNKNOWN, said))
    if ours.is_answered and theirs.is_answered:
        stages.append(_answer(ours, theirs, limit))
    return stages


def _counts(ours: CheckedSide, theirs: CheckedSide) -> StageResult | None:
    """Compare the numbers of the prompts' tokens, which is all that some servers tell; None if one is unknown."""
    left, right = (len(side.token_ids) or side.prompt_tokens for side in (ours, theirs))
    if not left or not right:
        return None
    media = ours.media or theirs.media
    stage = Stage.PLACES if media else Stage.TOKENS
    if left == right:
        return StageResult(stage, StageOutcome.COUNTS, f"{left:,} tokens in the prompt; a side tells no more")
    parts = ", ".join(f"{_name((one.modality, one.index))}: {one.tokens:,}" for one in media)
    among = f" ({parts})" if parts else ""
    return StageResult(stage, StageOutcome.DIFFERS, f"{left:,} tokens in the prompt, and {right:,}{among}")


def _limit(ours: CheckedSide, theirs: CheckedSide) -> Limit:
    noises = [side.noise for side in (ours, theirs) if side.noise is not None]
    formats = {side.dtype for side in (ours, theirs)}
    dtype = next((one for one in ("bfloat16", "float16") if one in formats), "float32" if "" not in formats else "")
    return Limit(max(noises, default=None), dtype)


def _text(ours: CheckedSide, theirs: CheckedSide) -> StageResult:
    if not ours.text or not theirs.text:
        return StageResult(Stage.TEXT, StageOutcome.UNKNOWN, "a side doesn't tell the text before the tokenizer")
    if ours.text == theirs.text:
        return StageResult(Stage.TEXT, StageOutcome.SAME, f"{len(ours.text):,} characters")
    at = common_start(ours.text, theirs.text)
    shown = " and ".join(repr(one.text[max(0, at - 8) : at + _SHOWN]) for one in (ours, theirs))
    return StageResult(Stage.TEXT, StageOutcome.DIFFERS, f"from character {at} on: {shown}")


def _tokens(ours: CheckedSide, theirs: CheckedSide) -> StageResult:
    """Compare the tokens of the prompt's text, ignoring those of the attachments."""
    left, right = list(ours.token_ids), list(theirs.token_ids)
    if _trimmed(ours).keys() == _trimmed(theirs).keys():  # otherwise a side lacks the place of an attachment
        around = _ids_in_media(ours) | _ids_in_media(theirs)
        left, right = _without_media(ours, around), _without_media(theirs, around)
    if left == right:
        return StageResult(Stage.TOKENS, StageOutcome.SAME, f"{sum(one != _MARK for one in left):,} tokens of text")
    at = common_start(left, right)
    shown = " and ".join(_words(ids[at : at + 3], side) for ids, side in ((left, ours), (right, theirs)))
    counts = f"{len(left):,} and {len(right):,} tokens; " if len(left) != len(right) else ""
    return StageResult(Stage.TOKENS, StageOutcome.DIFFERS, f"{counts}from token {at} of the text on: {shown}")


def _places(ours: CheckedSide, theirs: CheckedSide) -> StageResult:
    if not ours.media and not theirs.media:
        return StageResult(Stage.PLACES, StageOutcome.SAME, "no images")
    left, right = _trimmed(ours), _trimmed(theirs)
    if left.keys() != right.keys():
        counts = {(one.modality, one.index): one.tokens for one in theirs.media}
        for span in ours.media:
            key = (span.modality, span.index)
            if counts.get(key, span.tokens) != span.tokens:
                said = f"{_name(key)} takes {span.tokens:,} tokens, and {counts[key]:,}"
                return StageResult(Stage.PLACES, StageOutcome.DIFFERS, said)
        if ours.token_ids == theirs.token_ids:
            return StageResult(Stage.PLACES, StageOutcome.SAME, "all token ids are the same")
        message = f"a side doesn't tell where its images are ({len(left)} and {len(right)} known)"
        return StageResult(Stage.PLACES, StageOutcome.UNKNOWN, message)
    for key in left:
        (offset, length, count), (offset_2, length_2, count_2) = left[key], right[key]
        name = _name(key)
        if count != count_2:
            return StageResult(Stage.PLACES, StageOutcome.DIFFERS, f"{name} takes {count:,} tokens, and {count_2:,}")
        if offset != offset_2:
            return StageResult(
                Stage.PLACES, StageOutcome.DIFFERS, f"{name} begins at token {offset:,}, and {offset_2:,}"
            )
        if ours.token_ids[offset : offset + length] != theirs.token_ids[offset_2 : offset_2 + length_2]:
            return StageResult(Stage.PLACES, StageOutcome.DIFFERS, f"the tokens between those of {name} differ")
    return StageResult(Stage.PLACES, StageOutcome.SAME, ", ".join(f"{_name(key)}: {left[key][2]:,}" for key in left))


def _pixels(ours: CheckedSide, theirs: CheckedSide) -> StageResult:
    spans = tuple({(one.modality, one.index): one for one in side.media} for side in (ours, theirs))
    seen = tuple({(one.modality, one.index): one for one in side.seen} for side in (ours, theirs))
    keys = dict.fromkeys((*spans[0], *spans[1], *seen[0], *seen[1]))
    if not keys:
        return StageResult(Stage.PIXELS, StageOutcome.SAME, "no images")
    compared = []
    for key in keys:
        if key in spans[0] and key in spans[1] and (said := _other_size(spans[0][key], spans[1][key])):
            return StageResult(Stage.PIXELS, StageOutcome.DIFFERS, f"{_name(key)}: {said}", step=PixelStep.SIZE)
        files = [side[key].values if key in side else () for side in seen]
        if not all(files):
            said = "not of a size that differs; a side doesn't tell its values"
            return StageResult(Stage.PIXELS, StageOutcome.UNKNOWN, f"{_name(key)}: {said}")
        try:
            left, right = ([read_pixel_values(path) for path in paths] for paths in files)
        except VlmtuiError as error:
            return StageResult(Stage.PIXELS, StageOutcome.UNKNOWN, f"{_name(key)}: {error.message}")
        compared.append((key, compare_values(left, right, _PIXELS)))
    return _worst(*max(compared, key=lambda one: one[1].largest))


def _other_size(ours: MediaSpan, theirs: MediaSpan) -> str:
    """Return the different sizes or grids of two spans in words; "" if they are equal or unknown."""
    for name, one, other in (("size", ours.resized, theirs.resized), ("grid", ours.grid, theirs.grid)):
        if one and other and one != other:
            return f"{name} {_by(one)} and {_by(other)}"
    return ""


def _worst(key: Item, found: PixelDifference) -> StageResult:
    numbers = (found.largest, found.mean) if math.isfinite(found.largest) else (None, None)
    if found.step is None:
        said = f"at most {found.largest:.2g} apart, {found.mean:.2g} in the mean"
        return StageResult(Stage.PIXELS, StageOutcome.SAME, said, numbers[0], numbers[1])
    shapes = " and ".join(_by(one) for one in found.shapes)
    apart = f"at most {found.largest:.3g} apart, {found.mean:.3g} in the mean" if numbers[0] is not None else shapes
    said = f"{_name(key)}: {found.step.value}: {apart}"
    return StageResult(Stage.PIXELS, StageOutcome.DIFFERS, said, numbers[0], numbers[1], found.step)


def _by(numbers: Sequence[int]) -> str:
    return "×".join(str(one) for one in numbers)


Pair = tuple[TokenLogprob, TokenLogprob]


def _at_equal_tokens(ours: CheckedSide, theirs: CheckedSide) -> list[Pair]:
    """Return both sides' log-probabilities after the same tokens: those of the base's answer, if both sides tell them;
    otherwise those of the answers, as far as they are equal, and of the next token."""
    if ours.fixed and theirs.fixed:
        return list(zip(ours.fixed, theirs.fixed, strict=False))
    at = common_start(ours.answer_ids, theirs.answer_ids)
    return list(zip(ours.logprobs[: at + 1], theirs.logprobs[: at + 1], strict=False))


def _logprobs(pairs: Sequence[Pair], limit: Limit, ours: CheckedSide, theirs: CheckedSide) -> StageResult:
    """Compare log-probabilities after the same tokens. The result names only the one furthest above its limit."""
    found = [(at, *one) for at, (left, right) in enumerate(pairs) for one in _likely_tokens(left, right)]
    if not found:
        return StageResult(Stage.LOGPROBS, StageOutcome.UNKNOWN, "the engines tell no common log-probability")
    at, token, one, other = max(found, key=lambda each: abs(each[2] - each[3]) / limit.of(each[3]))
    largest = max(abs(each[2] - each[3]) for each in found)
    apart, allowed = abs(one - other), limit.of(other)
    kind = "noise" if limit.noise is not None and limit.noise >= allowed else "rounding"
    if apart <= allowed:
        said = f"{len(pairs)} tokens, at most {largest:.2g} apart"
        return StageResult(Stage.LOGPROBS, StageOutcome.SAME, said, largest, limit=allowed)
    said = (
        f"{apart:.3g} apart at {_words((token,), ours, theirs)} of token {at}, "
        f"{apart / allowed:.2g} × the {kind} of {allowed:.2g}"
    )
    return StageResult(Stage.LOGPROBS, StageOutcome.DIFFERS, said, apart, limit=allowed)


def _answer(ours: CheckedSide, theirs: CheckedSide, limit: Limit) -> StageResult:
    """Compare the answers by token ids if both are known, and by text. Where they first differ, both tokens may be
    equally likely within the limit."""
    is_known = bool(ours.answer_ids) and bool(theirs.answer_ids)
    at = common_start(ours.answer_ids, theirs.answer_ids)
    if is_known and at < max(len(ours.answer_ids), len(theirs.answer_ids)):
        tokens = [_words(side.answer_ids[at : at + 1], ours, theirs) + _likely(side, at) for side in (ours, theirs)]
        if _is_tie(ours, theirs, at, limit):
            said = f"equal up to token {at}, where {' and '.join(tokens)} are equally likely within the noise"
            return StageResult(Stage.ANSWER, StageOutcome.SAME, said)
        return StageResult(Stage.ANSWER, StageOutcome.DIFFERS, f"from token {at} on: {' and '.join(tokens)}")
    # An answer that ends within a character has one or several of these signs, or none.
    left, right = (side.answer.rstrip("\N{REPLACEMENT CHARACTER}") for side in (ours, theirs))
    if left != right:
        at = common_start(left, right)
        shown = " and ".join(repr(one[at : at + _SHOWN]) for one in (left, right))
        return StageResult(Stage.ANSWER, StageOutcome.DIFFERS, f"from character {at} on: {shown}")
    return StageResult(
        Stage.ANSWER, StageOutcome.SAME, f"{len(ours.answer_ids)} tokens" if is_known else "the same text"
    )


def _is_tie(ours: CheckedSide, theirs: CheckedSide, at: int, limit: Limit) -> bool:
    """Return True if each side gives both sides' tokens at `at` the same probability within twice the limit: each may
    be off by it."""
    if limit.noise is None or at >= min(len(ours.logprobs), len(theirs.logprobs)):
        return False
    if at >= min(len(ours.answer_ids), len(theirs.answer_ids)):
        return False
    chosen = ours.answer_ids[at], theirs.answer_ids[at]
    for side in (ours, theirs):
        known = side.logprobs[at].by_id
        if not all(token in known for token in chosen):
            return False
        if abs(known[chosen[0]] - known[chosen[1]]) > 2 * limit.of(max(known[one] for one in chosen)):
            return False
    return True


def _likely(side: CheckedSide, at: int) -> str:
    return f" (log-probability {nats(side.logprobs[at].logprob)})" if at < len(side.logprobs) else ""


def noise_between(left: Sequence[TokenLogprob], right: Sequence[TokenLogprob]) -> float | None:
    """Return the largest difference between two runs' log-probabilities, as far as their tokens are equal; None if they
    have none in common."""
    found = []
    for one, other in zip(left, right, strict=False):
        found += [abs(first - second) for _, first, second in _likely_tokens(one, other)]
        if one.token_id != other.token_id:
            break
    return max(found, default=None)


def _likely_tokens(left: TokenLogprob, right: TokenLogprob) -> Iterator[tuple[int, float, float]]:
    """Yield each likely token and its log-probability on both sides.

    A token that a side does not report is at most as likely as the least likely token that it does report.
    """
    ours, theirs = left.by_id, right.by_id
    for token in dict.fromkeys((*ours, *theirs)):
        one, other = ours.get(token), theirs.get(token)
        if max(one if one is not None else -math.inf, other if other is not None else -math.inf) < math.log(LIKELY):
            continue
        if one is None:
            one = min(other or 0.0, *ours.values())
        if other is None:
            other = min(one, *theirs.values())
        yield token, one, other


def _name(item: Item) -> str:
    return f"{item[0]} {item[1] + 1}"


def _trimmed(side: CheckedSide) -> dict[Item, tuple[int, int, int]]:
    """Return (offset, length, number of repetitions) of each attachment's own tokens, the repeated token that the image
    becomes.

    Leaves out the tokens around them, which only some engines count as part of the attachment.
    """
    found: dict[Item, tuple[int, int, int]] = {}
    for span in side.media:
        ids = side.token_ids[span.offset : span.offset + span.length]
        counts = Counter(ids)
        own = next((one for one, count in counts.items() if count == span.tokens), None)
        own = own if own is not None else max(counts, key=lambda one: counts[one], default=None)
        places = [at for at, token in enumerate(ids) if token == own]
        if places:
            offset = span.offset + places[0]
            found[span.modality, span.index] = offset, places[-1] - places[0] + 1, len(places)
    return found


def _ids_in_media(side: CheckedSide) -> set[int]:
    """Return the ids of all tokens in attachments' spans: the image token, and the tokens around and between."""
    return {token for span in side.media for token in side.token_ids[span.offset : span.offset + span.length]}


def _without_media(side: CheckedSide, around: Set[int]) -> list[int]:
    """Return the prompt's ids, with each attachment's tokens replaced by one _MARK.

    `around`: ids that are dropped next to an attachment, because only some engines count them as part of it.
    """
    left: list[int] = []
    at = 0
    for offset, length, _ in sorted(_trimmed(side).values()):
        begin, end = offset, offset + length
        while begin > at and side.token_ids[begin - 1] in around:
            begin -= 1
        while end < len(side.token_ids) and side.token_ids[end] in around:
            end += 1
        if begin > at or not left:
            left += side.token_ids[at:begin]
        left.append(_MARK)
        at = max(at, end)
    return [*left, *side.token_ids[at:]]


def _words(ids: Sequence[int], *sides: CheckedSide) -> str:
    known: dict[int, str] = {}
    for side in sides:
        known |= side.words
    shown = (("(image)" if one == _MARK else f"{known.get(one, '')!r} ({one})") for one in ids)
    return " ".join(shown) or "the end"
