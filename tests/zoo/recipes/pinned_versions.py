"""Families that run in a vLLM of their own version. Their files are written by hand: this environment's Transformers is
newer than the one that reads them."""

from __future__ import annotations

import base64
from pathlib import Path

from tests.zoo.kit import recipe, write_config, write_json, write_text

_BYTES = 256
_QWEN_SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<ref>", "</ref>", "<box>", "</box>", "<quad>", "</quad>", "<img>",
    "</img>", "<imgpad>",
)  # fmt: skip

_QWEN_CONFIG = """
from transformers import PretrainedConfig


class QWenConfig(PretrainedConfig):
    model_type = "qwen"

    def __init__(self, visual=None, **facts):
        self.visual = visual
        super().__init__(**facts)
"""

_QWEN_TOKENIZER = '''
import base64
from pathlib import Path

import tiktoken
from transformers import PreTrainedTokenizer

PATTERN = r"\\p{L}+|\\p{N}|[^\\s\\p{L}\\p{N}]+|\\s+"


class QWenTokenizer(PreTrainedTokenizer):
    """As the family's own: tiktoken below, tokens are bytes, images are padded between their tags."""

    vocab_files_names = {"vocab_file": "qwen.tiktoken"}

    def __init__(self, vocab_file, errors="replace", special=(), images=16, **facts):
        lines = Path(vocab_file).read_text().splitlines()
        self.mergeable_ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, lines)}
        self.special_tokens = {name: len(lines) + place for place, name in enumerate(special)}
        self.errors, self.images = errors, images
        self.image_start_tag, self.image_end_tag, self.image_pad_tag = "<img>", "</img>", "<imgpad>"
        self.tokenizer = tiktoken.Encoding(
            "qwen", pat_str=PATTERN, mergeable_ranks=self.mergeable_ranks, special_tokens=self.special_tokens
        )
        self.decoder = {rank: token for token, rank in self.mergeable_ranks.items()}
        self.decoder |= {rank: name for name, rank in self.special_tokens.items()}
        self.eod_id = self.special_tokens["<|endoftext|>"]
        super().__init__(**facts)

    @property
    def vocab_size(self):
        return self.tokenizer.n_vocab

    def __len__(self):
        return self.tokenizer.n_vocab

    def get_vocab(self):
        return {**self.mergeable_ranks, **self.special_tokens}

    def tokenize(self, text, allowed_special="all", disallowed_special=(), **facts):
        ids = self.tokenizer.encode(text, allowed_special=allowed_special, disallowed_special=disallowed_special)
        tokens = [self.decoder[one] for one in ids]
        if "<img>" in tokens:
            start = tokens.index("<img>")
            tokens[start + 1 : start + 1] = ["<imgpad>"] * self.images
        return tokens

    def convert_tokens_to_ids(self, tokens):
        if isinstance(tokens, (str, bytes)):
            return self._convert_token_to_id(tokens)
        return [self._convert_token_to_id(token) for token in tokens]

    def _convert_token_to_id(self, token):
        if token in self.special_tokens:
            return self.special_tokens[token]
        return self.mergeable_ranks.get(token if isinstance(token, bytes) else token.encode(), self.eod_id)

    def _convert_id_to_token(self, index):
        return self.decoder[index]

    def convert_tokens_to_string(self, tokens):
        return b"".join(one if isinstance(one, bytes) else one.encode() for one in tokens).decode(errors="replace")

    def _decode(self, token_ids, skip_special_tokens=False, errors=None, **facts):
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        if skip_special_tokens:
            ids = [one for one in ids if one < self.eod_id]
        return self.tokenizer.decode(ids, errors=errors or self.errors)

    def save_vocabulary(self, save_directory, **facts):
        return ()
'''


def _qwen_vl(folder: Path) -> None:
    visual = {
        "image_size": 448, "patch_size": 56, "width": 64, "layers": 2, "heads": 2, "mlp_ratio": 2.0, "n_queries": 16,
        "output_dim": 128, "image_start_id": _BYTES + _QWEN_SPECIAL.index("<img>"),
    }  # fmt: skip
    config = {
        "model_type": "qwen", "visual": visual, "vocab_size": 320, "hidden_size": 128, "intermediate_size": 256,
        "num_hidden_layers": 2, "num_attention_heads": 2, "layer_norm_epsilon": 1e-6, "max_position_embeddings": 2048,
        "rotary_emb_base": 10000, "kv_channels": 64, "no_bias": True, "tie_word_embeddings": False,
        "auto_map": {"AutoConfig": "configuration_qwen.QWenConfig"},
    }  # fmt: skip
    write_config(folder, config, "QWenLMHeadModel", torch_dtype="float32")
    write_json(
        folder, "tokenizer_config.json",
        {"tokenizer_class": "QWenTokenizer", "special": list(_QWEN_SPECIAL), "images": 16, "model_max_length": 2048,
         "auto_map": {"AutoTokenizer": ["tokenization_qwen.QWenTokenizer", None]}},
    )  # fmt: skip
    ranks = (f"{base64.b64encode(bytes([number])).decode()} {number}" for number in range(_BYTES))
    write_text(folder, "qwen.tiktoken", "\n".join(ranks))
    write_text(folder, "configuration_qwen.py", _QWEN_CONFIG)
    write_text(folder, "tokenization_qwen.py", _QWEN_TOKENIZER)


@recipe("qwen_vl", remote_code=True)
def qwen_vl(folder: Path) -> None:
    """Qwen-VL with a vision tower of 64 patches, 16 tokens an image."""
    _qwen_vl(folder)


@recipe("qwen_vl_chat", remote_code=True)
def qwen_vl_chat(folder: Path) -> None:
    """The same architecture; the record's template and stop tokens differ."""
    _qwen_vl(folder)


_HCX_SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|dummy3|>", "<|_unuse_missing_100270|>", "<|image/start|>",
    "<|image/end|>",
)  # fmt: skip

_HCX_PROCESSOR = '''
import torch
from transformers import AutoTokenizer, BatchFeature, ProcessorMixin

SIDE, TOKENS = 56, 16


class HCXProcessor(ProcessorMixin):
    """As the family's own where vLLM calls it: text alone, then media alone, each media batch of one item."""

    attributes = ["tokenizer"]
    tokenizer_class = "AutoTokenizer"

    def __init__(self, tokenizer=None, **facts):
        super().__init__(tokenizer)

    @classmethod
    def from_pretrained(cls, folder, **facts):
        return cls(AutoTokenizer.from_pretrained(folder))

    def __call__(self, text=None, images=None, videos=None, return_tensors=None, **facts):
        if text is not None:
            return BatchFeature(self.tokenizer(text, return_tensors=return_tensors or "pt"))
        found = {"pixel_values_images": [], "image_sizes_images": [], "vision_query_lengths_images": []}
        for batch in images or []:
            found["pixel_values_images"].append([self.pixels(one) for one in batch])
            found["image_sizes_images"].append([list(one.size) for one in batch])
            found["vision_query_lengths_images"].append([[TOKENS] for _ in batch])
        return BatchFeature(found)

    @staticmethod
    def pixels(image):
        import numpy as np

        small = np.asarray(image.convert("RGB").resize((SIDE, SIDE)), dtype="float32") / 127.5 - 1
        return torch.from_numpy(small).permute(2, 0, 1)[None]
'''

_HCX_TEMPLATE = (
    "{%- for message in messages -%}{{- '<|im_start|>' + message['role'] + '\n' -}}"
    "{%- if message['content'] is string -%}{{- message['content'] -}}{%- else -%}"
    "{%- for part in message['content'] -%}{%- if part['type'] == 'text' -%}{{- part['text'] -}}"
    "{%- else -%}<|image/start|><|dummy3|><|image/end|>{%- endif -%}{%- endfor -%}{%- endif -%}"
    "{{- '<|im_end|>\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)


@recipe("hyperclovax_seed_vision", remote_code=True)
def hyperclovax_seed_vision(folder: Path) -> None:
    """HyperCLOVA X SEED Vision: SigLIP, a linear projector, Llama; images only."""
    from tests.zoo.kit import text_model, vision_model, write_tokenizer

    ids = write_tokenizer(
        folder, _HCX_SPECIAL, eos="<|im_end|>", pad="<|endoftext|>", chat_template=_HCX_TEMPLATE
    )  # fmt: skip
    config = {
        "model_type": "hyperclovax_vlm",
        "text_config": {**text_model(ids[""]), "model_type": "llama"},
        "vision_config": {**vision_model(56), "model_type": "siglip_vision_model"},
        "mm_projector_type": "linear", "use_nth_layer": -1, "anyres": True, "unpad": False, "max_num_grids": 1,
        "use_1x1_grid": True, "num_queries_vis_abstractor_image": -1, "num_queries_vis_abstractor": -1,
        "image_token_id": ids["<|dummy3|>"], "video_token_id": ids["<|_unuse_missing_100270|>"],
        "possible_resolutions": [[56, 56]],
    }  # fmt: skip
    write_config(folder, config, "HCXVisionForCausalLM", torch_dtype="float32")
    write_json(
        folder, "preprocessor_config.json",
        {"processor_class": "HCXProcessor", "auto_map": {"AutoProcessor": "processing_hyperclovax.HCXProcessor"}},
    )  # fmt: skip
    write_text(folder, "processing_hyperclovax.py", _HCX_PROCESSOR)
    # This environment's Transformers names a class of its own, which older ones do not know.
    path = folder / "tokenizer_config.json"
    path.write_text(path.read_text().replace('"TokenizersBackend"', '"PreTrainedTokenizerFast"'))
