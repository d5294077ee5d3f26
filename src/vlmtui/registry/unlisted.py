"""The record of a model that no family has, as far as the model's own files tell it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui.domain.conversation import Modality
from vlmtui.errors import VlmtuiError
from vlmtui.reading import read_object, read_struct, read_whole
from vlmtui.registry.hub_cache import language_value
from vlmtui.registry.schema import Family, RawTemplate, Takes

UNLISTED = ""
"""Family name of models that belong to no known family."""
_TOKENIZER_BYTES_MAX = 100_000_000
_TEMPLATE_BYTES_MAX = 1_000_000
_IDS: dict[Modality, tuple[str, ...]] = {
    modality: (f"{modality}_token_id", f"{modality}_token_index") for modality in ("image", "video", "audio")
}
"""Fields of `config.json` with the id of the placeholder's token."""
_SIGNS: dict[Modality, tuple[str, ...]] = {
    "image": (*_IDS["image"], "vision_config", "visual", "vision_tower", "mm_vision_tower"),
    "video": _IDS["video"],
    "audio": (*_IDS["audio"], "audio_config", "sound_config"),
}
"""Fields of `config.json` that a model has if it accepts the modality."""
_ITEMS: dict[Modality, int] = {"image": 8, "video": 1, "audio": 1}


class _AddedToken(msgspec.Struct):
    id: int
    content: str


class _Tokenizer(msgspec.Struct):
    """The part of `tokenizer.json` that is read."""

    added_tokens: list[_AddedToken] = []


def unlisted_family(
    name: str, architecture: str = "", *, config: Mapping[str, object] | None = None, folder: Path | None = None
) -> Family:
    """Return the record of a model without one: it chats by its own template, and its raw prompt is what that template
    writes. `config`, `folder`: its `config.json` and files, if they are on this machine."""
    config = config or {}
    length = language_value(config, "max_position_embeddings")
    return Family(
        family=UNLISTED,
        title=name,
        models=(name,),
        architectures=(architecture,) if architecture else (),
        takes=_takes(config, _placeholders(config, folder) if folder is not None else {}),
        raw=RawTemplate(by="processor", parts=True),
        context=length if isinstance(length, int) and 0 < length < 10**9 else None,
        note="Not in the registry: chats by its own template, which also writes the raw prompt. Unknown: its limits, "
        "and an image's tokens before the model is loaded.",
    )


def _takes(config: Mapping[str, object], placeholders: Mapping[Modality, str]) -> dict[Modality, Takes]:
    """Return what the model accepts: audio only if its config says so, images and videos unless it is for audio only.
    The engine knows the limits."""
    signs = {modality for modality, names in _SIGNS.items() if any(config.get(name) is not None for name in names)}
    found: list[Modality] = [] if signs == {"audio"} else ["image", "video"]
    found += ["audio"] if "audio" in signs else []
    return {
        modality: Takes(
            placeholder=placeholders.get(modality, ""),
            max_items=_ITEMS[modality],
            frames=8 if modality == "video" else None,
        )
        for modality in found
    }


def _placeholders(config: Mapping[str, object], folder: Path) -> dict[Modality, str]:
    """Return the placeholders by modality: the tokens that the config names, if the chat template writes them. A model
    whose template writes another text, which its processor replaces, is left out."""
    ids = {modality: next((config[name] for name in names if name in config), None) for modality, names in _IDS.items()}
    if not any(isinstance(value, int) for value in ids.values()):
        return {}
    template = "\n".join(_templates(folder))
    texts = _added_tokens(folder) if template else {}
    return {
        modality: text
        for modality, value in ids.items()
        if isinstance(value, int) and (text := texts.get(value, "")) and text in template
    }


def _templates(folder: Path) -> Iterator[str]:
    """Yield the sources of the chat templates in a model's folder."""
    with suppress(VlmtuiError, UnicodeDecodeError):
        yield read_whole(folder / "chat_template.jinja", bytes_max=_TEMPLATE_BYTES_MAX).decode()
    for name in ("chat_template.json", "processor_config.json", "tokenizer_config.json"):
        template = read_object(folder / name, bytes_max=_TOKENIZER_BYTES_MAX).get("chat_template")
        if isinstance(template, str):
            yield template


def _added_tokens(folder: Path) -> dict[int, str]:
    """Return the texts of the tokens that a tokenizer adds to its vocabulary, by id."""
    with suppress(VlmtuiError):
        found = read_struct(folder / "tokenizer.json", _Tokenizer, bytes_max=_TOKENIZER_BYTES_MAX)
        return {token.id: token.content for token in found.added_tokens}
    with suppress(ValueError):
        told = read_object(folder / "tokenizer_config.json", bytes_max=_TOKENIZER_BYTES_MAX)
        added = told.get("added_tokens_decoder")
        pairs = added.items() if isinstance(added, dict) else ()
        return {int(id): str(token["content"]) for id, token in pairs if isinstance(token, dict) and "content" in token}
    return {}
