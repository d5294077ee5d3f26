"""Multiplies the scores of Cohere's vision models by their decoder's `logit_scale` where Transformers does not.

`Cohere2ForCausalLM` multiplies its scores by `logit_scale` (0.0625 unless the config says otherwise). The classes of
Aya Vision and Command A Vision apply the decoder's head without it: greedy answers stay, but all probabilities are
those of a far lower temperature. See docs/transformers.md.
"""

from __future__ import annotations

import inspect
from typing import Any

_NAME = "logit_scale"


def repair_logit_scale(model: Any) -> bool:
    """Scale the scores if the decoder's config has a scale and the model's class does not know it. Returns whether."""
    decoder = getattr(getattr(model, "config", None), "text_config", None)
    scale = getattr(decoder, _NAME, None)
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if not isinstance(scale, float) or scale == 1.0 or head is None:
        return False
    if _NAME in inspect.getsource(type(model).forward) or hasattr(model, _NAME):
        return False
    head.register_forward_hook(lambda _module, _arguments, scores: scores * scale)
    return True
