"""Molmo and Molmo 2: their processors stand in their checkpoints; images are put in front of the text."""

from __future__ import annotations

from pathlib import Path

from tests.zoo.kit import recipe, text_model, write_tokenizer
from tests.zoo.recipes.newer_shims import write_remote_config, write_remote_processor
from tests.zoo.templates import chat_template, chatml

MOLMO2_MEDIA = """{%- for message in messages -%}{%- if message['content'] is not string -%}
{%- for part in message['content'] -%}
{%- if part['type'] == 'image' -%}<|image|>{%- elif part['type'] == 'video' -%}<|video|>{%- endif -%}
{%- endfor -%}
{%- endif -%}{%- endfor -%}"""

MOLMO = """
import numpy as np
import torch
from transformers import AutoTokenizer, BaseImageProcessor, BatchFeature, ProcessorMixin


class MolmoImageProcessor(BaseImageProcessor):
    max_crops, overlap_margins, base_image_input_size = 1, (4, 4), (336, 336)
    image_patch_size, image_token_length_w, image_token_length_h = 14, 12, 12

    def cut(self, image):
        pixels = np.asarray(image.convert("RGB").resize((336, 336)), dtype=np.float32) / 127.5 - 1
        tiles = pixels.reshape(24, 14, 24, 14, 3).transpose(0, 2, 1, 3, 4)
        return torch.from_numpy(np.ascontiguousarray(tiles)).reshape(576, -1)


class MolmoProcessor(ProcessorMixin):
    def __init__(self, image_processor=None, tokenizer=None, **facts):
        super().__init__(image_processor, tokenizer, **facts)

    @classmethod
    def from_pretrained(cls, path, **facts):
        return cls(MolmoImageProcessor(), AutoTokenizer.from_pretrained(path))

    def get_tokens_input(self, prompt, message_format=None, always_start_with_space=False):
        return self.tokenizer.encode(f" {prompt}", add_special_tokens=False)

    def process(self, text=None, images=None, tokens=None, **facts):
        tokens = self.get_tokens_input(text or "") if tokens is None else tokens
        data = {"input_ids": torch.tensor([self.tokenizer.eos_token_id, *tokens])}
        if images:
            images = images if isinstance(images, list) else [images]
            cuts = [self.image_processor.cut(image) for image in images for _ in ("whole", "crop")]
            data["images"] = torch.stack(cuts)
            data["image_masks"] = torch.ones(len(cuts), 576)
            data["image_input_idx"] = torch.arange(144).repeat(len(cuts), 1)
        return BatchFeature(data)
"""


@recipe("molmo", remote_code=True, note="slow: its tower has one size only, 0.3 billion parameters")
def molmo(folder: Path) -> None:
    """Molmo 7B-D: 324 tokens an image here."""
    template = chat_template(
        {"system": "", "user": " User: ", "assistant": " Assistant:"}, {"system": "", "user": "", "assistant": ""},
        " Assistant:",
    )  # fmt: skip
    media = ["<im_start>", "<im_end>", "<im_patch>", "<im_col>", "<|image|>"]
    ids = write_tokenizer(
        folder, ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *media], eos="<|endoftext|>", chat_template=template
    )
    config = {
        "model_type": "molmo",
        **text_model(ids[""]),
        "embedding_size": ids[""],
        "layer_norm_eps": 1e-6,
        "layer_norm_type": "rms",
        "attention_layer_norm": False,
        "norm_after": False,
        "qkv_bias": True,
        "weight_tying": False,
        "tie_word_embeddings": False,
        "rope_theta": 1e6,
    }
    auto_map = write_remote_processor(folder, "MolmoProcessor", MOLMO)
    write_remote_config(folder, "MolmoConfig", config, "MolmoForCausalLM", **auto_map)


MOLMO2 = """
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image
from transformers import AutoTokenizer, BaseImageProcessor, BatchFeature, ProcessorMixin

SHAPE = {"size": {"height": 56, "width": 56}, "patch_size": 14, "pooling_size": (2, 2)}
SAMPLING = {"num_frames": 8, "frame_sample_mode": "uniform_last_frame", "max_fps": 2, "sampling_fps": 2}


class Molmo2ImageProcessor(BaseImageProcessor):
    size, patch_size, pooling_size = SHAPE["size"], 14, (2, 2)
    max_crops, overlap_margins = 1, (1, 1)


class Molmo2Processor(ProcessorMixin):
    image_use_col_tokens, use_single_crop_col_tokens, use_single_crop_start_token = True, None, True
    video_use_col_tokens, use_frame_special_tokens = False, True

    def __init__(self, image_processor=None, tokenizer=None, **facts):
        super().__init__(image_processor, tokenizer, **facts)
        self.video_processor = SimpleNamespace(**SHAPE, **SAMPLING)

    @classmethod
    def from_pretrained(cls, path, **facts):
        return cls(Molmo2ImageProcessor(), AutoTokenizer.from_pretrained(path))

    def cut(self, image):
        image = image if isinstance(image, Image.Image) else Image.fromarray(np.asarray(image))
        pixels = np.asarray(image.convert("RGB").resize((56, 56)), dtype=np.float32) / 127.5 - 1
        tiles = pixels.reshape(4, 14, 4, 14, 3).transpose(0, 2, 1, 3, 4)
        return torch.from_numpy(np.ascontiguousarray(tiles)).reshape(16, -1)

    def pooled(self, crops):
        squares = torch.arange(16 * crops).reshape(crops, 2, 2, 2, 2)
        return squares.transpose(2, 3).reshape(-1, 4)

    def __call__(self, text=None, images=None, videos=None, **facts):
        data = dict(self.tokenizer(text or "", return_tensors="pt", add_special_tokens=False))
        if images:
            images = images if isinstance(images, list) else [images]
            data["pixel_values"] = torch.stack([self.cut(image) for image in images for _ in ("whole", "crop")])
            data["image_token_pooling"] = torch.cat([self.pooled(2) for _ in images])
            data["image_grids"] = torch.tensor([(2, 2, 2, 2)] * len(images))
            data["image_num_crops"] = torch.tensor([2] * len(images))
        if videos:
            frames = list(videos[0][0])
            data["pixel_values_videos"] = torch.stack([self.cut(frame) for frame in frames])
            data["video_token_pooling"] = self.pooled(len(frames))
            data["video_grids"] = torch.tensor([(len(frames), 2, 2)])
        return BatchFeature(data)
"""


@recipe("molmo2", video=True, remote_code=True)
def molmo2(folder: Path) -> None:
    """Molmo 2: an image stands before the turn that asks about it."""
    marks = {
        "image_start_token_id": "<im_start>", "image_end_token_id": "<im_end>", "image_patch_id": "<im_patch>",
        "image_col_id": "<im_col>", "low_res_image_start_token_id": "<low_res_im_start>",
        "frame_start_token_id": "<frame_start>", "frame_end_token_id": "<frame_end>", "image_low_res_id": "<im_low>",
    }  # fmt: skip
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *marks.values(), "<|image|>", "<|video|>"]
    turns = chatml("<|image|>", "<|video|>")
    for mark in ("<|image|>", "<|video|>"):
        turns = turns.replace(f'{{{{- "{mark}" -}}}}', "")
    ids = write_tokenizer(folder, special, eos="<|im_end|>", bos="<|im_end|>", pad="<|endoftext|>",
                          chat_template=MOLMO2_MEDIA + turns)  # fmt: skip
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "hidden_size": 64}
    tower = {
        **heads, "intermediate_size": 128, "num_hidden_layers": 2, "hidden_act": "gelu_pytorch_tanh",
        "layer_norm_eps": 1e-6, "image_default_input_size": [56, 56], "image_patch_size": 14, "image_num_pos": 16,
    }  # fmt: skip
    adapter = {
        **heads, "vit_layers": [-1, -2], "pooling_attention_mask": True, "hidden_act": "silu",
        "intermediate_size": 128, "text_hidden_size": 64,
    }  # fmt: skip
    text = text_model(
        ids[""], additional_vocab_size=8, qkv_bias=False, hidden_act="silu", rope_theta=1e6, use_qk_norm=True,
        qk_norm_type="qwen3", layer_norm_eps=1e-6, norm_after=False, rope_scaling_layers=None,
    )  # fmt: skip
    config = {
        "model_type": "molmo2",
        "tie_word_embeddings": False,
        "text_config": text,
        "vit_config": tower,
        "adapter_config": adapter,
        **{name: ids[token] for name, token in marks.items()},
    }
    auto_map = write_remote_processor(folder, "Molmo2Processor", MOLMO2)
    write_remote_config(folder, "Molmo2Config", config, "Molmo2ForConditionalGeneration", **auto_map)
