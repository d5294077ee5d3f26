"""The vLLM backend's work for classes of vlmtui and for a small context, without loading a model."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

from vlmtui.registry.loader import Registry
from vlmtui.registry.match import model_of
from vlmtui.worker.backends.vllm.engine_args import own_context
from vlmtui.worker.backends.vllm.models import as_qwen2_vl, config_change


def test_tarsier2_is_taken_out_of_its_shell_in_every_process() -> None:
    change = config_change(model_of(Registry.bundled()["tarsier2"]).spec.engine_args)
    assert pickle.loads(pickle.dumps(change)) == {"hf_overrides": as_qwen2_vl}
    inner = SimpleNamespace(model_type="qwen2_vl")
    assert as_qwen2_vl(SimpleNamespace(model_type="llava", text_config=inner)) is inner
    assert inner.architectures == ["Tarsier2ForConditionalGeneration"]
    other = SimpleNamespace(model_type="llava", text_config=SimpleNamespace(model_type="llama"))
    assert as_qwen2_vl(other) is other
    assert config_change(model_of(Registry.bundled()["tarsier"]).spec.engine_args) == {}
    assert config_change({}) == {}


def test_the_context_is_read_from_vllms_refusal() -> None:
    refusal = (
        "User-specified max_model_len (8192) is greater than the derived max_model_len (max_position_embeddings=512.0 "
        "or model_max_length=None in model's config.json)."
    )
    assert own_context(refusal) == 512
    assert own_context("something else") is None
