"""How likely one answer is under several prompts: scores its tokens, each given the prompt and the tokens before it.

The probabilities are the model's own, before temperature and other sampling parameters, and include the token that ends
the answer. Results are ratios: `0.02×` means that the whole answer is 50 times less likely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from vlmtui.domain.capabilities import lack
from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.prompt import Prompt
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import bad_input
from vlmtui.session.adapters import NONE
from vlmtui.session.generation import new_request_id
from vlmtui.session.lane_plan import ADAPTER, PICTURE, Plan
from vlmtui.session.lanes import Lane, Lanes, LaneSpec, OnChange
from vlmtui.session.picture_changes import PictureChange
from vlmtui.text import one_line

MATTERS = 0.5
"""Below this ratio an answer counts as less likely, and above its inverse as more likely."""
_NOISE = 1e-3
"""Differences of log-probabilities up to this come from the order of sums in a batch."""
_UNCHANGED: dict[str, str] = {PICTURE: PictureChange.SENT, ADAPTER: NONE}
"""The value of a plan whose answer a verdict is about, by the plan's parameter."""
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_WITHOUT = {
    PictureChange.NONE: "without the picture",
    PictureChange.GREY: "with grey in the picture's place",
    PictureChange.BLUR: "with the picture blurred",
    PictureChange.SWAP: "with another picture in its place",
}
"""In the order of preference for the verdict."""


class TokenDrop(msgspec.Struct, frozen=True):
    """The token of the answer whose probability drops most."""

    index: int
    text: str
    """Hostile text."""
    before: float
    after: float
    """Its probabilities before and after, 0 to 1."""


class LaneScore(msgspec.Struct, frozen=True):
    """How likely the base's answer is under a lane's prompt, compared with its own prompt."""

    log_ratio: float
    """The natural logarithm of the ratio, over the tokens that both scored."""
    tokens: int
    """Number of these tokens."""
    drop: TokenDrop | None = None
    """None if no probability drops."""

    is_equal: bool = False
    """Whether each token is as likely, but for what batching does to sums of floats."""

    @property
    def ratio(self) -> float:
        return math.exp(min(self.log_ratio, 700.0))

    @property
    def times(self) -> str:
        """`0.02×`, `1.7·10⁻⁴×`."""
        return times(self.log_ratio)


async def score_lanes(lanes: Lanes, base: int) -> list[LaneScore | None]:
    """Score the answer of lane `base` under every lane's prompt; None for the base itself.

    Raises VlmtuiError if there is no answer, or the engine cannot score it.
    """
    lane = lanes[base]
    if why := lack(lane.info, "scores"):
        raise bad_input(why)
    ids = tuple(lane.answer.token_ids)
    if not ids or lane.has_failed:
        raise bad_input("There is no complete answer to score.")
    scored = [scoring_lane(one.engine, one.request.prompt, ids, adapter=one.request.adapter) for one in lanes]
    found = await scores_of(Lanes(scored))
    texts = [lane.answer.vocabulary[token].text if token in lane.answer.vocabulary else f"⟨{token}⟩" for token in ids]
    return [None if at == base else _compared(found[base], other, texts) for at, other in enumerate(found)]


def scoring_lane(engine: Engine | None, prompt: Prompt, ids: tuple[int, ...], *, adapter: str = "") -> Lane:
    """Return a lane that generates nothing, and scores the tokens `ids` as the answer to a prompt."""
    sampling = Sampling(temperature=0)
    request = GenerateRequest(request_id=new_request_id(), prompt=prompt, sampling=sampling, score=ids, adapter=adapter)
    return Lane(LaneSpec(request=request, sampling=sampling), engine)


async def scores_of(lanes: Lanes, on_change: OnChange = lambda lane: None) -> list[list[float]]:
    """Run scoring lanes; return the log-probability of each token for each lane, fewer where the context ends.
    Raises VlmtuiError."""
    await lanes.run(on_change)
    for lane in lanes:
        if lane.answer.failure is not None:
            raise lane.answer.failure.error()
        if not lane.answer.logprobs:
            raise bad_input("The engine scored no token of the answer.")
    return [[one.logprob for one in lane.answer.logprobs] for lane in lanes]


def is_unchanged(plan: Plan, at: int) -> bool:
    """Return whether a lane is the one that a verdict is about: the picture as sent, or no adapter."""
    return plan.parameter in _UNCHANGED and plan.values[at] == _UNCHANGED[plan.parameter]


def verdict(plan: Plan, scores: Sequence[LaneScore | None]) -> str:
    """Return whether the answer depends on the picture, or on the adapter, in words; empty if unknown. `scores` are
    those of the answer to the prompt as sent, or with no adapter."""
    if plan.parameter == ADAPTER and NONE in plan.values:
        score = next((score for score in scores if score is not None), None)
        return "" if score is None else _adapter_sentence(score)
    if plan.parameter != PICTURE or PictureChange.SENT not in plan.values:
        return ""
    by_change = {PictureChange(str(value)): score for value, score in zip(plan.values, scores, strict=True) if score}
    for change, words in _WITHOUT.items():
        if score := by_change.get(change):
            return _sentence(score, words)
    return ""


def times(log_ratio: float) -> str:
    """Return a ratio with two digits: `0.02×`, `1.1×`, `1.7·10⁻⁴×`."""
    exponent = log_ratio / math.log(10)
    if abs(exponent) >= 3:
        whole = math.floor(exponent)
        leading = f"{10 ** (exponent - whole):.1f}"
        if leading == "10.0":
            whole, leading = whole + 1, "1.0"
        shown = "" if leading == "1.0" else f"{leading}·"
        return f"{shown}10{str(whole).translate(_SUPERSCRIPTS)}×"
    value = 10**exponent
    return f"{value:.0f}×" if value >= 10 else f"{float(f'{value:.2g}'):g}×"


def _adapter_sentence(score: LaneScore) -> str:
    if score.is_equal:
        return "The adapter changes nothing here: every token of the answer is as likely without it."
    return f"The adapter changes the model: the answer is {score.times} as likely with it.{_most(score)}"


def _sentence(score: LaneScore, words: str) -> str:
    if score.ratio < MATTERS:
        return f"The answer is {score.times} as likely {words}.{_most(score)}"
    if score.ratio > 1 / MATTERS:
        return f"The answer is {score.times} as likely {words}: the picture makes it less likely."
    return f"The answer is about as likely {words} ({score.times}): the model may not look at it."


def _most(score: LaneScore) -> str:
    drop = score.drop
    if drop is None:
        return ""
    change = f"{_percent(drop.before)} → {_percent(drop.after)}"
    return f" Most at token {drop.index:,}, “{one_line(drop.text)}”: {change}."


def _percent(probability: float) -> str:
    return f"{probability:.0%}" if probability >= 0.01 else f"{probability:.1%}" if probability >= 0.001 else "<0.1%"


def _compared(own: Sequence[float], other: Sequence[float], texts: Sequence[str]) -> LaneScore:
    pairs = list(zip(own, other, strict=False))
    losses = [after - before for before, after in pairs]
    drop = None
    if losses and min(losses) < 0:
        at = losses.index(min(losses))
        drop = TokenDrop(at, texts[at], math.exp(pairs[at][0]), math.exp(pairs[at][1]))
    return LaneScore(math.fsum(losses), len(pairs), drop, not any(abs(loss) > _NOISE for loss in losses))
