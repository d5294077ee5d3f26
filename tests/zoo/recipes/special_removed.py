"""Families that vLLM had and dropped, as far as another of its models still serves them."""

from __future__ import annotations

from pathlib import Path

from tests.zoo.kit import load_tokenizer, recipe, text_model, vision_model, write_config, write_tokenizer
from tests.zoo.templates import chat_template

SIDE = 56
VOCABULARY = 128_256
"""Mantis' stop token is given by its number, so its vocabulary has to be as large as the real one."""


@recipe("mantis")
def mantis(folder: Path) -> None:
    """Mantis: a LLaVA of SigLIP and Llama 3."""
    from transformers import LlamaConfig, LlavaConfig, LlavaProcessor, SiglipImageProcessor, SiglipVisionConfig

    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    template = chat_template(
        {role: f"<|start_header_id|>{role}<|end_header_id|>\n\n" for role in ("system", "user", "assistant")},
        "<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n", start="<|begin_of_text|>", image="<image>",
    )  # fmt: skip
    ids = write_tokenizer(
        folder, [*special, "<image>", "<Image>", "</Image>", "<pad>"], bos=special[0], eos="<|eot_id|>", pad="<pad>",
        chat_template=template, image_token="<image>",
    )  # fmt: skip
    config = LlavaConfig(
        vision_config=SiglipVisionConfig(**vision_model(SIDE), vision_use_head=False),
        text_config=LlamaConfig(**text_model(VOCABULARY)),
        image_token_index=ids["<image>"], image_seq_length=16, vision_feature_select_strategy="full",
    )  # fmt: skip
    write_config(folder, config, "LlavaForConditionalGeneration")
    LlavaProcessor(
        SiglipImageProcessor(size={"height": SIDE, "width": SIDE}), load_tokenizer(folder),
        patch_size=14, vision_feature_select_strategy="full", num_additional_image_tokens=0,
    ).save_pretrained(folder)  # fmt: skip
