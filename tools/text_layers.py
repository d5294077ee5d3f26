"""The text layers of the bundled model with changed matrices, for training on a CPU.

Uses bfloat16, joins matrices with the same input, and compiles for one shape: three times as fast as the model's own
`forward` on a CPU with AMX. Computes the last layer only for the tokens in the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as functional

WIDTH, HEADS, SIDE = 192, 3, 64
Weights = tuple[Any, ...]
"""A layer's weights: queries, keys and values joined, their bias, output, gate and up joined, down, two norms."""


class Layers:
    """The text layers of the bundled model with changed matrices. Same results as its own `forward`, but much
    faster."""

    def __init__(self, model: Any) -> None:
        self.text, self.image_token = model.model.language_model, model.config.image_token_id
        self.spell = model.lm_head.weight.bfloat16()
        self.names = [name for name, _ in self.text.named_parameters() if name.endswith("proj.weight")]
        self.own = dict(self.text.named_parameters())
        self.inner, self.outer = (torch.compile(layer, dynamic=False) for layer in (inner_layer, outer_layer))

    def read(self, ids: Any, positions: Any, looks: Any, at: Any, changes: dict[str, Any]) -> tuple[Any, Any, Any]:
        """Return the hidden states (B, T, WIDTH) of the tokens at `at` (B, T): after all layers, before the last one,
        and before the last two.

        `ids`: (B, L), `positions`: (3, B, L), `looks`: all image tokens in order (tokens, WIDTH), `changes`: values to
        add to the matrices.
        """
        hidden = self.text.embed_tokens(ids)
        mask = (ids == self.image_token)[..., None].expand_as(hidden)
        hidden = hidden.masked_scatter(mask, looks.float())
        turn = tuple(table.unsqueeze(1).bfloat16() for table in self.text.rotary_emb(hidden, positions))
        places, least = torch.arange(ids.shape[1]), torch.tensor(-math.inf, dtype=torch.bfloat16)
        causal = torch.where(places <= places[:, None], 0, least)[None]
        asked = torch.where(places <= at[..., None], 0, least)
        *inner, outer = self._weights(changes)
        earlier = hidden
        for weights in inner:
            earlier, hidden = hidden, self.inner(hidden, turn, causal, weights)
        earlier = earlier.gather(1, at[..., None].expand(-1, -1, WIDTH))
        hidden, before = self.outer(hidden, turn, asked, outer, at)
        return functional.rms_norm(hidden, (WIDTH,), self.text.norm.weight, 1e-6), before, earlier

    def _weights(self, changes: dict[str, Any]) -> Iterator[Weights]:
        """Yield each layer's matrices, those with the same input joined, and the weights of its two norms."""
        for number, layer in enumerate(self.text.layers):
            attention, found = layer.self_attn, {}
            for name in (name for name in self.names if name.startswith(f"layers.{number}.")):
                found[name.split(".")[-2][:-5]] = self.own[name] + changes[name]
            bias = torch.cat([getattr(attention, f"{name}_proj").bias for name in "qkv"])
            parts = (
                torch.cat([found[name] for name in "qkv"]), bias, found["o"],
                torch.cat([found["gate"], found["up"]]), found["down"],
            )  # fmt: skip
            norms = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
            yield (*(part.bfloat16() for part in parts), *norms)


def turned(heads: Any, turn: tuple[Any, Any]) -> Any:
    """Apply the rotary embedding."""
    first, second = heads.chunk(2, -1)
    return heads * turn[0] + torch.cat((-second, first), -1) * turn[1]


def normed(hidden: Any, weight: Any) -> Any:
    return (hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + 1e-6) * weight).bfloat16()


def attended(queries: Any, keys: Any, values: Any, mask: Any) -> Any:
    """Attention of (B, HEADS, T, SIDE) to the one head of keys and values (B, 1, L, SIDE)."""
    count, _, asked, _ = queries.shape
    scores = torch.bmm((queries * SIDE**-0.5).reshape(count, HEADS * asked, SIDE), keys[:, 0].transpose(1, 2))
    shares = torch.softmax((scores.view(count, HEADS, asked, -1) + mask[:, None]).float(), -1).bfloat16()
    found = torch.bmm(shares.view(count, HEADS * asked, -1), values[:, 0])
    return found.view(count, HEADS, asked, SIDE).transpose(1, 2).reshape(count, asked, HEADS * SIDE)


def fed_forward(hidden: Any, weights: Weights) -> Any:
    gate, up = functional.linear(normed(hidden, weights[6]), weights[3]).chunk(2, -1)
    return hidden + functional.linear(functional.silu(gate) * up, weights[4])


def inner_layer(hidden: Any, turn: tuple[Any, Any], mask: Any, weights: Weights) -> Any:
    """Compute a layer for all tokens."""
    joined, bias, out = weights[:3]
    heads = functional.linear(normed(hidden, weights[5]), joined, bias)
    heads = heads.view(*hidden.shape[:2], HEADS + 2, SIDE).transpose(1, 2)
    queries, keys = turned(heads[:, :HEADS], turn), turned(heads[:, HEADS : HEADS + 1], turn)
    return fed_forward(hidden + functional.linear(attended(queries, keys, heads[:, HEADS + 1 :], mask), out), weights)


def outer_layer(hidden: Any, turn: tuple[Any, Any], mask: Any, weights: Weights, at: Any) -> tuple[Any, Any]:
    """Compute the last layer for the tokens at `at`; also return the hidden states of these tokens before it."""
    joined, bias, out = weights[:3]
    known = normed(hidden, weights[5])
    pair = functional.linear(known, joined[WIDTH:], bias[WIDTH:]).view(*hidden.shape[:2], 2, SIDE).transpose(1, 2)
    wide, head = at[..., None].expand(-1, -1, WIDTH), at[:, None, :, None].expand(-1, 1, -1, SIDE)
    before = hidden.gather(1, wide)
    queries = functional.linear(known.gather(1, wide), joined[:WIDTH], bias[:WIDTH])
    queries = queries.view(*at.shape, HEADS, SIDE).transpose(1, 2)
    queries = turned(queries, (turn[0].gather(2, head), turn[1].gather(2, head)))
    found = attended(queries, turned(pair[:, :1], turn), pair[:, 1:], mask)
    return fed_forward(before + functional.linear(found, out), weights), before
