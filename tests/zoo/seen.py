"""Check that the worker's pictures of the processor's tensors show these tensors."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.support.other_requests import to_render
from vlmtui.domain.conversation import Attachment, user_turn
from vlmtui.domain.generation import PromptReady, View
from vlmtui.domain.sampling import Sampling
from vlmtui.paths import private_dir
from vlmtui.registry.match import Model
from vlmtui.session.generation import make_request
from vlmtui.worker.hf.media_items import load_items, of_modality

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of InternVL's processor, which does not tell them."""
_CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_NONE, _HALF = ((0.0,) * 3, (1.0,) * 3), ((0.5,) * 3, (0.5,) * 3)
UNTOLD = {
    "Step3VLProcessor": _CLIP,
    "MistralCommonPixtralProcessor": _CLIP,
    "LlamaNemotronNanoVLProcessor": _NONE,
    "NanoNemotronVLProcessor": _HALF,
}
"""Values of other processors of vLLM, which do not report them. Those that the recipes write have halves."""
LIKE_MAX = 12.0
"""Most levels of 255 by which the most similar picture may differ from the attachment in the mean, by scaling."""

_IMAGENET_LEVELS = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
OTHERWISE_CALLED = ("KimiK25Processor", "MiniCPMV4_6Processor", "MiniCPMV4_7Processor", "Ovis2_5Processor")
"""Their image processor, called by itself, makes other sizes or layouts."""


async def seen_as_given(engine: Any, model: Model, attachments: list[Attachment], folder: Path) -> str:
    """Ask the engine what its model sees of an image, and hold that against its own tensors and the attachment.

    Raises AssertionError."""
    turn = user_turn("What is {this}?", attachments)
    view = View(folder=str(private_dir(folder.resolve())))
    request = to_render(make_request(model.family, [turn], Sampling()), view)
    ready: PromptReady | None = None
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            ready = event if isinstance(event, PromptReady) else ready
    assert ready is not None
    (medium,) = ready.seen
    assert medium.layout, f"the layout is unknown: {ready.media[0].tensors}"
    assert medium.is_exact, "mean and deviation are unknown"
    pictures = [Image.open(one.path).convert("RGB") for one in medium.pictures]
    assert [one.size for one in pictures] == [(one.width, one.height) for one in medium.pictures]
    rendered = await engine._render(request, await load_items(attachments), is_sent=False)
    (item,) = of_modality(rendered["mm_kwargs"], "image")
    data = {name: one.data for name, one in item.items()}
    worst = _levels_apart(pictures, data[medium.tensor], engine._processor(), medium.layout)
    assert worst <= 0.51, f"{worst:.2f} levels apart from the tensor"
    with Image.open(attachments[0].path) as image:
        like = min(
            _difference(image.convert("RGB"), one) for each in pictures for one in (each, _without_padding(each))
        )
    assert like <= LIKE_MAX, f"{like:.1f} levels apart from the attachment"
    return f"{len(pictures)} {medium.layout}, {worst:.2f} levels apart"


def _levels_apart(pictures: list[Image.Image], tensor: Any, processor: Any, layout: str) -> float:
    """The most by which a value of the tensor differs from that of the pictures, in levels of 255."""
    own = getattr(processor, "image_processor", processor)
    is_raw = "uint8" in str(getattr(tensor, "dtype", "")) or float(tensor[0].max()) > 16  # the model normalises
    if _is_of_recipe(processor, own) or type(processor).__name__ in OTHERWISE_CALLED:
        return _values_apart(pictures, tensor, is_raw=is_raw)
    if type(processor).__name__ == "MiMoOmniProcessor":  # patches of every image twice, one channel after the other
        held = tensor.float().numpy().reshape(len(tensor), 3, 2, -1)[:, :, 0].transpose(0, 2, 1)
        return _sorted_apart(pictures, held * np.asarray(_IMAGENET_LEVELS[1]) + np.asarray(_IMAGENET_LEVELS[0]))
    if layout == "patches":
        # The library's own processor cuts the pictures into patches again.
        raw = {"do_rescale": False, "do_normalize": False} if is_raw else {}
        again = own(images=pictures, do_resize=False, return_tensors="pt", **raw)["pixel_values"].float().numpy()
        held = tensor.float().numpy()
        if held.ndim == 2 and again.ndim == 3:  # Gemma 4: without the padding of this call's
            again = again[0]
        held = held.reshape(again.shape)
        return float(np.abs(again - held).max()) * (1 if is_raw else 255 * max(own.image_std))
    untold = UNTOLD.get(type(processor).__name__, IMAGENET)
    mean, std = untold if not hasattr(own, "image_mean") else (own.image_mean, own.image_std)
    if not getattr(own, "do_normalize", True):
        mean, std = (0.0,) * 3, (1.0,) * 3
    tensors = tensor if isinstance(tensor, list) else [tensor]
    held = np.concatenate([one.float().numpy().reshape(-1, 3, *one.shape[-2:]) for one in tensors])
    assert len(held) == len(pictures)
    if is_raw:
        mean, std = (0.0,) * 3, (1 / 255,) * 3
    shown = held.transpose(0, 2, 3, 1) * np.asarray(std) + np.asarray(mean)
    return max(float(np.abs(one * 255 - np.asarray(two)).max()) for one, two in zip(shown, pictures, strict=True))


def _is_of_recipe(processor: Any, own: Any) -> bool:
    modules = type(processor).__module__, type(own).__module__
    halves = tuple(getattr(own, "image_mean", _HALF[0])) == _HALF[0]
    return any(one.startswith("transformers_modules") for one in modules) and halves


def _values_apart(pictures: list[Image.Image], tensor: Any, *, is_raw: bool) -> float:
    """The same for values in any order: the largest difference between the sorted ones."""
    tensors = tensor if isinstance(tensor, list) else [tensor]
    held = np.concatenate([one.float().numpy().ravel() for one in tensors])
    mean, std = _HALF
    return _sorted_apart(pictures, held if is_raw else (held * std[0] + mean[0]) * 255)


def _sorted_apart(pictures: list[Image.Image], levels: Any) -> float:
    shown = np.sort(np.concatenate([np.asarray(one, np.float32).ravel() for one in pictures]))
    return float(np.abs(np.sort(levels.ravel()) - shown).max())


def _without_padding(picture: Image.Image) -> Image.Image:
    """Return a picture without black at its right and lower edge, which Kimi's processor adds to fill patches."""
    filled = picture.getbbox()
    return picture.crop((0, 0, *filled[2:])) if filled is not None else picture


def _difference(one: Image.Image, other: Image.Image) -> float:
    """The mean difference of two pictures at the same size, in levels."""
    small = [np.asarray(image.resize((32, 32)), np.float32) for image in (one, other)]
    return float(np.abs(small[0] - small[1]).mean())
