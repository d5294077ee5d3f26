"""Limits for the numbers by which a model's files and a request set the sizes of images, videos and layers."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LIMITS = tuple(
    (re.compile(pattern), low, high)
    for pattern, low, high in (
        (r"(?:\w+_)?(?:patch|merge)_size|merge_kernel_size|(?:\w+_)?downsample_\w*(?:ratio|factor)", 0.01, 2**10),
        (r"(?:\w+_)?(?:min|max|total)_pixels|shortest_edge|longest_edge", None, 2**28),
        (r"(?:\w+_)?(?:image|crop|tile|input|base)_size|(?:\w+_)?(?:height|width|resolution)|max_side", None, 2**16),
        (r"(?:\w+_)?(?:crops|tiles|slices?|slice_nums|dynamic_patch|sub_images)", None, 2**12),
        (r"(?:\w+_)?(?:frames|fps|num_patches)|in_patch_limit|(?:\w+_)?image_seq_len(?:gth)?", None, 2**20),
        (r"(?:\w+_)?(?:layers|n_layer|depth)", None, 2**13),
        (r"(?:\w+_)?(?:hidden_size|intermediate_size|d_model|embed_dim|ffn_dim|heads|experts)", None, 2**22),
        (r"(?:\w+_)?vocab_size", None, 2**26),
    )
)
"""Patterns of names, with the least and the greatest number. The records of the families have at most 16,777,216
pixels."""
_NUMBERS_MAX = 100_000


def wrong_sizes(found: object, name: str = "") -> Iterator[str]:
    """Yield `NAME = NUMBER; the limit is N` for each number that would take all memory or time, in nested dicts and
    lists. A number in a list has the name of the list; `size: {"height": …}` has its own.

    `name`: that of `found` itself.
    """
    waiting = [(name, found)]
    for _ in range(_NUMBERS_MAX):
        if not waiting:
            return
        name, one = waiting.pop()
        if isinstance(one, dict):
            waiting += [(str(key), value) for key, value in one.items()]
        elif isinstance(one, list | tuple):
            waiting += [(name, value) for value in one]
        elif isinstance(one, int | float) and not isinstance(one, bool) and (limit := _broken_limit(name, one)):
            yield f"{name} = {one:,}; {limit}"


def _broken_limit(name: str, number: float) -> str:
    for pattern, low, high in _LIMITS:
        if pattern.fullmatch(name):
            if low is not None and not low <= number:
                return "it must be greater than 0"
            return "" if number <= high else f"the limit is {high:,}"
    return ""
