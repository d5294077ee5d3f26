"""Choose the tokens of an answer, in the thread that runs the model.

`TokenChooser` is the last logits processor of `generate`. It draws each token itself and sets the scores of all others
to minus infinity. Thus each request has its own seed, its log-probabilities are available at once, and it can end
between two tokens. Imports torch only inside functions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from vlmtui.domain.dials import PROCESSOR, THINKING_BUDGET
from vlmtui.domain.generation import Candidate
from vlmtui.domain.sampling import PARAMETERS, Sampling, check_texts
from vlmtui.domain.template import TEMPLATE
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.text import did_you_mean
from vlmtui.worker.hf.vocabulary import stop_token_id

_SEEDS = 2**31
_GREEDY_BELOW = 1e-5
_DEFAULTS = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0,
             "presence_penalty": 0.0, "frequency_penalty": 0.0}  # fmt: skip
_CONFIGURED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
LOGPROBS_MAX = 20
"""The same limit as vLLM's default."""


class Further(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of vLLM's SamplingParams that this backend supports in addition to `PARAMETERS`."""

    min_tokens: int = 0
    ignore_eos: bool = False
    bad_words: tuple[str, ...] = ()
    logit_bias: dict[int, float] = msgspec.field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] | None = None
    include_stop_str_in_output: bool = False
    logprobs: int | None = None


class SamplingPlan(msgspec.Struct, frozen=True, kw_only=True):
    used: Sampling
    """The sampling without open values, as reported to the user."""
    further: Further
    stop_ids: frozenset[int]
    """Tokens that end the answer."""
    banned: tuple[tuple[int, ...], ...]
    """The token sequences of `bad_words`, whose last token must not be chosen."""
    logprobs: int | None

    @property
    def is_greedy(self) -> bool:
        return not self.used.temperature or self.used.temperature < _GREEDY_BELOW

    def value(self, name: str) -> float:
        found = getattr(self.used, name)
        return float(_DEFAULTS[name] if found is None else found)


def configured_sampling(generation_config: Any) -> dict[str, Any]:
    found = {name: getattr(generation_config, name, None) for name in _CONFIGURED}
    return {name: value for name, value in found.items() if value is not None}


def plan_sampling(
    sampling: Sampling,
    logprobs: int | None,
    *,
    defaults: Mapping[str, Any],
    eos_ids: tuple[int, ...],
    tokenizer: Any,
    room: int,
) -> SamplingPlan:
    """Resolve the settings of an answer. Without a seed it draws a random one, so that the answer can be repeated.

    `defaults`: the model's own sampling. `room`: the number of tokens left in the context. Raises
    VlmtuiError(BAD_INPUT)."""
    check_texts(sampling)
    further = _further(sampling.extra)
    count = logprobs if logprobs is not None else further.logprobs
    if count is not None and not 0 <= count <= LOGPROBS_MAX:
        raise bad_input(f"logprobs must be between 0 and {LOGPROBS_MAX}, not {count}.")
    numbers: dict[str, Any] = {**_DEFAULTS, **defaults, **sampling.numbers()}
    for name, value in sampling.numbers().items():
        if problem := PARAMETERS[name].problem(value):
            raise bad_input(f"The sampling parameters are not valid: {problem}.", hint="Correct them in the settings.")
    is_greedy = numbers["temperature"] < _GREEDY_BELOW
    numbers["seed"] = None if is_greedy else numbers.get("seed", random.randrange(_SEEDS))
    numbers["max_tokens"] = room if sampling.max_tokens is None else min(sampling.max_tokens, room)
    named = [stop_token_id(token, tokenizer) for token in sampling.stop_tokens]
    stop_ids = (*sampling.stop_token_ids, *(token for token in named if token is not None))
    used = Sampling(
        **numbers,
        stop=sampling.stop,
        stop_token_ids=stop_ids,
        skip_special_tokens=sampling.skip_special_tokens,
        extra={name: value for name, value in sampling.extra.items() if name != "logprobs"},
    )
    banned = [tuple(tokenizer.encode(f"{space}{word}", add_special_tokens=False))
              for word in further.bad_words for space in ("", " ")]  # fmt: skip
    return SamplingPlan(
        used=used,
        further=further,
        stop_ids=frozenset(stop_ids if further.ignore_eos else (*stop_ids, *eos_ids)),
        banned=tuple(dict.fromkeys(banned)),
        logprobs=count,
    )


def _further(extra: Mapping[str, object]) -> Further:
    known = Further.__struct_fields__
    given = {name: value for name, value in extra.items() if name not in (PROCESSOR, TEMPLATE)}
    if THINKING_BUDGET in given:
        message = "The Transformers backend has no limit for the tokens of reasoning: thinking_budget."
        raise VlmtuiError(ErrorKind.UNSUPPORTED, message, hint="Unset it: `/set thinking_budget default`.")
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"It has {', '.join(known)}."
            raise bad_input(f"The Transformers backend has no sampling parameter {name!r}.", hint=hint)
    try:
        return msgspec.convert(given, Further, strict=False)
    except msgspec.ValidationError as error:
        raise bad_input("A sampling parameter has a wrong value.", detail=str(error)) from error


Logprobs = Mapping[int, Candidate]
"""The log-probabilities of the chosen token and the most likely ones, by token id."""
TakeToken = Callable[[int, Logprobs | None], bool]
"""Takes a chosen token; returns True if the answer is complete. An exception ends the request."""


class TokenChooser:
    """Chooses the tokens of one answer: a logits processor and a stopping criterion of `generate`.

    `prompt_ids`: the prompt's tokens, which the repetition penalty needs. `forced`: score these tokens instead of
    choosing any. `goes_on`: called before each token; if it returns False or raises, the answer ends.
    """

    def __init__(
        self,
        plan: SamplingPlan,
        prompt_ids: Sequence[int],
        take: TakeToken,
        forced: Sequence[int] = (),
        goes_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self._plan = plan
        self._take = take
        self._goes_on = goes_on
        self._forced = list(forced)
        self._seen = set(prompt_ids)
        self._said: list[int] = []
        self._generator: Any = None
        self.is_complete = False

    @property
    def most(self) -> int:
        return len(self._forced) or self._plan.used.max_tokens or 1

    @property
    def ignores_eos(self) -> bool:
        return self._plan.further.ignore_eos

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Choose a token. Return the scores, shape (1, vocabulary): 0 for it, minus infinity for all others."""
        if self.is_complete:  # on a GPU, `generate` may call this once more
            return scores
        if not self._goes_on():
            self.is_complete = True
            return scores
        raw = scores[0].float()
        token = self._forced[len(self._said)] if self._forced else self._choose(raw.clone())
        found = _logprobs(raw, token, self._plan.logprobs)
        self._said.append(token)
        self.is_complete = self._take(token, found)
        scores.fill_(float("-inf"))
        scores[0, token] = 0.0
        return scores

    def should_stop(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        import torch

        return torch.tensor([self.is_complete], device=input_ids.device, dtype=torch.bool)

    def _choose(self, scores: Any) -> int:
        """Return a token. In vLLM's order: masks, bias, penalties, temperature, min-p, top-k, top-p."""
        import torch

        self._mask(scores)
        self._penalise(scores)
        if self._plan.is_greedy:
            return int(scores.argmax())
        kept = _cut(scores / self._plan.value("temperature"), self._plan)
        if self._generator is None:
            self._generator = torch.Generator(device=kept.device).manual_seed(self._plan.used.seed or 0)
        return int(torch.multinomial(kept.softmax(-1), 1, generator=self._generator))

    def _mask(self, scores: Any) -> None:
        import torch

        further, nothing = self._plan.further, float("-inf")
        if further.allowed_token_ids is not None:
            allowed = torch.tensor(further.allowed_token_ids, device=scores.device)
            others = torch.ones_like(scores, dtype=torch.bool).index_fill_(0, allowed, False)
            scores[others] = nothing
        if len(self._said) < further.min_tokens and self._plan.stop_ids:
            scores[[token for token in self._plan.stop_ids if token < len(scores)]] = nothing
        for banned in self._plan.banned:
            *before, last = banned
            if not before or self._said[-len(before) :] == before:
                scores[last] = nothing
        for token, bias in further.logit_bias.items():
            scores[token] += bias

    def _penalise(self, scores: Any) -> None:
        import torch

        repetition = self._plan.value("repetition_penalty")
        if repetition != 1.0:
            tokens = [token for token in self._seen.union(self._said) if token < len(scores)]
            at = torch.tensor(tokens, device=scores.device)
            found = scores[at]
            scores[at] = torch.where(found > 0, found / repetition, found * repetition)
        presence, frequency = self._plan.value("presence_penalty"), self._plan.value("frequency_penalty")
        if (presence or frequency) and self._said:
            counts = Counter(self._said)
            at = torch.tensor(list(counts), device=scores.device)
            often = torch.tensor(list(counts.values()), device=scores.device, dtype=scores.dtype)
            scores[at] -= frequency * often + presence


def _cut(scores: Any, plan: SamplingPlan) -> Any:
    """Set the scores of the tokens that min-p, top-k and top-p exclude to minus infinity."""
    nothing = float("-inf")
    least = plan.value("min_p")
    if least > 0:
        probabilities = scores.softmax(-1)
        scores = scores.masked_fill(probabilities < least * probabilities.max(), nothing)
    count = int(plan.value("top_k"))
    if 0 < count < len(scores):
        scores = scores.masked_fill(scores < scores.topk(count).values[-1], nothing)
    mass = plan.value("top_p")
    if mass < 1:
        ordered, order = scores.sort()
        out = ordered.softmax(-1).cumsum(-1) <= 1 - mass
        out[-1] = False
        scores = scores.masked_fill(out.new_zeros(out.shape).scatter_(0, order, out), nothing)
    return scores


def _logprobs(scores: Any, token: int, count: int | None) -> Logprobs | None:
    if count is None:
        return None
    every = scores.log_softmax(-1)
    values, tokens = every.topk(min(max(count, 1), len(every)))
    found = {int(one): float(value) for one, value in zip(tokens, values, strict=True)}
    if not count:
        found = {}
    found[token] = float(every[token])
    return {one: Candidate(token_id=one, logprob=value) for one, value in found.items()}
