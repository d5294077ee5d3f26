"""The probability of each label, from the log-probabilities of one answer that had to be one of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vlmtui.domain.generation import TokenLogprob, Vocabulary


class _Share(NamedTuple):
    """A label's own probability, and that of beginnings that it shares with other labels in unknown parts."""

    known: float = 0.0
    shared: float = 0.0


def label_probabilities(
    labels: Sequence[str], logprobs: Sequence[TokenLogprob], vocabulary: Vocabulary
) -> dict[str, float | None]:
    """Return the probability of each label, divided by the sum over all labels; None if most of it is in a beginning
    that the label shares with others.

    A label's probability is that of the tokens with which it begins. Labels with the same beginning can be told apart
    only if the answer itself continues it. `logprobs`: those of the answer, with the likeliest tokens; a label whose
    tokens are not among them has the probability 0."""
    found = _shares(dict(zip(labels, labels, strict=True)), logprobs, vocabulary, 0)
    total = sum(one.known for one in found.values())
    return {
        label: None if one.shared > one.known else one.known / total if total else 0.0 for label, one in found.items()
    }


def _shares(
    rest: Mapping[str, str], logprobs: Sequence[TokenLogprob], vocabulary: Vocabulary, at: int
) -> dict[str, _Share]:
    """Return the share of each label after `at` tokens. `rest`: by label, its text that follows these tokens."""
    if at >= len(logprobs):
        return dict.fromkeys(rest, _Share(shared=1.0))
    found = dict.fromkeys(rest, _Share())
    here = logprobs[at]
    parted: dict[str, dict[str, _Share]] = {}
    """How the labels after a text are told apart, by this text: tokens may differ in white space only."""
    for token, logprob in here.by_id.items():
        text = vocabulary[token].text if token in vocabulary else ""
        text = text if at else text.lstrip()
        among = {label: left[len(text) :] for label, left in rest.items() if text and left.startswith(text)}
        if len(among) > 1 and token == here.token_id:
            parted[text] = _after(among, logprobs, vocabulary, at + 1)
        alone = dict.fromkeys(among, _Share(known=1.0) if len(among) == 1 else _Share(shared=1.0))
        chance = math.exp(logprob)
        for label, share in parted.get(text, alone).items():
            known, shared = found[label]
            found[label] = _Share(known + share.known * chance, shared + share.shared * chance)
    return found


def _after(
    among: Mapping[str, str], logprobs: Sequence[TokenLogprob], vocabulary: Vocabulary, at: int
) -> dict[str, _Share]:
    """Return the shares of labels with the same beginning, which make 1 together. A label that ends there has what the
    others leave."""
    inner = _shares({label: left for label, left in among.items() if left}, logprobs, vocabulary, at)
    total = sum(one.known for one in inner.values())
    ended = {label: _Share(known=max(0.0, 1.0 - total)) for label, left in among.items() if not left}
    if not ended and total:
        inner = {label: _Share(one.known / total, one.shared / total) for label, one in inner.items()}
    return inner | ended
