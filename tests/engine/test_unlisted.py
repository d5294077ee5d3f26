"""Models of no family: one whose architecture only Transformers has, one that only vLLM has, and one of a server. They
answer about pictures nevertheless."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.asker import Asker
from tests.support.engine_site import watch_for_torchvision
from tests.support.hosts import patient_host
from tests.support.vllm_server import VllmServer, free_port
from tests.zoo.kit import load_tokenizer, make_checkpoint, text_model, vision_model, write_config
from tests.zoo.matters import medium_matters
from tests.zoo.recipes.native_llava import SIDE, VICUNA, llama_tokenizer, square
from tests.zoo.trial import MODES
from tests.zoo.weights import save_with_weights
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import EngineReady
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.remote_models import find_remote_model
from vlmtui.media.stage import stage
from vlmtui.paths import Paths, bundled
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.comparison import PromptComparison, RawDraft
from vlmtui.session.generation import request_for

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


async def test_a_model_that_only_vllm_knows_answers_in_both_modes(short_path: Path) -> None:
    """Qianfan-OCR, as if it had no record. Its chat template writes texts only: vLLM puts the placeholder into them."""
    others = {name: family for name, family in Registry.bundled().items() if name != "qianfan_ocr"}
    model = resolve(Registry(others), str(make_checkpoint("qianfan_ocr", short_path / "model")))
    assert not model.listed and model.spec.backend == "vllm"
    arguments = {"dtype": "float32", "load_format": "dummy", "max_model_len": 2048, "max_num_seqs": 2}
    model = Model(model.family, msgspec.structs.replace(model.spec, engine_args=arguments))
    client = await patient_host(Paths.below(short_path)).open(model.spec, client="tests", keep_alive_s=0)
    ready = [event async for event in client.load()][-1]
    assert isinstance(ready, EngineReady), ready
    assert ready.info.architecture == "QianfanOCRForConditionalGeneration"
    turn = user_turn("What is {this}?", [stage(bundled("samples") / "circle.png", short_path / "media")])
    chat, raw = [await Asker(client, model)(turn, mode=mode) for mode in MODES]
    for answer in (chat, raw):
        assert answer.token_ids and answer.prompt is not None, answer.failure
        assert len(answer.prompt.media) == 1 and answer.prompt.media[0].tokens
    assert chat.prompt is not None and raw.prompt is not None
    assert chat.prompt.token_ids == raw.prompt.token_ids
    comparison = PromptComparison((turn,), model.family, ready.info, Sampling(), RawDraft())
    text, _ = await comparison.template_text(lambda: client)
    assert text.count("<image>") == 1 and "What is {this}?" in text
    await client.shutdown()


@pytest.fixture
def address(short_path: Path) -> Iterator[str]:
    """The address of a server with the bundled model, under names that no record has. It takes no other template."""
    shutil.copytree(bundled("shapes"), short_path / "mystery")
    address = f"http://127.0.0.1:{(port := free_port())}"
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "mystery"]
    arguments += ["--no-trust-request-chat-template"]
    server = VllmServer(str(short_path / "mystery"), short_path, arguments)
    try:
        server.wait_until_ready(address)
        yield address
    finally:
        server.end()


async def test_a_model_of_a_server_that_no_record_knows_answers_in_both_modes(address: str, short_path: Path) -> None:
    model = await asyncio.to_thread(find_remote_model, Registry.bundled(), {}, address)
    assert not model.listed
    client = await patient_host(Paths.below(short_path)).open(model.spec, client="tests", keep_alive_s=0)
    ready = [event async for event in client.load()][-1]
    assert isinstance(ready, EngineReady), ready
    turn = user_turn("What is shown?", [stage(bundled("samples") / "circle.png", short_path / "media")])
    chat, raw = [await Asker(client, model)(turn, mode=mode, sampling=Sampling(temperature=0)) for mode in MODES]
    for answer in (chat, raw):
        assert "circle" in answer.text, answer.failure
        assert answer.prompt is not None and [span.modality for span in answer.prompt.media] == ["image"]
        assert answer.prompt.prompt.startswith("<|im_start|>user")
    assert chat.prompt is not None and raw.prompt is not None
    assert chat.prompt.token_ids == raw.prompt.token_ids and chat.token_ids == raw.token_ids
    comparison = PromptComparison((turn,), model.family, ready.info, Sampling(), RawDraft())
    text, _ = await comparison.template_text(lambda: client)
    assert text.count("<|image_pad|>") == 1
    comparison.draft.fill(text.replace("What is shown?", "Which colour?"))
    assert not [finding for finding in comparison.check(comparison.draft.text) if finding.blocks]
    edited = await Asker(client, model).run(request_for(comparison.raw_prompt(), model.family, Sampling(temperature=0)))
    assert edited.text and edited.prompt is not None and len(edited.prompt.media) == 1, edited.failure
    await client.shutdown()
