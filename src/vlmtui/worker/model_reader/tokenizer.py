"""Loads a model's tokenizer and reads the facts that prompts depend on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vlmtui.domain.model_reading import TokenizerReading
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.raw_prompt_check import special_looking
from vlmtui.reading import is_file, read_json

_BYTES_MAX = 10_000_000
_FILES = ("tokenizer_config.json", "tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json", "vocab.txt")
_SPECIAL_MAX = 20_000


class CodeNotAllowed(Exception):
    """Raised when a tokenizer needs code of the repository that was not allowed."""


def has_tokenizer(folder: Path) -> bool:
    """Whether the folder has a file of a tokenizer."""
    return any(is_file(folder / name) for name in _FILES)


def needs_code(folder: Path) -> bool:
    """Whether the tokenizer's class comes with the model."""
    found = _json(folder / "tokenizer_config.json")
    named = found.get("auto_map")
    return isinstance(named, dict) and "AutoTokenizer" in named


def load_tokenizer(folder: Path, *, trust_remote_code: bool) -> Any:
    """Load the tokenizer as vLLM does. Raises CodeNotAllowed, or what transformers raises."""
    from transformers import AutoTokenizer

    if needs_code(folder) and not trust_remote_code:
        raise CodeNotAllowed
    return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=trust_remote_code, local_files_only=True)


def read_tokenizer(tokenizer: Any, folder: Path, texts: Iterable[str]) -> TokenizerReading:
    """Read the facts. `texts`: renderings, whose special-looking texts are looked up."""
    bos, eos = tokenizer.bos_token, tokenizer.eos_token
    plain = list(tokenizer("a").input_ids)
    looking = {found for text in texts for found in special_looking(text)}
    added = tokenizer.get_added_vocab()
    special = [str(token) for token in dict.fromkeys([*tokenizer.all_special_tokens, *added])]
    stops = dict.fromkeys([*([eos] if eos else []), *_stop_texts(tokenizer, folder)])
    return TokenizerReading(
        name=type(tokenizer).__name__,
        bos=bos,
        eos=eos,
        adds_bos=bos is not None and plain[:1] == [tokenizer.bos_token_id],
        special=tuple(special[:_SPECIAL_MAX]),
        stops=tuple(stops),
        known={text: _is_token(tokenizer, text) for text in sorted(looking)},
    )


def _is_token(tokenizer: Any, text: str) -> bool:
    return len(tokenizer(text, add_special_tokens=False).input_ids) == 1


def _stop_texts(tokenizer: Any, folder: Path) -> Iterator[str]:
    """Yield the texts of the EOS tokens in generation_config.json and config.json (also of its text model)."""
    config = _json(folder / "config.json")
    text_config = config.get("text_config")
    for found in (_json(folder / "generation_config.json"), config, text_config):
        ids = found.get("eos_token_id") if isinstance(found, dict) else None
        for number in ids if isinstance(ids, list) else [ids]:
            if isinstance(number, int) and (text := tokenizer.convert_ids_to_tokens(number)) is not None:
                yield str(text)


def _json(path: Path) -> dict[str, object]:
    try:
        found = read_json(path, bytes_max=_BYTES_MAX)
    except VlmtuiError:
        return {}
    return found if isinstance(found, dict) else {}
