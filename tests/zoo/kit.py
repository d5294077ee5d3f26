"""The parts of a recipe for a tiny model.

    from tests.zoo.kit import architecture, recipe, text_model, write_config, write_tokenizer
    from tests.zoo.templates import chat_template

    @recipe("some_family", images=2, video=True, needs=("timm",), note="slow: its vision tower has one size only")
    def some_family(folder: Path) -> None:
        from transformers import ...                     # heavy imports stand inside the function

        ids = write_tokenizer(folder, ["<bos>", "<eos>", "<image>"], bos="<bos>", eos="<eos>",
                              chat_template=chat_template(...), image_token="<image>")
        write_config(folder, SomeConfig(image_token_id=ids["<image>"], ...), "SomeForConditionalGeneration")
        SomeProcessor(SomeImageProcessor(...), load_tokenizer(folder)).save_pretrained(folder)

- `recipe(family, **facts)` registers the function in `RECIPES`; the facts are `Recipe`'s fields.
- `write_tokenizer` saves a byte-level BPE of the 256 bytes (ids 0 to 255), then the special tokens in their order, then
  the plain words. It returns the id of each of those tokens and, under `""`, the vocabulary's size.
- `write_config` saves a config object or a plain dict as `config.json` with the given architecture; `write_json` saves
  any other file (a processor config written by hand), `write_text` a module that `auto_map` names.
- `text_model` and `vision_model` are the tiny sizes that most families share; keyword arguments add or replace.
- `load_recipes()` imports all modules of `tests.zoo.recipes`, so that `RECIPES` is complete;
  `make_checkpoint(family, folder)` makes one.

On a CPU, vLLM wants a text `head_dim` of 32, 64, 80, 96, 112, 128, 160, 192, 224, 256 or 512.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

Make = Callable[[Path], None]


@dataclass(frozen=True)
class Recipe:
    """The recipe of a family's tiny model, and its abilities."""

    family: str
    make: Make
    images: int = 2
    """The number of images that it takes at once; 0: none."""
    video: bool = False
    audio: bool = False
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    """Engine arguments for the CPU or the tiny size, added to those of the record."""
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    """Packages that have to be importable."""
    modes: tuple[str, ...] = ("chat", "raw")
    """The prompt modes that its tokenizer allows."""
    backend: str = ""
    """The backend that tries the model, instead of the record's first route."""
    lora: bool = True
    """True if the checkpoint has the adapter that the record names."""
    remote_code: bool = False
    """True if the checkpoint brings its own configuration or processor module."""
    prepare: Callable[[], None] | None = None
    """Runs in the process before it makes its engine; forked engine processes inherit the effect."""
    note: str = ""


RECIPES: dict[str, Recipe] = {}


def recipe(family: str, **facts: Any) -> Callable[[Make], Make]:
    """Register the decorated function as the recipe of a family."""

    def register(make: Make) -> Make:
        if family in RECIPES:
            raise ValueError(f"two recipes for {family}")
        RECIPES[family] = Recipe(family, make, **facts)
        return make

    return register


def load_recipes() -> dict[str, Recipe]:
    """All recipes, by family."""
    import_module("tests.zoo.recipes")
    return RECIPES


def make_checkpoint(family: str, folder: Path) -> Path:
    """Write the tiny checkpoint of a family into a folder, which is made if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    load_recipes()[family].make(folder)
    return folder


def write_tokenizer(
    folder: Path,
    special: Iterable[str],
    *,
    eos: str,
    bos: str | None = None,
    pad: str | None = None,
    unk: str | None = None,
    words: Iterable[str] = (),
    size: int = 0,
    places: Mapping[str, int] | None = None,
    add_bos: bool = False,
    chat_template: str | None = None,
    **facts: Any,
) -> dict[str, int]:
    """Save a byte-level BPE of 256 bytes, special tokens and plain words; `size` fills it up to at least so many, and
    `places` gives special tokens the ids that an engine knows them by.

    `add_bos` has the beginning-of-sequence token put before every text. Further facts go into `tokenizer_config.json`.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(alphabet)}
    if places:
        free = range(len(alphabet), max(places.values()) + 1)
        named = {number: token for token, number in places.items()}
        vocabulary |= {named.get(number, f"<unused_{number}>"): number for number in free}
    base = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    base.decoder = decoders.ByteLevel()
    added = [*special, *words]
    fillers = [f"<unused_{number}>" for number in range(size - len(alphabet) - len(set(added)))]
    base.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in [*special, *fillers]])
    base.add_tokens([AddedToken(token, special=False, normalized=False) for token in words])
    if add_bos and bos:
        pieces = {"single": f"{bos} $A", "pair": f"{bos} $A {bos}:1 $B:1"}
        base.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(**pieces, special_tokens=[(bos, base.token_to_id(bos))]),
            ]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=base, eos_token=eos, bos_token=bos, pad_token=pad or eos, unk_token=unk, **facts
    )
    tokenizer.chat_template = chat_template
    tokenizer.save_pretrained(folder)
    return {token: base.token_to_id(token) for token in added} | {"": base.get_vocab_size()}


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer that `write_tokenizer` saved, as a processor wants it."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(folder)


def write_config(folder: Path, config: Any, architecture: str = "", **more: Any) -> None:
    """Save a config object, or a dict, as `config.json`, with the name of the model's class."""
    facts = dict(config) if isinstance(config, Mapping) else config.to_dict()
    if architecture:
        facts["architectures"] = [architecture]
    write_json(folder, "config.json", {**facts, "dtype": "float32", **more})


def write_json(folder: Path, name: str, data: Any) -> None:
    """Save a file of the checkpoint as JSON."""
    write_text(folder, name, json.dumps(data, indent=2, ensure_ascii=False))


def write_text(folder: Path, name: str, text: str) -> None:
    """Save a file of the checkpoint as it is."""
    (folder / name).write_text(text, encoding="utf-8")


def text_model(vocabulary: int, **facts: Any) -> dict[str, Any]:
    """The config of a tiny decoder (Llama, Qwen, Mistral, Gemma and the like): 2 layers of width 64, one head pair."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 4096,
    } | facts


def vision_model(image_size: int = 56, patch_size: int = 14, **facts: Any) -> dict[str, Any]:
    """The config of a tiny CLIP-like or SigLIP-like vision tower: 2 layers of width 64."""
    return {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": image_size,
        "patch_size": patch_size,
    } | facts
