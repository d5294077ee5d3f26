"""Idefics 3 and SmolVLM: an image is cut into a grid of square pieces, whose places are spelt out in tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.zoo.kit import load_tokenizer, recipe, text_model, vision_model, write_config, write_tokenizer
from tests.zoo.templates import chat_template

GRID = tuple(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))
MEDIA = ("<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>", *GRID)
TOKENS = 4
"""Tokens of a piece: 4 × 4 patches, four to a token."""


def idefics_template(start: str) -> str:
    """The template, whose turns begin with a plain word. As in the published ones, a space follows it unless an image
    does."""
    return chat_template(
        {"system": "System:", "user": "User:", "assistant": "Assistant:"},
        "<end_of_utterance>\n",
        "Assistant:",
        image="<image>",
        video="<video>",
        start=start,
        space_before_text=True,
    )


def config_facts(ids: dict[str, int], side: int) -> dict[str, Any]:
    """Return the part that both configs share."""
    return {
        "vision_config": vision_model(side, side // 4),
        "text_config": text_model(ids[""], model_type="llama"),
        "image_token_id": ids["<image>"],
        "scale_factor": 2,
    }


@recipe("idefics3")
def idefics3(folder: Path) -> None:
    """Idefics 3 on Llama 3. Pieces stay 364 pixels wide, as the family's settings speak of multiples of it."""
    from transformers import Idefics3Config, Idefics3ImageProcessor, Idefics3Processor

    side = 364
    special = ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", *MEDIA)
    ids = write_tokenizer(
        folder, special, bos="<|begin_of_text|>", eos="<end_of_utterance>", pad="<|end_of_text|>", add_bos=True,
        chat_template=idefics_template("<|begin_of_text|>"),
    )  # fmt: skip
    config = Idefics3Config(**config_facts(ids, side), pad_token_id=ids["<|end_of_text|>"])
    write_config(folder, config, "Idefics3ForConditionalGeneration")
    images = Idefics3ImageProcessor(size={"longest_edge": 2 * side}, max_image_size={"longest_edge": side})
    Idefics3Processor(images, load_tokenizer(folder), image_seq_len=TOKENS).save_pretrained(folder)


@recipe("smolvlm", needs=("num2words",))
def smolvlm(folder: Path) -> None:
    """SmolVLM 2, whose pieces are 384 pixels wide."""
    from transformers import SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor, SmolVLMVideoProcessor

    side = 384
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<video>", *MEDIA)
    ids = write_tokenizer(
        folder, special, bos="<|im_start|>", eos="<end_of_utterance>", pad="<|im_end|>", unk="<|endoftext|>",
        chat_template=idefics_template("<|im_start|>"), image_token="<image>", video_token="<video>",
        fake_image_token="<fake_token_around_image>", global_image_token="<global-img>",
        end_of_utterance_token="<end_of_utterance>",
    )  # fmt: skip
    config = SmolVLMConfig(**config_facts(ids, side), pad_token_id=ids["<|im_end|>"])
    write_config(folder, config, "SmolVLMForConditionalGeneration")
    sizes = {"size": {"longest_edge": 2 * side}, "max_image_size": {"longest_edge": side}}
    frames = {"video_sampling": {"fps": 1, "max_frames": 8, "video_size": {"longest_edge": side}}}
    SmolVLMProcessor(
        SmolVLMImageProcessor(**sizes), load_tokenizer(folder),
        SmolVLMVideoProcessor(**sizes, **frames), image_seq_len=TOKENS,
    ).save_pretrained(folder)  # fmt: skip
