"""A model of no listed family, whose architecture only Transformers has: it answers about pictures nevertheless."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.asker import Asker
from tests.support.engine_site import watch_for_torchvision
from tests.support.hosts import patient_host
from tests.zoo.kit import load_tokenizer, text_model, vision_model, write_config
from tests.zoo.matters import medium_matters
from tests.zoo.recipes.native_llava import SIDE, VICUNA, llama_tokenizer, square
from tests.zoo.weights import save_with_weights
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import EngineReady
from vlmtui.media.stage import stage
from vlmtui.paths import Paths, bundled
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
_TOKENS = 16
"""The tokens of an image."""


def make(folder: Path) -> Path:
    """ViP-LLaVA: LLaVA whose features are of several layers."""
    watch_for_torchvision()
    from transformers import CLIPImageProcessor, CLIPVisionConfig, LlamaConfig, LlavaProcessor, VipLlavaConfig

    folder.mkdir()
    ids = llama_tokenizer(folder, VICUNA)
    config = VipLlavaConfig(
        vision_config=CLIPVisionConfig(**vision_model(SIDE), projection_dim=64),
        text_config=LlamaConfig(**text_model(ids[""])),
        image_token_index=ids["<image>"], image_seq_length=_TOKENS, vision_feature_layers=[-2, -1],
    )  # fmt: skip
    write_config(folder, config, "VipLlavaForConditionalGeneration")
    LlavaProcessor(
        CLIPImageProcessor(**square() | {"size": {"shortest_edge": SIDE}}), load_tokenizer(folder),
        patch_size=14, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=VICUNA,
    ).save_pretrained(folder)  # fmt: skip
    save_with_weights(folder)
    return folder


async def test_a_model_that_only_transformers_knows_answers_about_a_picture(short_path: Path) -> None:
    model = resolve(Registry.bundled(), str(make(short_path / "model")))
    assert not model.listed
    assert model.spec.backend == "transformers"
    client = await patient_host(Paths.below(short_path)).open(model.spec, client="tests", keep_alive_s=0)
    ready = [event async for event in client.load()][-1]
    assert isinstance(ready, EngineReady), ready
    assert ready.info.architecture == "VipLlavaForConditionalGeneration"
    picture = stage(bundled("samples") / "circle.png", short_path / "media")
    answer = await Asker(client, model)(user_turn("What is {this}?", [picture]))
    assert answer.token_ids and answer.prompt is not None, answer.failure
    assert [span.tokens for span in answer.prompt.media] == [_TOKENS]
    assert await medium_matters(client, model, "image", short_path / "other")
    await client.shutdown()
