"""Families that stand alone: BLIP-2, Intern-S1, Ovis 2 and HunyuanOCR."""

from __future__ import annotations

from pathlib import Path

from tests.zoo.kit import (
    load_tokenizer,
    recipe,
    text_model,
    vision_model,
    write_config,
    write_tokenizer,
)
from tests.zoo.templates import chat_template, chatml


@recipe("blip-2", images=1)
def blip2(folder: Path) -> None:
    """BLIP-2 on OPT: four tokens an image. It has no chat template of its own."""
    from transformers import Blip2Config, Blip2Processor, BlipImageProcessor

    ids = write_tokenizer(
        folder, ("</s>", "<pad>", "<image>"), bos="</s>", eos="</s>", pad="<pad>", unk="</s>", add_bos=True,
    )  # fmt: skip
    questioner = {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
        "encoder_hidden_size": 64, "vocab_size": 64,
    }  # fmt: skip
    decoder = {
        "model_type": "opt", "vocab_size": ids[""], "hidden_size": 64, "word_embed_proj_dim": 64, "ffn_dim": 128,
        "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 2048,
        "bos_token_id": ids["</s>"], "eos_token_id": ids["</s>"], "pad_token_id": ids["<pad>"],
    }  # fmt: skip
    config = Blip2Config(
        vision_config=vision_model(), qformer_config=questioner, text_config=decoder, num_query_tokens=4,
        image_token_index=ids["<image>"],
    )  # fmt: skip
    write_config(folder, config, "Blip2ForConditionalGeneration")
    images = BlipImageProcessor(size={"height": 56, "width": 56})
    Blip2Processor(images, load_tokenizer(folder), num_query_tokens=4).save_pretrained(folder)


@recipe("interns1", video=True, note="with InternVL's configuration class")
def interns1(folder: Path) -> None:
    """Intern-S1 mini: an InternVL on Qwen3, four tokens a tile."""
    from transformers import GotOcr2ImageProcessor, InternVLConfig, InternVLProcessor, InternVLVideoProcessor

    side = {"height": 56, "width": 56}
    special = (
        "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>", "<think>",
        "</think>",
    )  # fmt: skip
    template = chatml(
        "<IMG_CONTEXT>\n", "<video>\n", default_system="You are an expert reasoner with extensive experience."
    )
    ids = write_tokenizer(
        folder, special, eos="<|im_end|>", pad="<|endoftext|>", chat_template=template, start_image_token="<img>",
        end_image_token="</img>", context_image_token="<IMG_CONTEXT>", video_token="<video>",
    )  # fmt: skip
    config = InternVLConfig(
        vision_config=vision_model() | {"image_size": [56, 56], "patch_size": [14, 14]},
        text_config=text_model(ids[""], model_type="qwen3"), image_token_id=ids["<IMG_CONTEXT>"], image_seq_length=4,
    )  # fmt: skip
    write_config(folder, config, "InternS1ForConditionalGeneration")
    InternVLProcessor(
        GotOcr2ImageProcessor(size=side, crop_to_patches=True, max_patches=4), load_tokenizer(folder),
        InternVLVideoProcessor(size=side), image_seq_length=4,
    ).save_pretrained(folder)  # fmt: skip


@recipe("ovis")
def ovis(folder: Path) -> None:
    """Ovis 2 on Qwen2: `<image>` is plain text, and the template takes strings only."""
    from transformers import CLIPImageProcessor

    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>")
    template = chatml(default_system="You are a helpful assistant.")
    ids = write_tokenizer(folder, special, eos="<|im_end|>", pad="<|endoftext|>", chat_template=template)
    eyes = {
        "model_type": "aimv2_visual_tokenizer", "vocab_size": 69, "tokenize_function": "softmax", "hidden_stride": 2,
        "backbone_config": vision_model(56, 14, model_type="aimv2"),
    }  # fmt: skip
    decoder = text_model(ids[""], model_type="qwen2")
    config = {
        "model_type": "ovis", "llm_config": decoder, "visual_tokenizer_config": eyes, "hidden_size": 64,
        "multimodal_max_length": 4096, "conversation_formatter_class": "QwenConversationFormatter",
        "eos_token_id": ids["<|im_end|>"], "pad_token_id": ids["<|endoftext|>"],
    }  # fmt: skip
    write_config(folder, config, "Ovis")
    CLIPImageProcessor(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}, do_center_crop=False
    ).save_pretrained(folder)


@recipe("hunyuan_vl")
def hunyuan_vl(folder: Path) -> None:
    """HunyuanOCR: a row of tokens ends with one of its own; vLLM runs it through transformers' own class."""
    from transformers import HunYuanVLConfig, HunYuanVLImageProcessor, HunYuanVLProcessor

    start, image, end = (f"<｜hy_place▁holder▁no▁{number}｜>" for number in (100, 102, 101))
    begin, user, answer, pad = (f"<｜hy_{name}｜>" for name in ("begin▁of▁sentence", "User", "Assistant", "▁pad▁"))
    after_system = "<｜hy_place▁holder▁no▁3｜>"
    template = chat_template(
        {"system": "", "user": "", "assistant": ""},
        {"system": after_system, "user": user, "assistant": answer},
        "",
        image=f"{start}{image}{end}",
        start=begin,
    )
    ids = write_tokenizer(
        folder, (begin, user, answer, pad, start, image, end, after_system), bos=begin, eos=answer, pad=pad,
        chat_template=template, image_token=image, image_start_token=start, image_end_token=end,
    )  # fmt: skip
    positions = {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0, "rope_theta": 10_000.0}
    decoder = text_model(
        ids[""], rope_parameters=positions | {"mrope_section": [4, 4, 4, 4]}, bos_token_id=ids[begin],
        eos_token_id=ids[answer], pad_token_id=ids[pad],
    )  # fmt: skip
    tower = vision_model(patch_size=16, out_hidden_size=64, max_image_size=128, min_image_size=32)
    config = HunYuanVLConfig(
        text_config=decoder, vision_config=tower, image_token_id=ids[image], im_start_id=ids[start],
        im_end_id=ids[end], im_newline_id=ids[image],
    )  # fmt: skip
    write_config(folder, config, "HunYuanVLForConditionalGeneration")
    images = HunYuanVLImageProcessor(size={"shortest_edge": 64 * 64, "longest_edge": 128 * 128})
    HunYuanVLProcessor(images, load_tokenizer(folder)).save_pretrained(folder)
