"""Google's families: a SigLIP tower (a MobileNet for Gemma 3n) and a Gemma decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.zoo.kit import load_tokenizer, recipe, text_model, vision_model, write_config, write_tokenizer

SIDE = 56
TURNS = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
NEW_LINES = ("\n", "\n\n", "\n\n\n", "\n\n\n\n")
"""The engine looks these up in the vocabulary, where Gemma's have a token each."""

_TURNS = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- else -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<image>' }}
            {%- elif item['type'] == 'audio' -%}
                {{ '<audio_soft_token>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\\n' }}
{%- endif -%}"""
"""Gemma's template: the assistant is called "model", a system message goes into the first turn, and roles alternate."""


def gemma_tokenizer(folder: Path, special: tuple[str, ...], template: str | None, **names: Any) -> dict[str, int]:
    """A Gemma tokenizer; `names` says what the processor finds its special tokens by."""
    return write_tokenizer(
        folder,
        special,
        bos="<bos>",
        eos="<eos>",
        pad="<pad>",
        unk="<unk>",
        words=NEW_LINES,
        add_bos=True,
        chat_template=template,
        **names,
    )


def turns(image: str) -> str:
    """The chat template of Gemma for a given placeholder."""
    return _TURNS.replace("<image>", image)


def siglip_processor() -> Any:
    """The image processor of the SigLIP tower."""
    from transformers import SiglipImageProcessor

    return SiglipImageProcessor(size={"height": SIDE, "width": SIDE})


def make_paligemma(folder: Path, text: dict[str, Any]) -> None:
    """PaliGemma on the given decoder. It has no chat template: its prompts are commands."""
    from transformers import PaliGemmaConfig, PaliGemmaProcessor

    special = ("<pad>", "<eos>", "<bos>", "<unk>", "<image>")
    ids = gemma_tokenizer(folder, special, None, image_token="<image>")
    image = siglip_processor()
    image.image_seq_length = 16
    processor = PaliGemmaProcessor(image, load_tokenizer(folder))  # adds 1,152 tokens for places and shapes
    config = PaliGemmaConfig(
        vision_config=vision_model(SIDE, model_type="siglip_vision_model", vision_use_head=False),
        text_config=text_model(len(processor.tokenizer), pad_token_id=ids["<pad>"], eos_token_id=ids["<eos>"]) | text,
        image_token_index=ids["<image>"], projection_dim=64, hidden_size=64, bos_token_id=ids["<bos>"],
        eos_token_id=ids["<eos>"], pad_token_id=ids["<pad>"],
    )  # fmt: skip
    write_config(folder, config, "PaliGemmaForConditionalGeneration")
    processor.save_pretrained(folder)


@recipe("paligemma", images=1)
def paligemma(folder: Path) -> None:
    """PaliGemma."""
    make_paligemma(folder, {"model_type": "gemma"})


@recipe("paligemma2", images=1)
def paligemma2(folder: Path) -> None:
    """PaliGemma 2."""
    make_paligemma(folder, {"model_type": "gemma2", "query_pre_attn_scalar": 32, "sliding_window": 512})


@recipe("gemma3")
def gemma3(folder: Path) -> None:
    """Gemma 3: 16 tokens an image, and more for the pieces that "pan and scan" cuts."""
    from transformers import Gemma3Config, Gemma3ImageProcessor, Gemma3Processor

    names: dict[str, Any] = {
        "image_token": "<image_soft_token>",
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
    }
    ids = gemma_tokenizer(folder, (*TURNS, *names.values()), turns("<start_of_image>"), **names)
    config = Gemma3Config(
        vision_config=vision_model(SIDE, vision_use_head=False), mm_tokens_per_image=4,
        text_config=text_model(ids[""], query_pre_attn_scalar=32, sliding_window=512),
        image_token_index=ids["<image_soft_token>"],
        boi_token_index=ids["<start_of_image>"], eoi_token_index=ids["<end_of_image>"],
    )  # fmt: skip
    write_config(
        folder, config, "Gemma3ForConditionalGeneration", eos_token_id=[ids["<eos>"], ids["<end_of_turn>"]],
        bos_token_id=ids["<bos>"], pad_token_id=ids["<pad>"],
    )  # fmt: skip
    Gemma3Processor(
        Gemma3ImageProcessor(size={"height": SIDE, "width": SIDE}), load_tokenizer(folder), image_seq_length=4
    ).save_pretrained(folder)


@recipe("gemma3n", needs=("timm",), audio=True)
def gemma3n(folder: Path) -> None:
    """Gemma 3n: 256 tokens an image, from timm's MobileNet with an eighth of its width."""
    from transformers import Gemma3nAudioFeatureExtractor, Gemma3nConfig, Gemma3nProcessor, SiglipImageProcessor

    names: dict[str, Any] = {
        "image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>",
        "audio_token": "<audio_soft_token>", "boa_token": "<start_of_audio>", "eoa_token": "<end_of_audio>",
    }  # fmt: skip
    ids = gemma_tokenizer(folder, (*TURNS, *names.values()), turns("<image_soft_token>"), **names)
    decoder = text_model(
        ids[""] + 16, intermediate_size=128, num_hidden_layers=4, num_kv_shared_layers=2, laurel_rank=16,
        hidden_size_per_layer_input=32, vocab_size_per_layer_input=ids[""], sliding_window=512,
        activation_sparsity_pattern=[0.0] * 4,
        layer_types=["sliding_attention", "full_attention"] * 2,
    )  # fmt: skip
    eyes = {"vocab_size": 8, "vocab_offset": ids[""], "model_args": {"channel_multiplier": 0.125}}
    ears = {
        "hidden_size": 64, "conf_num_attention_heads": 2, "conf_num_hidden_layers": 1, "vocab_size": 8,
        "vocab_offset": ids[""] + 8, "sscp_conv_channel_size": [16, 8],
    }  # fmt: skip
    config = Gemma3nConfig(
        text_config=decoder, audio_config=ears, vision_config=eyes,
        image_token_id=ids["<image_soft_token>"], boi_token_id=ids["<start_of_image>"],
        eoi_token_id=ids["<end_of_image>"], audio_token_id=ids["<audio_soft_token>"],
        boa_token_id=ids["<start_of_audio>"], eoa_token_id=ids["<end_of_audio>"],
    )  # fmt: skip
    write_config(
        folder, config, "Gemma3nForConditionalGeneration", eos_token_id=[ids["<eos>"], ids["<end_of_turn>"]],
        bos_token_id=ids["<bos>"], pad_token_id=ids["<pad>"],
    )  # fmt: skip
    # The tower's last stage but one has a sixteenth of the image's size: these 256 tokens.
    images = SiglipImageProcessor(size={"height": 256, "width": 256}, do_normalize=False)
    Gemma3nProcessor(Gemma3nAudioFeatureExtractor(), images, load_tokenizer(folder)).save_pretrained(folder)
