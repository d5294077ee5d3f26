"""Statistics of right and wrong answers."""

from __future__ import annotations

from math import comb, sqrt

_Z = 1.959963984540054
"""The two-sided 95 % quantile of the normal distribution."""


def interval(right: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson's score interval). `total`: at least 1."""
    share, more = right / total, _Z * _Z / total
    centre = share + more / 2
    half = _Z * sqrt(share * (1 - share) / total + more / (4 * total))
    return max(0.0, (centre - half) / (1 + more)), min(1.0, (centre + half) / (1 + more))


def share_text(right: int, total: int) -> str:
    """Format a share with its 95 % interval: `62.0 % (58.1 to 65.7)`."""
    low, high = interval(right, total)
    return f"{right / total:.1%} ({100 * low:.1f} to {100 * high:.1f})".replace("%", " %", 1)


def paired_p(wins: int, losses: int) -> float:
    """Return the two-sided p-value of McNemar's exact test: the probability of a division at least as uneven if a win
    and a loss were equally likely."""
    total, fewer = wins + losses, min(wins, losses)
    tail = sum(comb(total, one) for one in range(fewer + 1))
    return min(1.0, 2 * tail / (1 << total))
