"""The scale of a decoder's scores is applied where a model's class leaves it out, and only there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vlmtui.worker.backends.transformers.logit_scale import repair_logit_scale

torch = pytest.importorskip("torch")


def model(scale: object, *, knows: bool = False) -> Any:
    """A model with one head; `knows`: its class scales by itself."""

    class Leaves(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lm_head = torch.nn.Linear(2, 2, bias=False)
            self.config = SimpleNamespace(text_config=SimpleNamespace(logit_scale=scale))

        def get_output_embeddings(self) -> Any:
            return self.lm_head

        def forward(self, states: Any) -> Any:
            return self.lm_head(states)

    class Knows(Leaves):
        def forward(self, states: Any) -> Any:
            return self.lm_head(states) * self.config.text_config.logit_scale

    return Knows() if knows else Leaves()


def test_a_scale_that_is_left_out_is_applied() -> None:
    made, given = model(0.0625), torch.ones(1, 2)
    plain = made(given)
    assert repair_logit_scale(made)
    assert torch.allclose(made(given), plain * 0.0625)


@pytest.mark.parametrize(("scale", "knows"), [(0.0625, True), (1.0, False), (None, False)])
def test_a_class_that_scales_and_a_model_without_a_scale_are_left_alone(scale: object, knows: bool) -> None:
    made, given = model(scale, knows=knows), torch.ones(1, 2)
    before = made(given)
    assert not repair_logit_scale(made)
    assert torch.equal(made(given), before)
