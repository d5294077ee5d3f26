"""Kept comparisons and golden prompts, answered again by several engines: what differs, and where first."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from vlmtui.domain.capabilities import lack
from vlmtui.domain.generation import Finished, MediaSpan
from vlmtui.domain.prompt import attachments_of
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.golden import Golden, unfolded
from vlmtui.inspection.replay import Comparison, EngineFingerprint, engine_of
from vlmtui.inspection.sequence_diff import common_start
from vlmtui.media.images import open_prepared
from vlmtui.registry.match import Model
from vlmtui.registry.schema import Family
from vlmtui.session.adapters import find_adapter, takes_adapter, with_adapters
from vlmtui.session.engines_beside import is_remote
from vlmtui.session.generation import Answer
from vlmtui.session.golden import PromptToRecord
from vlmtui.session.lanes import Lane, Lanes, LaneSpec, lane_spec, recorded_specs
from vlmtui.session.model_view import ask_model_view

_ALTERNATIVES = 5
_GOLDEN_TOKENS = 64
"""Tokens of an answer to a golden prompt, which has none of its own."""


class Pixels(StrEnum):
    """Whether the model was given the same pixels."""

    SAME = "same"
    """At 8 bits."""
    DIFFERENT = "different"
    SAME_SIZES = "same sizes"
    """The pixels themselves are not known of both."""
    NONE = "none"
    """No images or videos."""
    UNKNOWN = "unknown"


class KnownAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one answer: a recorded one, or an engine's."""

    prompt_token_ids: tuple[int, ...] = ()
    media: tuple[MediaSpan, ...] = ()
    pixels: tuple[str, ...] = ()
    """A digest of each picture that the model saw, in order; empty if unknown."""
    answer: str = ""
    answer_token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Of the answer's tokens; empty if unknown."""
    is_complete: bool = False


class ReplayCase(msgspec.Struct, frozen=True, kw_only=True):
    """One request to repeat, and what is recorded of it."""

    file: str
    title: str
    """Within the file; hostile."""
    spec: LaneSpec
    recorded: KnownAnswer
    engine: EngineFingerprint | None = None
    """What answered then; None: there is no answer."""


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """One case on one engine, held against the record, or where that has no answer against the first engine."""

    file: str
    title: str
    engine: str
    """As it was named."""
    prompt_divergence: int | None = None
    """Index of the first token of the prompt that differs; None: the prompts are the same."""
    pixels: Pixels = Pixels.UNKNOWN
    answer_same: bool = False
    first_divergence: int | None = None
    """Index of the first token of the answer that differs; None: the same, or not known."""
    logprob: float | None = None
    """Of the token there."""
    base_logprob: float | None = None
    """Of the other one's token there."""
    answer: str = ""
    error: str = ""
    """Why there is no answer; hostile."""

    @property
    def is_same(self) -> bool:
        """Whether prompt, pixels and answer are the same as far as they are known."""
        return not self.error and self.prompt_divergence is None and self.answer_same and not self.has_other_pixels

    @property
    def has_other_pixels(self) -> bool:
        """Whether the pixels are known to differ."""
        return self.pixels is Pixels.DIFFERENT


def comparison_cases(file: str, comparison: Comparison, paths: Mapping[str, str]) -> list[ReplayCase]:
    """Return the sides of a document. `paths` maps the SHA-256 of attachments to files. Raises KeyError and ValueError
    as `recorded_specs` does."""
    found = []
    for side, spec in zip(comparison.sides, recorded_specs(comparison, paths), strict=True):
        recorded = KnownAnswer(
            prompt_token_ids=side.prompt_token_ids,
            media=side.media,
            answer=side.answer,
            answer_token_ids=side.answer_token_ids,
            logprobs=tuple(one.logprob for one in side.logprobs or ()),
            is_complete=side.finish_reason is not None,
        )
        title = side.label or side.mode
        found.append(
            ReplayCase(file=file, title=title, spec=spec, recorded=recorded, engine=engine_of(comparison, side))
        )
    return found


def golden_case(file: str, golden: Golden, prompt: PromptToRecord, family: Family) -> ReplayCase:
    """Return a golden prompt, to be answered greedily. Raises VlmtuiError if the family does not accept it."""
    sampling = Sampling(temperature=0.0, max_tokens=_GOLDEN_TOKENS)
    spec = lane_spec(family, prompt.turns, sampling, mode=golden.mode)
    numbers: dict[str, int] = {}
    media = []
    for one in golden.media:
        index = numbers[one.modality] = numbers.get(one.modality, -1) + 1
        span = MediaSpan(modality=one.modality, index=index, offset=0, length=0, tokens=one.tokens)
        media.append(msgspec.structs.replace(span, resized=one.resized, grid=one.grid))
    recorded = KnownAnswer(prompt_token_ids=tuple(unfolded(golden.token_ids)), media=tuple(media))
    return ReplayCase(file=file, title=f"{golden.case} {golden.mode}", spec=spec, recorded=recorded)


def with_recorded_adapters(cases: Sequence[ReplayCase], models: Sequence[Model]) -> list[Model]:
    """Return the models, those of this machine so that they take the LoRA adapters that answered then. Blocking: reads
    a small file of each. Raises VlmtuiError for an adapter that is no longer there."""
    folders = dict.fromkeys(case.spec.request.adapter for case in cases)
    adapters = [find_adapter(folder) for folder in folders if folder]
    return [
        model
        if is_remote(model) or all(takes_adapter(model.spec, one) for one in adapters)
        else with_adapters(model, *adapters)
        for model in models
    ]


async def answer_cases(
    engine: Engine, name: str, cases: Sequence[ReplayCase]
) -> list[tuple[Lane, KnownAnswer | VlmtuiError]]:
    """Answer cases one after the other, as a batch would change the numbers of some engines. A case that fails is told
    by its error. `name`: that of the engine, which labels the answers."""
    top = None if lack(engine.info, "logprobs") else _ALTERNATIVES
    found: list[tuple[Lane, KnownAnswer | VlmtuiError]] = []
    for case in cases:
        request = msgspec.structs.replace(case.spec.request, logprobs=top)
        lane = Lane(msgspec.structs.replace(case.spec, request=request, label=name), engine)
        await Lanes([lane]).run()
        failure = lane.answer.failure
        found.append((lane, failure.error() if failure is not None else await _known(engine, case, lane.answer)))
    return found


def results_of(
    cases: Sequence[ReplayCase], answers: Mapping[str, Sequence[KnownAnswer | VlmtuiError]]
) -> Iterator[ReplayResult]:
    """Yield the results in the order of the cases; `answers` has each engine's, in the same order. An engine with
    fewer answers could not be loaded."""
    for at, case in enumerate(cases):
        first = next((known[at] for known in answers.values() if not isinstance(known[at], VlmtuiError)), None)
        for name, known in answers.items():
            now = known[at]
            if isinstance(now, VlmtuiError):
                yield ReplayResult(file=case.file, title=case.title, engine=name, error=str(now))
                continue
            yield _result(case, name, now, first if isinstance(first, KnownAnswer) else now)


def changed_fingerprint(then: EngineFingerprint, now: EngineFingerprint) -> dict[str, tuple[object, object]]:
    """Return what an engine's fingerprint has that another one's has not: name, then, now. What is unknown of one is
    left out, as are engine arguments that kinds of engines do not share; None: the engine's default."""
    before, after = msgspec.to_builtins(then), msgspec.to_builtins(now)
    old, new = before.pop("engine_args"), after.pop("engine_args")
    pairs = {name: (before[name], after[name]) for name in before if before[name] and before[name] != after[name]}
    names = old.keys() & new.keys() if "backend" in pairs else old.keys() | new.keys()
    both = {f"engine_args.{name}": (old.get(name), new.get(name)) for name in sorted(names)}
    return pairs | {name: pair for name, pair in both.items() if pair[0] != pair[1]}


async def _known(engine: Engine, case: ReplayCase, answer: Answer) -> KnownAnswer:
    prompt = answer.prompt
    return KnownAnswer(
        prompt_token_ids=prompt.token_ids if prompt is not None else (),
        media=prompt.media if prompt is not None else (),
        pixels=await _pixels(engine, case),
        answer=answer.text,
        answer_token_ids=tuple(answer.token_ids),
        logprobs=tuple(one.logprob for one in answer.logprobs),
        is_complete=isinstance(answer.outcome, Finished),
    )


async def _pixels(engine: Engine, case: ReplayCase) -> tuple[str, ...]:
    """Return digests of what the model sees; nothing where the engine does not tell."""
    if lack(engine.info, "model_view") or not attachments_of(case.spec.request.prompt):
        return ()
    with tempfile.TemporaryDirectory(prefix="vlmtui-") as folder:
        try:
            views = await ask_model_view(engine, case.spec.request.prompt, Path(folder))
            if any(not view.medium.pictures or view.medium.left_out for view in views):
                return ()
            pictures = [open_prepared(one.path) for view in views for one in view.medium.pictures]
        except VlmtuiError:
            return ()
    return tuple(hashlib.sha256(repr(one.size).encode() + one.tobytes()).hexdigest() for one in pictures)


def _result(case: ReplayCase, name: str, now: KnownAnswer, first: KnownAnswer) -> ReplayResult:
    base = case.recorded if case.recorded.is_complete else first
    prompts = case.recorded.prompt_token_ids or first.prompt_token_ids
    at = _divergence(base.answer_token_ids, now.answer_token_ids)
    return ReplayResult(
        file=case.file,
        title=case.title,
        engine=name,
        prompt_divergence=_divergence(prompts, now.prompt_token_ids),
        pixels=_same_pixels(case, now, first),
        answer_same=base.answer == now.answer and at is None,
        first_divergence=at,
        logprob=_logprob(now, at),
        base_logprob=_logprob(base, at),
        answer=now.answer,
    )


def _same_pixels(case: ReplayCase, now: KnownAnswer, first: KnownAnswer) -> Pixels:
    attached = attachments_of(case.spec.request.prompt)
    if not attached:
        return Pixels.NONE
    if now.pixels and first.pixels and now.pixels != first.pixels:
        return Pixels.DIFFERENT
    then = case.recorded.media or first.media
    pairs = [(one, other) for one in then for other in now.media if _place(one) == _place(other)]
    if any(_sizes_differ(one, other) for one, other in pairs):
        return Pixels.DIFFERENT
    if now.pixels and now is not first and first.pixels:
        return Pixels.SAME
    return Pixels.SAME_SIZES if pairs and len(pairs) == len(attached) else Pixels.UNKNOWN


def _place(span: MediaSpan) -> tuple[str, int]:
    return span.modality, span.index


def _sizes_differ(one: MediaSpan, other: MediaSpan) -> bool:
    resized = one.resized is not None and other.resized is not None and one.resized != other.resized
    grids = bool(one.grid) and bool(other.grid) and one.grid != other.grid
    return resized or grids or one.tokens != other.tokens


def _divergence(then: Sequence[int], now: Sequence[int]) -> int | None:
    """Return the first index that differs; None where both are the same, or one is unknown."""
    return None if not then or not now or tuple(then) == tuple(now) else common_start(then, now)


def _logprob(known: KnownAnswer, at: int | None) -> float | None:
    """Return the log-probability of the answer's token at an index; None where it is not known."""
    if at is None or at >= len(known.logprobs):
        return None
    return known.logprobs[at]
