"""Check that a picture changes the answer: another one of the same size gives other log-probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from tests.support.videos import write_video
from tests.zoo.adapters import ALIKE, APART
from vlmtui.domain.conversation import Attachment, user_turn
from vlmtui.domain.generation import Delta, Failed
from vlmtui.domain.sampling import Sampling
from vlmtui.media.stage import stage
from vlmtui.paths import bundled
from vlmtui.registry.match import Model
from vlmtui.session.generation import make_request

_CANDIDATES = 20
_FRAMES, _SIDE = 8, 112


def lively_weights() -> None:
    """Have vLLM fill models of this process, and of those forked off it, with numbers by which an image changes the
    answer. Its own, below 0.001, leave all log-probabilities the same to the last digit."""
    import torch
    import vllm.model_executor.model_loader.dummy_loader as loader

    count = 0

    def fill(tensor: torch.Tensor, **_: object) -> None:  # vLLM 0.33 also gives its name
        nonlocal count
        count += 1
        given = getattr(tensor, "dummy_weight_value", None)
        if tensor.device.type == "meta" or not (given is not None or torch.is_floating_point(tensor)):
            return
        with torch.no_grad():
            if given is not None:
                tensor.fill_(given)
            elif tensor.ndim < 2:
                tensor.fill_(1.0)  # norms, gates, and what is known of a running mean
            else:
                tensor.normal_(
                    0, 1.5 / max(1, tensor[0].numel()) ** 0.5, generator=torch.Generator().manual_seed(count)
                )

    loader.initialize_single_dummy_weight = fill


async def medium_matters(engine: Any, model: Model, case: str, folder: Path) -> str:
    """Ask about a picture (or video), about another one of the same size, and about the first again.

    Raises AssertionError if the other gives the same numbers, or the last time others than the first."""
    folder.mkdir(parents=True, exist_ok=True)
    one, other = [stage(path, folder / "stored") for path in _two(case, folder)]
    first, second, again = [await _likeliest(engine, model, shown) for shown in (one, other, one)]
    moved = _apart(first, again)
    assert moved <= ALIKE, f"the same {case} gives other numbers: {moved:.1e}"
    apart = _apart(first, second)
    assert apart >= APART, f"another {case} changes nothing: {apart:.1e}"
    return f"{apart:.2g} apart with another"


def _two(case: str, folder: Path) -> tuple[Path, Path]:
    if case == "image":
        given, made = bundled("samples") / "circle.png", folder / "inverted.png"
        with Image.open(given) as image:
            ImageOps.invert(image.convert("RGB")).save(made)
        return given, made
    dark, bright = folder / "dark.mp4", folder / "bright.mp4"
    ramp = np.linspace(0, 120, _SIDE, dtype=np.uint8)
    frames = [np.broadcast_to(np.roll(ramp, 8 * n)[:, None, None], (_SIDE, _SIDE, 3)).copy() for n in range(_FRAMES)]
    write_video(dark, frames)
    write_video(bright, [255 - frame for frame in frames])
    return dark, bright


async def _likeliest(engine: Any, model: Model, shown: Attachment) -> Mapping[int, float]:
    """The log-probabilities of the likeliest first tokens of an answer."""
    sampling = Sampling(temperature=0.0, max_tokens=2)  # the last one is the end, whatever is shown, for some models
    turn = user_turn("What is {this}?", [shown])
    request = make_request(model.family, [turn], sampling, logprobs=_CANDIDATES)
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            match event:
                case Failed(failure=failure):
                    raise failure.error()
                case Delta(logprobs=(first, *_)):
                    return {one.token_id: one.logprob for one in first.top}
                case _:
                    pass
    raise AssertionError("no answer came")


def _apart(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    """The most by which a token's log-probability differs; infinite where no token is among the likeliest of both."""
    return max((abs(one[token] - other[token]) for token in one.keys() & other.keys()), default=float("inf"))
