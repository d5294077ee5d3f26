"""Families that run in Hugging Face Transformers and not in vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.zoo.kit import load_tokenizer, recipe, text_model, vision_model, write_config, write_tokenizer
from tests.zoo.recipes.special_phi4 import write_adapters
from tests.zoo.templates import chat_template

LLAMA_3 = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")


@recipe("chameleon", images=1)
def chameleon(folder: Path) -> None:
    """Chameleon: an image becomes 16 tokens of a vocabulary of its own (64 codes)."""
    from transformers import ChameleonConfig, ChameleonImageProcessor, ChameleonProcessor

    codes = [f"IMGIMG{''.join(chr(ord('A') + int(digit)) for digit in str(code))}Z" for code in range(64)]
    special = ["<s>", "<pad>", "</s>", "<image>", "<racm3:break>", "<eoss>", "<reserved08706>", *codes]
    ids = write_tokenizer(
        folder, special, bos="<s>", eos="</s>", pad="<pad>", add_bos=True,
        sep_token="<reserved08706>", image_token="<image>", boi_token="<racm3:break>", eoi_token="<eoss>",
    )  # fmt: skip
    vq = {
        "resolution": 64, "embed_dim": 32, "latent_channels": 32, "num_embeddings": 64, "base_channels": 32,
        "channel_multiplier": [1, 1, 1, 1, 1], "num_res_blocks": 1,
    }  # fmt: skip
    size = ids.pop("")
    config = ChameleonConfig(
        **{name: value for name, value in text_model(size).items() if name != "head_dim"}, vq_config=vq,
        vocabulary_map=load_tokenizer(folder).get_vocab(), bos_token_id=ids["<s>"], eos_token_id=ids["</s>"],
    )  # fmt: skip
    write_config(folder, config, "ChameleonForConditionalGeneration")
    square = {"size": {"shortest_edge": 64}, "crop_size": {"height": 64, "width": 64}}
    ChameleonProcessor(ChameleonImageProcessor(**square), load_tokenizer(folder), image_seq_length=16).save_pretrained(
        folder
    )


def fuyu_tokenizer(folder: Path) -> None:
    """SentencePiece as far as Fuyu needs it: an underscore before the first image token, and its fixed ids."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    pieces += [chr(code) for code in range(33, 127)]
    pieces += [f"<unused_{number}>" for number in range(71_011 - len(pieces))] + ["|SPEAKER|"]
    pieces += [f"<unused_{number}>" for number in range(71_012, 71_019)] + ["|NEWLINE|"]
    base = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=0, byte_fallback=True))
    base.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    base.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    base.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in ("<unk>", "<s>", "</s>")])
    base.add_tokens([AddedToken("<0x04>", normalized=False)])
    PreTrainedTokenizerFast(
        tokenizer_object=base, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="</s>"
    ).save_pretrained(folder)


@recipe("fuyu", images=1)
def fuyu(folder: Path) -> None:
    """Fuyu: patches of 30 × 30 pixels go straight into a Persimmon; rows end with a token of their own."""
    from transformers import FuyuConfig, FuyuImageProcessor, FuyuProcessor

    fuyu_tokenizer(folder)
    plain = {
        name: value for name, value in text_model(71_040).items() if name not in ("head_dim", "num_key_value_heads")
    }
    config = FuyuConfig(**plain, image_size=120, patch_size=30, image_token_id=71_011)
    write_config(folder, config, "FuyuForCausalLM")
    FuyuProcessor(FuyuImageProcessor(size={"height": 120, "width": 180}), load_tokenizer(folder)).save_pretrained(
        folder
    )


def mllama_config(vocabulary: int) -> Any:
    """Six vision layers, of which the second's and fourth's inputs are features, too; cross-attention in one of three.

    The image token is the first id behind the vocabulary that can be answered."""
    from transformers import MllamaConfig
    from transformers.models.mllama.configuration_mllama import MllamaTextConfig, MllamaVisionConfig

    vision = MllamaVisionConfig(
        hidden_size=32, num_hidden_layers=6, num_global_layers=2, attention_heads=2, intermediate_size=64,
        vision_output_dim=32 * 3, image_size=28, patch_size=7, max_num_tiles=4, intermediate_layers_indices=[1, 3],
    )  # fmt: skip
    text = MllamaTextConfig(
        **text_model(vocabulary, num_hidden_layers=3), cross_attention_layers=[1], bos_token_id=256,
        eos_token_id=[257, 260], pad_token_id=261,
    )  # fmt: skip
    return MllamaConfig(vision_config=vision, text_config=text, image_token_index=vocabulary)


@recipe("mllama")
def mllama(folder: Path) -> None:
    """Llama 3.2 Vision: images are seen by cross-attention, and take one token of the prompt each."""
    from transformers import MllamaImageProcessor, MllamaProcessor

    template = chat_template(
        {role: f"<|start_header_id|>{role}<|end_header_id|>\n\n" for role in ("system", "user", "assistant")},
        "<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n", start="<|begin_of_text|>", image="<|image|>",
    )  # fmt: skip
    ids = write_tokenizer(
        folder, [*LLAMA_3, "<|finetune_right_pad_id|>", "<|python_tag|>", "<|image|>"], bos=LLAMA_3[0],
        eos="<|eot_id|>", pad="<|finetune_right_pad_id|>", add_bos=True, chat_template=template,
    )  # fmt: skip
    write_config(folder, mllama_config(ids["<|image|>"]), "MllamaForConditionalGeneration")
    images = MllamaImageProcessor(size={"height": 28, "width": 28}, max_image_tiles=4)
    MllamaProcessor(images, load_tokenizer(folder), chat_template=template).save_pretrained(folder)


@recipe("florence2", images=1)
def florence2(folder: Path) -> None:
    """Florence-2: a DaViT and a BART; the encoder sees the image and a sentence that stands for the task."""
    from transformers import BartConfig, CLIPImageProcessor, Florence2Config, Florence2Processor

    places = [f"<loc_{number}>" for number in range(1000)]
    ids = write_tokenizer(
        folder, ["<s>", "<pad>", "</s>", "<unk>", "<image>", *places], bos="<s>", eos="</s>", pad="<pad>", unk="<unk>",
        add_bos=False, image_token="<image>",
    )  # fmt: skip
    text = BartConfig(
        vocab_size=ids[""], d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=512,
        bos_token_id=ids["<s>"], eos_token_id=ids["</s>"], pad_token_id=ids["<pad>"],
        decoder_start_token_id=ids["</s>"], forced_bos_token_id=ids["<s>"], forced_eos_token_id=ids["</s>"],
    )  # fmt: skip
    vision = {
        "embed_dim": [16, 16, 32, 32], "num_heads": [1, 1, 2, 2], "num_groups": [1, 1, 2, 2], "depths": [1, 1, 1, 1],
        "window_size": 4, "projection_dim": 64,
    }  # fmt: skip
    config = Florence2Config(text_config=text.to_dict(), vision_config=vision, image_token_id=ids["<image>"])
    write_config(
        folder, config, "Florence2ForConditionalGeneration", bos_token_id=ids["<s>"], eos_token_id=ids["</s>"],
        pad_token_id=ids["<pad>"], decoder_start_token_id=ids["</s>"],
    )  # fmt: skip
    square = {"size": {"height": 64, "width": 64}, "crop_size": {"height": 64, "width": 64}}
    images = CLIPImageProcessor(**square)
    images.image_seq_length = 4 + 1  # of 2 × 2 and their mean
    rules: dict[str, dict[str, object]] = {kind: {} for kind in ("pure_text", "polygons", "bboxes")}
    rules |= {kind: {} for kind in ("description_with_bboxes", "description_with_polygons")}
    rules |= {"ocr": {"pattern": r"(.+?)<loc_(\d+)>", "area_threshold": 0.0}}
    rules |= {"phrase_grounding": {"banned_grounding_tokens": []}, "description_with_bboxes_or_polygons": {}}
    Florence2Processor(images, load_tokenizer(folder), post_processor_config=rules).save_pretrained(folder)


@recipe("phi4_multimodal", engine_args={"max_model_len": 4096}, note="with its adapter for images")
def phi4_multimodal(folder: Path) -> None:
    """Phi-4 Multimodal as Transformers has it: 256 tokens a tile are fixed in its processor, so 32 × 32 patches."""
    from transformers import (
        Phi4MultimodalConfig,
        Phi4MultimodalFeatureExtractor,
        Phi4MultimodalImageProcessor,
        Phi4MultimodalProcessor,
    )

    template = chat_template(
        {role: f"<|{role}|>" for role in ("system", "user", "assistant")}, "<|end|>", "<|assistant|>", image="<|image|>"
    )
    special = ["<|endoftext|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|image|>", "<|audio|>"]
    ids = write_tokenizer(
        folder, special, bos="<|endoftext|>", eos="<|endoftext|>", chat_template=template,
        image_token="<|image|>", audio_token="<|audio|>",
    )  # fmt: skip
    vision = vision_model(64, 2, crop_size=64, image_token_id=ids["<|image|>"])
    audio = {
        "hidden_size": 32, "intermediate_size": 32, "num_blocks": 1, "num_attention_heads": 2, "nemo_conv_channels": 8,
        "ext_pw_out_channel": 32, "depthwise_separable_out_channel": 32, "audio_token_id": ids["<|audio|>"],
    }  # fmt: skip
    config = Phi4MultimodalConfig(
        **{name: value for name, value in text_model(ids[""]).items() if name != "head_dim"},
        vision_config=vision, audio_config=audio, bos_token_id=ids["<|endoftext|>"],
        eos_token_id=[ids["<|endoftext|>"], ids["<|end|>"]], pad_token_id=ids["<|endoftext|>"],
        original_max_position_embeddings=4096,
    )  # fmt: skip
    write_config(folder, config, "Phi4MultimodalForCausalLM")
    images = Phi4MultimodalImageProcessor(size={"height": 64, "width": 64}, patch_size=2, dynamic_hd=4)
    Phi4MultimodalProcessor(images, Phi4MultimodalFeatureExtractor(), load_tokenizer(folder)).save_pretrained(folder)
    write_adapters(folder, {"vision-lora": 0.3, "idle-lora": 0.0})
