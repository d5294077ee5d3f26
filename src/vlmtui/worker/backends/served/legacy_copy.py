"""The bundled model as a Transformers of before version 5 reads it: the same weights, other configuration files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vlmtui.files import write_private
from vlmtui.reading import read_json

_BYTES_MAX = 1_000_000
_CONFIG, _TOKENIZER = "config.json", "tokenizer_config.json"


def write_legacy_copy(folder: Path, target: Path) -> Path:
    """Write the copy, in which all other files are links. Raises VlmtuiError."""
    target.mkdir(exist_ok=True)
    for file in folder.iterdir():
        if file.name not in (_CONFIG, _TOKENIZER) and not (target / file.name).exists():
            (target / file.name).symlink_to(file)
    _write(target / _CONFIG, _legacy_config(_read(folder / _CONFIG)))
    _write(target / _TOKENIZER, _legacy_tokenizer(_read(folder / _TOKENIZER)))
    return target


def _legacy_config(config: dict[str, Any]) -> dict[str, Any]:
    """Lift the language model's fields to the top, and tell its rotary embedding in the former two fields."""
    text = dict(config.pop("text_config"))
    rope = text.pop("rope_parameters")
    vision = {name: value for name, value in config["vision_config"].items() if name not in _NEW}
    text = {name: value for name, value in text.items() if name not in _NEW}
    scaling = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    return {**text, **config, "vision_config": vision, "rope_theta": rope["rope_theta"], "rope_scaling": scaling}


_NEW = ("model_type", "layer_types", "rope_parameters")


def _legacy_tokenizer(config: dict[str, Any]) -> dict[str, Any]:
    config.pop("backend")
    special = config.pop("extra_special_tokens")
    return {**config, "additional_special_tokens": special, "tokenizer_class": "Qwen2TokenizerFast"}


def _read(path: Path) -> dict[str, Any]:
    found = read_json(path, bytes_max=_BYTES_MAX)
    assert isinstance(found, dict)
    return found


def _write(path: Path, config: dict[str, Any]) -> None:
    write_private(path, json.dumps(config, indent=2).encode())
