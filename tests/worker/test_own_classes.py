"""The vLLM backend's work for classes of vlmtui and for a small context, without loading a model."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from vlmtui.registry.loader import Registry
from vlmtui.registry.match import model_of
from vlmtui.worker.backends.vllm.engine_args import own_context
from vlmtui.worker.backends.vllm.models import as_qwen2_vl, config_change
from vlmtui.worker.backends.vllm.worker_extension import keep_arguments_apart


def test_tarsier2s_config_is_unwrapped_in_every_process() -> None:
    change = config_change(model_of(Registry.bundled()["tarsier2"]).spec.engine_args)
    assert pickle.loads(pickle.dumps(change)) == {"hf_overrides": as_qwen2_vl}
    inner = SimpleNamespace(model_type="qwen2_vl")
    assert as_qwen2_vl(SimpleNamespace(model_type="llava", text_config=inner)) is inner
    assert inner.architectures == ["Tarsier2ForConditionalGeneration"]
    other = SimpleNamespace(model_type="llava", text_config=SimpleNamespace(model_type="llama"))
    assert as_qwen2_vl(other) is other
    assert config_change(model_of(Registry.bundled()["tarsier"]).spec.engine_args) == {}
    assert config_change({}) == {}


def test_the_context_is_read_from_vllms_error() -> None:
    refusal = (
        "User-specified max_model_len (8192) is greater than the derived max_model_len (max_position_embeddings=512.0 "
        "or model_max_length=None in model's config.json)."
    )
    assert own_context(refusal) == 512
    assert own_context("something else") is None


@pytest.mark.parametrize("name", ["InternVLVideoProcessor", "InternVLChatVideoProcessor"])
def test_internvls_videos_get_only_the_arguments_that_they_take(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """vLLM 0.32 and 0.33 give the class different names, and both hand it the arguments of the images."""

    def __init__(self: Any, image_size: int = 448) -> None:
        self.image_size = image_size

    made = type(name, (), {"__init__": __init__})

    class Info:
        def get_video_processor(self, **given: Any) -> Any:
            return made(**given)

    module = SimpleNamespace(InternVLProcessingInfo=Info)
    monkeypatch.setitem(sys.modules, "vllm.model_executor.models.internvl", module)
    with pytest.raises(TypeError, match="max_dynamic_patch"):
        Info().get_video_processor(max_dynamic_patch=4)
    for _ in range(2):
        keep_arguments_apart()
    assert Info().get_video_processor(max_dynamic_patch=4).image_size == 448
    assert Info().get_video_processor(max_dynamic_patch=4, image_size=28).image_size == 28


def test_internvls_videos_get_every_argument_once_they_take_any(monkeypatch: pytest.MonkeyPatch) -> None:
    class Processor:
        def __init__(self, **given: Any) -> None:
            self.given = given

    class Info:
        def get_video_processor(self, **given: Any) -> Any:
            return Processor(**given)

    module = SimpleNamespace(InternVLProcessingInfo=Info)
    monkeypatch.setitem(sys.modules, "vllm.model_executor.models.internvl", module)
    keep_arguments_apart()
    assert Info().get_video_processor(max_dynamic_patch=4).given == {"max_dynamic_patch": 4}
