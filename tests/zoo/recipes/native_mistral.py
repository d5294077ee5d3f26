"""Families with a Pixtral tower: an image of any shape, one row of tokens after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.zoo.kit import load_tokenizer, recipe, text_model, vision_model, write_config, write_tokenizer
from tests.zoo.templates import chat_template, chatml

SIDE = 56
IMAGE_PAD = "<|image_pad|>"
MISTRAL_TOKENS = (
    "<unk>", "<s>", "</s>", "<pad>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
    "[IMG]", "[IMG_BREAK]", "[IMG_END]",
)  # fmt: skip


def mistral_tokenizer(folder: Path, system: tuple[str, str]) -> dict[str, int]:
    """The tokenizer of a Mistral with pictures; `system` encloses the system message."""
    template = chat_template(
        {"system": system[0], "user": "[INST]", "assistant": ""},
        {"system": system[1], "user": "[/INST]", "assistant": "</s>"},
        "",
        image="[IMG]",
        start="<s>",
    )
    return write_tokenizer(
        folder,
        MISTRAL_TOKENS,
        bos="<s>",
        eos="</s>",
        pad="<pad>",
        unk="<unk>",
        add_bos=True,
        chat_template=template,
        image_token="[IMG]",
        image_break_token="[IMG_BREAK]",
        image_end_token="[IMG_END]",
    )


def pixtral_tower() -> Any:
    """The config of the vision tower."""
    from transformers import PixtralVisionConfig

    return PixtralVisionConfig(**vision_model(SIDE), head_dim=32)


def save_processor(folder: Path, patch: int, merge: int, **tokens: str) -> None:
    """Save Pixtral's processor; `tokens` are those that differ from Mistral's."""
    from transformers import PixtralImageProcessor, PixtralProcessor

    # The image is made a multiple of the patches that become one token together.
    size = {"height": patch * merge, "width": patch * merge}
    PixtralProcessor(
        PixtralImageProcessor(size={"longest_edge": SIDE}, patch_size=size),
        load_tokenizer(folder),
        patch_size=patch,
        spatial_merge_size=merge,
        **tokens,
    ).save_pretrained(folder)


@recipe("pixtral_hf")
def pixtral_hf(folder: Path) -> None:
    """Pixtral in the layout of Hugging Face, where it is a LLaVA."""
    from transformers import LlavaConfig, MistralConfig

    ids = mistral_tokenizer(folder, ("", "\n\n"))
    config = LlavaConfig(
        vision_config=pixtral_tower(),
        text_config=MistralConfig(**text_model(ids[""])),
        image_token_index=ids["[IMG]"],
        vision_feature_layer=-1, vision_feature_select_strategy="full",
    )  # fmt: skip
    write_config(folder, config, "LlavaForConditionalGeneration")
    save_processor(folder, 14, 1)


@recipe("mistral3")
def mistral3(folder: Path) -> None:
    """Mistral Small 3.1: Pixtral's tower, four patches to a token."""
    from transformers import Mistral3Config, MistralConfig

    ids = mistral_tokenizer(folder, ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"))
    config = Mistral3Config(
        vision_config=pixtral_tower(),
        text_config=MistralConfig(**text_model(ids[""])),
        image_token_index=ids["[IMG]"], vision_feature_layer=-1,
    )  # fmt: skip
    write_config(folder, config, "Mistral3ForConditionalGeneration")
    save_processor(folder, 14, 2)


@recipe("lightonocr")
def lightonocr(folder: Path) -> None:
    """LightOnOCR: a Mistral 3 whose decoder is Qwen3."""
    from transformers import Mistral3Config, Qwen3Config

    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", IMAGE_PAD, "<|vision_pad|>", "<|vision_end|>")
    ids = write_tokenizer(
        folder,
        special,
        eos="<|im_end|>",
        pad="<|endoftext|>",
        chat_template=chatml(IMAGE_PAD, no_system="<|im_start|>system<|im_end|>\n"),
    )
    config = Mistral3Config(
        vision_config=pixtral_tower(),
        text_config=Qwen3Config(**text_model(ids[""])),
        image_token_index=ids[IMAGE_PAD], vision_feature_layer=-1,
    )  # fmt: skip
    write_config(folder, config, "LightOnOCRForConditionalGeneration")
    names = {"image_break_token": "<|vision_pad|>", "image_end_token": "<|vision_end|>"}
    save_processor(folder, 14, 2, image_token=IMAGE_PAD, **names)
