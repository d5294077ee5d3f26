"""Check that the engine gets the features of a sound that the library's own feature extractor makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vlmtui.domain.conversation import Attachment, user_turn
from vlmtui.domain.sampling import Sampling
from vlmtui.media.sound import read_sound
from vlmtui.registry.match import Model
from vlmtui.session.generation import make_request
from vlmtui.worker.hf.media_items import load_items

_FEATURES = ("input_features", "audio_input_features")
APART_MAX = 1e-3
"""Most by which two log-mel values may differ."""


async def heard_as_given(engine: Any, model: Model, attachments: list[Attachment]) -> str:
    """Hold the engine's own tensor of a sound against the extractor's. Raises AssertionError."""
    request = make_request(model.family, [user_turn("What is {this}?", attachments)], Sampling())
    rendered = await engine._render(request, await load_items(attachments), is_sent=False)
    data = {name: element.data for name, element in rendered["mm_kwargs"]["audio"][0].items()}
    name, held = max(((name, _flat(value)) for name, value in data.items()), key=lambda one: one[1].size)
    processor = engine._processor()
    extractor = getattr(processor, "feature_extractor", None) or processor.audio_processor
    own = getattr(getattr(processor, "valid_processor_kwargs", None), "_defaults", {}).get("audio_kwargs", {})
    padding = {name: own[name] for name in ("padding", "truncation") if name in own}
    rate = extractor.sampling_rate
    samples = read_sound(Path(attachments[0].path), rate)
    features = extractor([samples], sampling_rate=rate, return_tensors="np", **padding)
    made = _flat(next(features[one] for one in _FEATURES if one in features))
    if held.shape[0] != made.shape[0] and held.shape[1] != made.shape[1]:
        made = made.T
    rows, columns = (min(one, other) for one, other in zip(held.shape, made.shape, strict=True))
    assert min(rows, columns) > 10, f"{name} is {held.shape}, the extractor's {made.shape}"
    apart = float(np.abs(held[:rows, :columns] - made[:rows, :columns]).max())
    assert apart <= APART_MAX, f"{name} differs by {apart:.3g}"
    return f"{name} {rows} × {columns}, {apart:.2g} apart"


def _flat(value: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """The last two dimensions of a tensor, or of the first of a list."""
    found = value[0] if isinstance(value, list) else value
    found = found.float().numpy() if hasattr(found, "float") else np.asarray(found)
    while found.ndim > 2:
        found = found[0]
    flat: np.ndarray[Any, np.dtype[Any]] = found if found.ndim == 2 else found.reshape(-1, 1)
    return flat
