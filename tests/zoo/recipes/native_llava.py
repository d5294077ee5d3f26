"""LLaVA and its kin: a CLIP or SigLIP tower, a projector and a decoder, and `<image>` where the picture goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.zoo.kit import load_tokenizer, recipe, text_model, vision_model, write_config, write_tokenizer
from tests.zoo.templates import chat_template, chatml

SIDE = 56
GRIDS = [[SIDE, 2 * SIDE], [2 * SIDE, SIDE], [2 * SIDE, 2 * SIDE]]
"""The grids of an "anyres" image, in pixels."""
VICUNA = chat_template(
    {"system": "", "user": "USER: ", "assistant": "ASSISTANT: "},
    {"system": " ", "user": " ", "assistant": "</s>"},
    "ASSISTANT:",
    image="<image>\n",
    video="<video>\n",
    media_first=True,
)
INSTRUCT = chat_template(
    {"system": "<<SYS>>\n", "user": "[INST] ", "assistant": ""},
    {"system": "\n<</SYS>>\n\n", "user": " [/INST]", "assistant": "</s>"},
    "",
    image="<image>\n",
    media_first=True,
)


def llama_tokenizer(folder: Path, template: str) -> dict[str, int]:
    """The tokenizer of a LLaVA on a Llama or Mistral decoder."""
    special = ("<unk>", "<s>", "</s>", "<pad>", "<image>", "<video>")
    return write_tokenizer(
        folder,
        special,
        bos="<s>",
        eos="</s>",
        pad="<pad>",
        unk="<unk>",
        add_bos=True,
        chat_template=template,
        image_token="<image>",
        video_token="<video>",
    )


def qwen_tokenizer(folder: Path, template: str, *, more: tuple[str, ...] = ()) -> dict[str, int]:
    """The tokenizer of a LLaVA on a Qwen decoder."""
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>", *more)
    return write_tokenizer(
        folder,
        special,
        eos="<|im_end|>",
        pad="<|endoftext|>",
        chat_template=template,
        image_token="<image>",
        video_token="<video>",
    )


def square(side: int = SIDE) -> dict[str, Any]:
    """The arguments of an image processor that makes square images."""
    return {"size": {"height": side, "width": side}, "crop_size": {"height": side, "width": side}}


@recipe("llava")
def llava(folder: Path) -> None:
    """LLaVA 1.5: 16 tokens an image."""
    from transformers import CLIPImageProcessor, CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaProcessor

    ids = llama_tokenizer(folder, VICUNA)
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**vision_model(SIDE), projection_dim=64),
        text_config=LlamaConfig(**text_model(ids[""])),
        image_token_index=ids["<image>"], image_seq_length=16,
    )  # fmt: skip
    write_config(folder, config, "LlavaForConditionalGeneration")
    LlavaProcessor(
        CLIPImageProcessor(**square() | {"size": {"shortest_edge": SIDE}}), load_tokenizer(folder),
        patch_size=14, vision_feature_select_strategy="default", num_additional_image_tokens=1,
    ).save_pretrained(folder)  # fmt: skip


@recipe("llava-next")
def llava_next(folder: Path) -> None:
    """LLaVA 1.6 on Mistral: an image is seen whole and in up to four pieces."""
    from transformers import (
        CLIPVisionConfig,
        LlavaNextConfig,
        LlavaNextImageProcessor,
        LlavaNextProcessor,
        MistralConfig,
    )

    ids = llama_tokenizer(folder, INSTRUCT)
    config = LlavaNextConfig(
        vision_config=CLIPVisionConfig(**vision_model(SIDE), projection_dim=64),
        text_config=MistralConfig(**text_model(ids[""])),
        image_token_index=ids["<image>"], image_grid_pinpoints=GRIDS, image_seq_length=16,
    )  # fmt: skip
    write_config(folder, config, "LlavaNextForConditionalGeneration")
    LlavaNextProcessor(
        LlavaNextImageProcessor(**square() | {"size": {"shortest_edge": SIDE}}, image_grid_pinpoints=GRIDS),
        load_tokenizer(folder),
        patch_size=14, vision_feature_select_strategy="default", num_additional_image_tokens=1,
    ).save_pretrained(folder)  # fmt: skip


@recipe("llava-next-video", images=0, video=True)
def llava_next_video(folder: Path) -> None:
    """LLaVA-NeXT-Video. The engine wants an image size of at least the square of the patch size."""
    from transformers import (
        CLIPVisionConfig,
        LlamaConfig,
        LlavaNextImageProcessor,
        LlavaNextVideoConfig,
        LlavaNextVideoProcessor,
        LlavaNextVideoVideoProcessor,
    )

    ids = llama_tokenizer(folder, VICUNA)
    config = LlavaNextVideoConfig(
        vision_config=CLIPVisionConfig(**vision_model(SIDE, 7), projection_dim=64),
        text_config=LlamaConfig(**text_model(ids[""])),
        image_token_index=ids["<image>"], video_token_index=ids["<video>"], image_grid_pinpoints=GRIDS,
        image_seq_length=64, video_seq_length=16,
    )  # fmt: skip
    write_config(folder, config, "LlavaNextVideoForConditionalGeneration")
    LlavaNextVideoProcessor(
        LlavaNextVideoVideoProcessor(**square()),
        LlavaNextImageProcessor(**square() | {"size": {"shortest_edge": SIDE}}, image_grid_pinpoints=GRIDS),
        load_tokenizer(folder),
        patch_size=7, vision_feature_select_strategy="default", num_additional_image_tokens=1,
    ).save_pretrained(folder)  # fmt: skip


@recipe("llava-onevision", video=True)
def llava_onevision(folder: Path) -> None:
    """LLaVA-OneVision on Qwen2 and SigLIP."""
    from transformers import (
        LlavaOnevisionConfig,
        LlavaOnevisionImageProcessor,
        LlavaOnevisionProcessor,
        LlavaOnevisionVideoProcessor,
        Qwen2Config,
        SiglipVisionConfig,
    )

    template = chat_template(
        {role: f"<|im_start|>{role} " for role in ("system", "user", "assistant")},
        "<|im_end|>",
        "<|im_start|>assistant\n",
        image="<image>\n",
        video="<video>\n",
        media_first=True,
    )
    ids = qwen_tokenizer(folder, template)
    config = LlavaOnevisionConfig(
        vision_config=SiglipVisionConfig(**vision_model(SIDE), vision_use_head=False),
        text_config=Qwen2Config(**text_model(ids[""])),
        image_token_index=ids["<image>"], video_token_index=ids["<video>"], image_grid_pinpoints=GRIDS,
    )  # fmt: skip
    write_config(folder, config, "LlavaOnevisionForConditionalGeneration")
    LlavaOnevisionProcessor(
        LlavaOnevisionImageProcessor(size=square()["size"], image_grid_pinpoints=GRIDS),
        load_tokenizer(folder),
        LlavaOnevisionVideoProcessor(size=square()["size"]),
        num_image_tokens=16, vision_feature_select_strategy="full",
    ).save_pretrained(folder)  # fmt: skip


def make_siglip_on_qwen3(folder: Path, architecture: str, template: str) -> None:
    """Bee and R-4B, with LLaVA-OneVision's configuration class in place of their own, which says the same."""
    from transformers import (
        LlavaNextImageProcessor,
        LlavaNextProcessor,
        LlavaOnevisionConfig,
        Qwen3Config,
        SiglipVisionConfig,
    )

    ids = qwen_tokenizer(folder, template, more=("<think>", "</think>"))
    config = LlavaOnevisionConfig(
        vision_config=SiglipVisionConfig(**vision_model(SIDE), vision_use_head=False),
        text_config=Qwen3Config(**text_model(ids[""])),
        image_token_index=ids["<image>"], video_token_index=ids["<video>"], image_grid_pinpoints=GRIDS,
    )  # fmt: skip
    write_config(folder, config, architecture)
    LlavaNextProcessor(
        LlavaNextImageProcessor(**square(), image_grid_pinpoints=GRIDS), load_tokenizer(folder),
        patch_size=14, vision_feature_select_strategy="full",
    ).save_pretrained(folder)  # fmt: skip


@recipe("bee", note="with LLaVA-OneVision's configuration class")
def bee(folder: Path) -> None:
    """Bee-8B."""
    template = chatml("<image>\n", default_system="You are a helpful assistant.")
    make_siglip_on_qwen3(folder, "BeeForConditionalGeneration", template)


@recipe("rvl", note="with LLaVA-OneVision's configuration class")
def rvl(folder: Path) -> None:
    """R-4B."""
    make_siglip_on_qwen3(folder, "RForConditionalGeneration", chatml("<image>\n"))


@recipe("tarsier", note="a LLaVA with row breaks: 4 × 4 patches, 4 row ends and the image's end")
def tarsier(folder: Path) -> None:
    """Tarsier: 21 tokens an image."""
    from transformers import CLIPImageProcessor, CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaProcessor

    ids = llama_tokenizer(folder, VICUNA)
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**vision_model(SIDE), projection_dim=64),
        text_config=LlamaConfig(**text_model(ids[""])),
        image_token_index=ids["<image>"], image_seq_length=21,
    )  # fmt: skip
    # Two tokens of the vocabulary that its tokenizer would not write.
    write_config(folder, config, "TarsierForConditionalGeneration", image_newline_idx=65, image_new_idx=66)
    LlavaProcessor(
        CLIPImageProcessor(**square() | {"size": {"shortest_edge": SIDE}}), load_tokenizer(folder),
        patch_size=14, vision_feature_select_strategy="default", num_additional_image_tokens=1,
    ).save_pretrained(folder)  # fmt: skip
