"""The record of a model family, as its TOML file holds it."""

from __future__ import annotations

from typing import Literal

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.sampling import Sampling

Place = Literal["before", "after", "inline"]


class Takes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a family takes one modality."""

    placeholder: str
    """The text that stands for one item in a raw prompt; `{i}` counts the items over the conversation from 1."""
    max_items: int = 1
    """Items of this modality in one conversation."""
    place: Place = "inline"
    """Where the placeholder may stand in a turn: always `before` or `after` its text, or `inline` where it was put."""
    joiner: str = ""
    """Between placeholders that follow each other, and between them and the text."""
    frames: int | None = None
    """Video only: how many frames a video is given as by default."""


class RawTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a raw prompt is written, turn by turn. `{content}` is the turn's text with its placeholders."""

    user: str
    assistant: str
    system: str | None = None
    """None: the family has no system turn."""
    bos: str = ""
    generation_prompt: str = ""
    """What stands before the answer."""


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family. Every fact the application uses about a model comes from here."""

    family: str
    title: str
    models: tuple[str, ...]
    """Repository ids; the first is the default. `bundled:NAME` is a model that ships with the package."""
    architectures: tuple[str, ...]
    """As in `config.json`."""
    takes: dict[Modality, Takes]
    raw: RawTemplate
    stop_tokens: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    sampling: Sampling | None = None
    """Overrides what the user has not set himself."""
    parameters_b: float | None = None
    """Billions of parameters of the default model."""
    context: int | None = None
    """Tokens of context of the default model."""
    licence: str = ""
    source: str = ""
    """Where the facts come from."""
    note: str = ""
    """One line for people."""
