"""Cohere's families: a SigLIP tower that sees an image in tiles, and a Cohere 2 decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.zoo.kit import load_tokenizer, recipe, text_model, vision_model, write_config, write_tokenizer
from tests.zoo.templates import chat_template

TURN = "<|START_OF_TURN_TOKEN|>"
END = "<|END_OF_TURN_TOKEN|>"
TOKENS = (
    "<PAD>", "<UNK>", "<BOS_TOKEN>", "<EOS_TOKEN>", TURN, END, "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>",
    "<|SYSTEM_TOKEN|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<image>", "<|START_OF_IMG|>", "<|END_OF_IMG|>",
    "<|IMG_LINE_BREAK|>", "<|IMG_PATCH|>", "TILE_GLOBAL", *(f"TILE_{tile}" for tile in range(1, 13)),
)  # fmt: skip


def cohere_tokenizer(folder: Path, image: str, response: tuple[str, str] = ("", "")) -> dict[str, int]:
    """The tokenizer and template; `response` encloses an answer inside its turn."""
    template = chat_template(
        {
            "system": f"{TURN}<|SYSTEM_TOKEN|>",
            "user": f"{TURN}<|USER_TOKEN|>",
            "assistant": f"{TURN}<|CHATBOT_TOKEN|>{response[0]}",
        },
        {"system": END, "user": END, "assistant": f"{response[1]}{END}"},
        f"{TURN}<|CHATBOT_TOKEN|>{response[0]}",
        image=image,
        start="<BOS_TOKEN>",
    )
    return write_tokenizer(
        folder, TOKENS, bos="<BOS_TOKEN>", eos=END, pad="<PAD>", unk="<UNK>", add_bos=True, chat_template=template,
        image_token=image, boi_token="<|START_OF_IMG|>", eoi_token="<|END_OF_IMG|>",
        img_line_break_token="<|IMG_LINE_BREAK|>",
    )  # fmt: skip


def decoder(ids: dict[str, int]) -> Any:
    """The config of the decoder."""
    from transformers import Cohere2Config

    facts = {"sliding_window": 512, "layer_types": ["sliding_attention", "full_attention"]}
    tokens = {"pad_token_id": ids["<PAD>"], "bos_token_id": ids["<BOS_TOKEN>"], "eos_token_id": ids[END]}
    return Cohere2Config(**text_model(ids[""], **facts, **tokens))


@recipe("command_a_vision", note="its first answer is slow: something compiles")
def command_a_vision(folder: Path) -> None:
    """Command A Vision. A tile has as many tokens as a patch has pixels, 16."""
    from transformers import (
        Cohere2VisionConfig,
        Cohere2VisionImageProcessor,
        Cohere2VisionProcessor,
        SiglipVisionConfig,
    )

    side = 32
    ids = cohere_tokenizer(folder, "<|IMG_PATCH|>", ("<|START_RESPONSE|>", "<|END_RESPONSE|>"))
    config = Cohere2VisionConfig(
        vision_config=SiglipVisionConfig(**vision_model(side, 4), vision_use_head=False),
        text_config=decoder(ids), image_token_id=ids["<|IMG_PATCH|>"], alignment_intermediate_size=128,
    )  # fmt: skip
    write_config(folder, config, "Cohere2VisionForConditionalGeneration")
    images = Cohere2VisionImageProcessor(size={"height": side, "width": side}, patch_size=4, max_patches=4)
    Cohere2VisionProcessor(images, load_tokenizer(folder)).save_pretrained(folder)


@recipe("aya_vision")
def aya_vision(folder: Path) -> None:
    """Aya Vision: four tokens a tile; vLLM runs it through transformers' own class."""
    from transformers import AyaVisionConfig, AyaVisionProcessor, GotOcr2ImageProcessor, SiglipVisionConfig

    side = 56
    ids = cohere_tokenizer(folder, "<image>")
    config = AyaVisionConfig(
        vision_config=SiglipVisionConfig(**vision_model(side), vision_use_head=False), text_config=decoder(ids),
        image_token_index=ids["<|IMG_PATCH|>"],
    )  # fmt: skip
    write_config(folder, config, "AyaVisionForConditionalGeneration")
    images = GotOcr2ImageProcessor(size={"height": side, "width": side}, crop_to_patches=True, max_patches=4)
    AyaVisionProcessor(
        images, load_tokenizer(folder), patch_size=14, img_size=side, downsample_factor=2
    ).save_pretrained(folder)
