"""MiniCPM-V, ERNIE 4.5 VL and Phi-3 vision: their image processors stand in their checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.zoo.kit import recipe, text_model, vision_model, write_json, write_text, write_tokenizer
from tests.zoo.recipes.newer_shims import write_remote_config, write_remote_processor
from tests.zoo.templates import chat_template, chatml

MINICPM_IMAGES = '''"""Stands in for the real processor. Like that, it sees a picture of more than 448 × 448 pixels
as a whole, and in up to `max_slice_nums` slices, in the grid whose shape is nearest to the picture's. A whole and a
slice have the same size here, 16 tokens."""

import math

import numpy as np
import torch
from transformers import BaseImageProcessor


class MiniCPMVImageProcessor(BaseImageProcessor):
    patch_size, max_slice_nums, image_feature_size, scale_resolution = 14, 9, 16, 448
    im_id_start, im_id_end = "<image_id>", "</image_id>"

    def get_sliced_grid(self, image_size, max_slice_nums=None, nope=False):
        most = self.max_slice_nums if max_slice_nums is None else max_slice_nums
        width, height = image_size
        slices = min(math.ceil(width * height / self.scale_resolution**2), most)
        if slices <= 1:
            return None
        numbers = [number for number in (slices - 1, slices, slices + 1) if 1 < number <= most]
        grids = [(n // rows, rows) for n in numbers for rows in range(1, n + 1) if n % rows == 0]
        return min(grids, key=lambda grid: abs(math.log(width / height) - math.log(grid[0] / grid[1])))

    def get_slice_image_placeholder(self, image_size, image_idx=0, max_slice_nums=None, use_image_id=None):
        number = "" if use_image_id is False else f"<image_id>{image_idx}</image_id>"
        seen = "<unk>" * self.image_feature_size
        columns, rows = self.get_sliced_grid(image_size, max_slice_nums) or (0, 0)
        slices = "\\n".join(f"<slice>{seen}</slice>" * columns for _ in range(rows))
        return f"{number}<image>{seen}</image>{slices}"

    def parts(self, image, max_slice_nums):
        columns, rows = self.get_sliced_grid(image.size, max_slice_nums) or (0, 0)
        width, height = image.width // max(columns, 1), image.height // max(rows, 1)
        corners = [(column * width, row * height) for row in range(rows) for column in range(columns)]
        return [image, *(image.crop((x, y, x + width, y + height)) for x, y in corners)]

    def cut(self, image):
        side = self.patch_size
        rows, columns = 4, 5
        pixels = np.asarray(image.convert("RGB").resize((columns * side, rows * side)), dtype=np.float32) / 127.5 - 1
        tiles = pixels.reshape(rows, side, columns, side, 3).transpose(4, 1, 0, 2, 3)
        return torch.from_numpy(np.ascontiguousarray(tiles)).reshape(3, side, -1), (rows, columns)

    def __call__(self, images, do_pad=True, max_slice_nums=None, return_tensors=None, **facts):
        from PIL import Image

        prompts = [images] if not isinstance(images, (list, tuple)) else images
        prompts = [[prompt] if isinstance(prompt, Image.Image) else list(prompt) for prompt in prompts]
        prompts = [[i if isinstance(i, Image.Image) else Image.fromarray(np.asarray(i)) for i in p] for p in prompts]
        parts = [[part for image in prompt for part in self.parts(image, max_slice_nums)] for prompt in prompts]
        cuts = [[self.cut(part) for part in prompt] for prompt in parts]
        return {
            "pixel_values": [[pixels for pixels, _ in prompt] for prompt in cuts],
            "tgt_sizes": [torch.tensor([size for _, size in prompt]) for prompt in cuts],
            "image_sizes": [[image.size for image in prompt] for prompt in prompts],
        }
'''
MINICPM_PROCESSOR = """
from transformers import AutoTokenizer, ProcessorMixin, WhisperFeatureExtractor

MARKS = {
    "im_start": "<image>", "im_end": "</image>", "slice_start": "<slice>", "slice_end": "</slice>",
    "audio_start": "<|audio_start|>", "audio_end": "<|audio_end|>",
    "spk_start": "<|spk_bos|>", "spk_end": "<|spk_eos|>",
}


class MiniCPMProcessor(ProcessorMixin):
    def __init__(self, feature_extractor=None, tokenizer=None, **facts):
        super().__init__(feature_extractor, tokenizer, **facts)

    @classmethod
    def from_pretrained(cls, path, **facts):
        tokenizer = AutoTokenizer.from_pretrained(path)
        for name, token in MARKS.items():
            setattr(tokenizer, name + "_id", tokenizer.convert_tokens_to_ids(token))
        return cls(WhisperFeatureExtractor(), tokenizer)
"""


def without_capture() -> None:
    """Let vLLM 0.32's resampler run on a CPU, where it asks CUDA whether a graph is being captured."""
    import torch

    torch.cuda.is_current_stream_capturing = lambda: False


def minicpm(folder: Path, name: str, **more: Any) -> None:
    """Write a MiniCPM 2.6 on Qwen2. Its resampler wants 128 dimensions a head."""
    special = ["<unk>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "</image>", "<slice>", "</slice>"]
    special += ["<image_id>", "</image_id>", "<video>", "</video>"]
    if more:
        special += [
            "<audio>",
            "</audio>",
            "<|audio_start|>",
            "<|audio_end|>",
            "<|audio|>",
            "<|spk_bos|>",
            "<|spk_eos|>",
        ]
    ids = write_tokenizer(
        folder, special, bos="<|im_start|>", eos="<|im_end|>", pad="<|endoftext|>", unk="<unk>", chat_template=chatml()
    )
    config = {
        "model_type": name.lower(),
        "version": "2.6",
        **text_model(ids[""], hidden_size=128, head_dim=64),
        "query_num": 16,
        "image_size": 56,
        "max_slice_num": 1,
        "drop_vision_last_layer": False,
        "vision_config": vision_model(56, model_type="siglip_vision_model"),
        **more,
    }
    write_text(folder, "image_processing_shim.py", MINICPM_IMAGES)
    images = {"AutoImageProcessor": "image_processing_shim.MiniCPMVImageProcessor"}
    write_json(
        folder, "preprocessor_config.json", {"image_processor_type": "MiniCPMVImageProcessor", "auto_map": images}
    )
    auto_map = write_remote_processor(folder, "MiniCPMProcessor", MINICPM_PROCESSOR)
    write_remote_config(folder, f"{name}Config", config, name, base="Qwen2Config", **auto_map)


@recipe("minicpmv", video=True, remote_code=True, prepare=without_capture)
def minicpmv(folder: Path) -> None:
    """MiniCPM-V 2.6."""
    minicpm(folder, "MiniCPMV")


@recipe("minicpmo", video=True, audio=True, remote_code=True, prepare=without_capture)
def minicpmo(folder: Path) -> None:
    """MiniCPM-o 2.6, which has Whisper's ears too."""
    ears = {
        "model_type": "whisper", "d_model": 64, "encoder_layers": 1, "encoder_attention_heads": 1,
        "encoder_ffn_dim": 256, "decoder_layers": 1, "decoder_attention_heads": 1, "decoder_ffn_dim": 64,
        "num_mel_bins": 80,
    }  # fmt: skip
    minicpm(folder, "MiniCPMO", audio_config=ears, audio_chunk_length=1.0, audio_pool_step=2)


ERNIE = """
import numpy as np
import torch
from transformers import AutoTokenizer, BaseImageProcessor, BatchFeature, ProcessorMixin
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize


class ErnieImageProcessor(BaseImageProcessor):
    patch_size = 14
    size = {"min_pixels": 56 * 56, "max_pixels": 112 * 112}
    image_mean, image_std, rescale_factor = [0.5, 0.5, 0.5], [0.5, 0.5, 0.5], 1 / 255


class Ernie4_5_VLProcessor(ProcessorMixin):
    spatial_conv_size, temporal_conv_size, supports_video_metadata = 2, 2, True

    def __init__(self, image_processor=None, tokenizer=None, **facts):
        super().__init__(image_processor, tokenizer, **facts)

    @classmethod
    def from_pretrained(cls, path, **facts):
        return cls(ErnieImageProcessor(), AutoTokenizer.from_pretrained(path))

    def cut(self, frames):
        from PIL import Image

        frames = [i if isinstance(i, Image.Image) else Image.fromarray(np.asarray(i)) for i in frames]
        side, size = self.image_processor.patch_size, self.image_processor.size
        height, width = smart_resize(
            frames[0].height, frames[0].width, 2 * side, size["min_pixels"], size["max_pixels"]
        )
        rows, columns = height // side, width // side
        pixels = np.stack([np.asarray(frame.convert("RGB").resize((width, height))) for frame in frames])
        tiles = pixels.reshape(len(frames), rows // 2, 2, side, columns // 2, 2, side, 3)
        tiles = tiles.transpose(0, 1, 4, 2, 5, 7, 3, 6).reshape(-1, 3 * side * side)
        return torch.from_numpy(np.ascontiguousarray(tiles)), (len(frames), rows, columns)

    def __call__(self, text=None, images=None, videos=None, **facts):
        data = dict(self.tokenizer(text, return_tensors="pt")) if text else {}
        stacks = [[image] for image in images or []]
        stacks += [list(video[0] if isinstance(video, tuple) else video) for video in videos or []]
        if stacks:
            cuts, grids = zip(*(self.cut(stack) for stack in stacks))
            data |= {"images": torch.cat(cuts), "grid_thw": torch.tensor(grids)}
        return BatchFeature(data)
"""


def with_ernie_positions() -> None:
    """Let vLLM 0.32 turn ERNIE's positions on a CPU, where it passes one argument more than its own class takes."""
    from vllm.model_executor.layers.rotary_embedding.ernie45_vl_rope import Ernie4_5_VLRotaryEmbedding

    def forward_cpu(self: Any, positions: Any, query: Any, key: Any = None, *_: Any, **__: Any) -> Any:
        return self.forward_native(positions, query, key)

    Ernie4_5_VLRotaryEmbedding.forward_cpu = forward_cpu


@recipe("ernie45_vl", video=True, remote_code=True, prepare=with_ernie_positions)
def ernie45_vl(folder: Path) -> None:
    """ERNIE 4.5 VL: one set of experts for text, one for what is seen."""
    image = "Picture 1:<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>"
    video = "Video 1:<|VIDEO_START|><|video@placeholder|><|VIDEO_END|>"
    template = chat_template(
        {"system": "", "user": "User: ", "assistant": "Assistant: "},
        {"system": "\n", "user": "\n", "assistant": "<|end_of_sentence|>"},
        "Assistant: ", start="<|begin_of_sentence|>", image=image, video=video,
    )  # fmt: skip
    special = ["<unk>", "<s>", "</s>", "<|begin_of_sentence|>", "<|end_of_sentence|>", "<|IMAGE_PLACEHOLDER|>"]
    special += [f"<|{kind}{mark}|>" for kind in ("IMAGE", "VIDEO") for mark in ("_START", "_END")]
    special += ["<|image@placeholder|>", "<|video@placeholder|>", "<think>", "</think>"]
    ids = write_tokenizer(folder, special, bos="<s>", eos="</s>", pad="<unk>", unk="<unk>", chat_template=template)
    tower = {
        "depth": 2, "embed_dim": 64, "hidden_size": 64, "hidden_act": "quick_gelu", "mlp_ratio": 2, "num_heads": 2,
        "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2, "attn_implementation": "eager",
    }  # fmt: skip
    experts = {
        "moe_num_experts": [4, 4], "moe_intermediate_size": [64, 32], "moe_k": 2, "moe_num_shared_experts": 1,
        "moe_layer_start_index": [1, 1], "moe_layer_end_index": [1, 1], "moe_layer_interval": 1, "use_moe": True,
    }  # fmt: skip
    config = {
        "model_type": "ernie4_5_moe_vl",
        **text_model(ids[""], hidden_act="silu", rms_norm_eps=1e-5, rope_theta=500000.0, freq_allocation=4),
        **experts,
        "use_bias": False,
        "tie_word_embeddings": True,
        "pixel_hidden_size": 64,
        "spatial_conv_size": 2,
        "temporal_conv_size": 2,
        "use_temporal_conv": True,
        "im_patch_id": ids["<|IMAGE_PLACEHOLDER|>"],
        "image_start_token_id": ids["<|IMAGE_START|>"],
        "image_end_token_id": ids["<|IMAGE_END|>"],
        "video_start_token_id": ids["<|VIDEO_START|>"],
        "video_end_token_id": ids["<|VIDEO_END|>"],
        "vision_config": tower,
    }
    auto_map = write_remote_processor(folder, "Ernie4_5_VLProcessor", ERNIE)
    architecture = "Ernie4_5_VLMoeForConditionalGeneration"
    write_remote_config(folder, "Ernie4_5_VLMoeConfig", config, architecture, **auto_map)


PHI3 = """
import math

import numpy as np
import torch
from transformers import AutoTokenizer, BaseImageProcessor, BatchFeature, ProcessorMixin


class Phi3VImageProcessor(BaseImageProcessor):
    side, num_crops = 336, 1

    def grid(self, width, height):
        # As many as fit into num_crops; an upright picture is cut as if it lay.
        if width < height:
            return self.grid(height, width)[::-1]
        columns = 1
        while (columns + 1) * math.ceil((columns + 1) * height / width) <= self.num_crops:
            columns += 1
        return columns, max(1, math.ceil(columns * height / width))


class Phi3VProcessor(ProcessorMixin):
    img_tokens = [f"<|image_{number}|>" for number in range(1, 100)]

    def __init__(self, image_processor=None, tokenizer=None, **facts):
        super().__init__(image_processor, tokenizer, **facts)

    @classmethod
    def from_pretrained(cls, path, num_crops=1, **facts):
        images = Phi3VImageProcessor()
        images.num_crops = num_crops
        return cls(images, AutoTokenizer.from_pretrained(path))

    def calc_num_image_tokens_from_image_size(self, width, height):
        columns, rows = self.image_processor.grid(width, height)
        return (columns * rows + 1) * 144 + 1 + (rows + 1) * 12

    def __call__(self, text=None, images=None, **facts):
        data = dict(self.tokenizer(text, return_tensors="pt")) if text else {}
        if images:
            side = self.image_processor.side
            images = images if isinstance(images, list) else [images]
            cut, sizes = [], []
            for image in images:
                columns, rows = self.image_processor.grid(*image.size)
                image = image.convert("RGB")
                whole, large = image.resize((side, side)), image.resize((columns * side, rows * side))
                corners = [(x * side, y * side) for y in range(rows) for x in range(columns)]
                cut.append([whole, *(large.crop((x, y, x + side, y + side)) for x, y in corners)])
                sizes.append((rows * side, columns * side))
            most = max(map(len, cut))
            seen = [np.stack([np.asarray(one) for one in parts + parts[:1] * (most - len(parts))]) for parts in cut]
            data["pixel_values"] = torch.from_numpy(np.stack(seen)).permute(0, 1, 4, 2, 3) / 127.5 - 1
            data["image_sizes"] = torch.tensor(sizes)
        return BatchFeature(data)
"""


@recipe("phi3_v", remote_code=True, note="slow: its tower has one size only, 0.3 billion parameters")
def phi3_v(folder: Path) -> None:
    """Phi-3.5 vision: the engine knows its image token as 32044, so the vocabulary is large."""
    roles = ("system", "user", "assistant")
    template = chat_template({role: f"<|{role}|>\n" for role in roles}, "<|end|>\n", "<|assistant|>\n")
    special = ["<unk>", "<s>", "</s>", "<|endoftext|>", "<|end|>", *(f"<|{role}|>" for role in roles), "<|image|>"]
    write_tokenizer(
        folder, special, bos="<s>", eos="<|end|>", pad="<|endoftext|>", unk="<unk>", add_bos=True,
        chat_template=template,
    )  # fmt: skip
    tower = {
        "name": "clip_vision_model", "model_name": "openai/clip-vit-large-patch14-336", "image_dim_out": 1024,
        "num_img_tokens": 144, "type_feature": "patch", "layer_idx": -2,
    }  # fmt: skip
    config = {
        "model_type": "phi3_v",
        **text_model(32064, pad_token_id=0, bos_token_id=None, eos_token_id=None),
        "img_processor": tower,
        "embd_layer": {"use_hd_transform": True, "with_learnable_separator": True, "hd_transform_order": "sub_glb"},
    }
    auto_map = write_remote_processor(folder, "Phi3VProcessor", PHI3)
    write_remote_config(folder, "Phi3VConfig", config, "Phi3VForCausalLM", base="Phi3Config", **auto_map)
