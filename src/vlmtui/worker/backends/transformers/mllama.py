"""Llama 3.2 Vision: where its images are, and its image features where Transformers takes them from the wrong layers.

The vision tower's `intermediate_layers_indices` count the input of the first layer as 0. Since version 4.57 at the
latest, Transformers collects the layers' outputs alone, without that input, so each index means one layer too late; the
features of an image then differ in their intermediate half (log-probabilities by 0.3), and those of a text not at all.
See docs/transformers.md. Report to send: docs/upstream/transformers-mllama-features.md; look at Transformers 5.25.
"""

from __future__ import annotations

import inspect
from typing import Any

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.transformers.devices import input_device


def cross_attention_note(config: Any) -> str:
    """Return what the count of tokens does not tell of a model that sees by cross-attention; empty for others."""
    if not getattr(getattr(config, "text_config", None), "cross_attention_layers", None):
        return ""
    return "Images reach this model by cross-attention: each takes one token of the prompt, whatever its size."


def repair_image_features(model: Any) -> bool:
    """Shift the indices by one if this Transformers counts them wrong. Returns whether it did.

    Looks at what the vision tower returns, not at its version. Raises VlmtuiError if the repair is impossible."""
    tower = getattr(getattr(model, "model", None), "vision_model", None)
    indices = getattr(tower, "intermediate_layers_indices", None)
    if tower is None or indices is None or not _lacks_the_input(tower.transformer, input_device(model)):
        return False
    if 0 in indices:
        raise VlmtuiError(
            ErrorKind.ARCHITECTURE_UNSUPPORTED,
            "This version of Transformers reads images of this model wrongly.",
            detail=f"intermediate_layers_indices = {list(indices)}: the input of the first layer is not to be had.",
        )
    tower.intermediate_layers_indices = [index - 1 for index in indices]
    return True


def _lacks_the_input(encoder: Any, device: Any) -> bool:
    """Whether the encoder's hidden states begin with the first layer's output instead of its input."""
    import torch

    weight = next(encoder.parameters())
    given = torch.ones(1, 4, encoder.config.hidden_size, dtype=weight.dtype, device=device)
    given[:, ::2] = -1
    with torch.no_grad():
        asked = {"output_hidden_states"} & inspect.signature(encoder.forward).parameters.keys()
        states = encoder(given, attention_mask=None, **dict.fromkeys(asked, True)).hidden_states
    return not torch.equal(states[0].to(device), given)
