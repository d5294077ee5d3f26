"""Chooses the tokens of one answer, from the model's scores, in the thread that computes them.

It takes part in `generate` as the last logits processor: it draws the token itself, with a random generator of its own,
and leaves the search nothing but that token. So each request has its own seed, its log-probabilities are known at once,
and it can be ended between two tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from vlmtui.domain.generation import Candidate
from vlmtui.worker.backends.transformers.sampling_plan import SamplingPlan

Logprobs = Mapping[int, Candidate]
"""The chosen token and the most likely ones, by id."""


_ALIKE = 1e-2
"""By how much scores of a batch may differ from those alone, as a share of their range: rounding is far below, even in
bfloat16; another picture is far above."""


class UnlikeAlone(Exception):
    """The rows of a batch do not have the scores that their prompt has alone: the model cannot be batched."""


class TokenTaker(Protocol):
    """Takes a chosen token; returns whether the answer is complete. May raise to end the request."""

    def __call__(self, token: int, logprobs: Logprobs | None) -> bool: ...


class BatchChooser:
    """A logits processor and a stopping criterion of `generate`: has each row's chooser choose.

    `between_tokens` is called before each step, and may raise to end all. `expected`: what the first scores of each row
    have to be.
    """

    def __init__(self, rows: Sequence[TokenChooser], between_tokens: Callable[[], None], expected: Any = None) -> None:
        self._rows = rows
        self._between_tokens = between_tokens
        self._expected = expected

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return the scores with nothing left but the chosen token of each row. `scores`: (rows, vocabulary)."""
        if all(row.is_complete for row in self._rows):  # on a GPU, `generate` may look ahead
            return scores
        self._between_tokens()
        if self._expected is not None:
            self._check(scores.float())
            self._expected = None
        for number, row in enumerate(self._rows):
            row.choose(scores[number])
        return scores

    @property
    def awaits_check(self) -> bool:
        """Whether the first scores are still to be compared with the expected ones."""
        return self._expected is not None

    def should_stop(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """The stopping criterion."""
        import torch

        done = [row.is_complete for row in self._rows]
        return torch.tensor(done, device=input_ids.device, dtype=torch.bool)

    def _check(self, scores: Any) -> None:
        finite = self._expected.isfinite()
        wanted = self._expected[finite]
        span = float(wanted.max() - wanted.min()) or 1.0
        if float((scores[:, finite] - wanted).abs().max()) > _ALIKE * span:
            raise UnlikeAlone("The rows of a batch have other scores than their prompt alone.")


class TokenChooser:
    """Chooses the tokens of one row.

    `prompt_ids`: for the repetition penalty. `forced`: these tokens are taken instead of chosen, to score them.
    `is_stopped`: whether the answer is to end before its next token.
    """

    def __init__(
        self,
        plan: SamplingPlan,
        prompt_ids: Sequence[int],
        take: TokenTaker,
        forced: Sequence[int] = (),
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._plan = plan
        self._take = take
        self._is_stopped = is_stopped
        self._forced = list(forced)
        self._seen = set(prompt_ids)
        self._said: list[int] = []
        self._generator: Any = None
        self.is_complete = False

    def choose(self, scores: Any) -> None:
        """Leave nothing of the scores, (vocabulary,), but the chosen token."""
        if self.is_complete or self._is_stopped():
            self.is_complete = True
            return
        raw = scores.float()
        token = self._forced[len(self._said)] if self._forced else self._choose(raw.clone())
        found = _logprobs(raw, token, self._plan.logprobs)
        self._said.append(token)
        self.is_complete = self._take(token, found)
        scores.fill_(float("-inf"))
        scores[token] = 0.0

    def _choose(self, scores: Any) -> int:
        """Return a token. The order is vLLM's: masks, bias, penalties, temperature, min-p, top-k, top-p."""
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
    """Return the scores without the tokens that min-p, top-k and top-p leave out."""
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
