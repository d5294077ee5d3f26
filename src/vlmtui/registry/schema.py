"""The record of a model family, as its TOML file holds it: every fact that the application uses about a model."""

from typing import Annotated, Literal

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.sampling import Sampling
from vlmtui.registry.token_rules import TokenRule

Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
Place = Literal["before", "after", "turn", "front"]
RenderedBy = Literal["text", "tokenizer", "processor"]
Engine = Literal["vllm", "vllm-transformers", "plugin"]
Version = Annotated[str, msgspec.Meta(pattern=r"^(\d{1,6}(\.\d{1,6}){0,3})?$")]
Package = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]


class Layout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the placeholders of one modality are written into a turn."""

    placeholder: str
    """Stands for one item; `{i}` counts the items of the modality over the conversation from 1. Empty where the engine
    puts the item's tokens into the prompt by itself."""
    place: Place = "before"
    """`before` or `after` the turn's text, before the whole `turn`, or at the very `front` of the prompt."""
    separator: str = ""
    """Between two placeholders that follow each other."""
    gap: str = ""
    """Between the placeholders and the text, and between placeholders of two modalities."""


class Takes(Layout, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a family takes one modality."""

    max_items: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 1
    """Items of this modality in one conversation."""
    interleave: bool = True
    """Whether an item may stand in the middle of the text; if not, it is moved to its place."""
    several: Layout | None = None
    """The layout of conversations with two or more items, where it is another one."""
    part: dict[str, object] = msgspec.field(default_factory=dict)
    """The content part that stands for one item in messages; empty: `{"type": MODALITY}`."""
    frames: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    """Video only: how many frames a video is given as by default."""
    metadata: bool = False
    """Video only: the engine demands the frames' times and indices, too."""
    tokens: TokenRule | None = None
    """How many tokens an item takes, by its size: for an estimate before the model is loaded. None: not known, or
    not the same for all of the family's models."""


class RawTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a raw prompt is written: turn by turn as text, or by the model's own template from messages."""

    by: RenderedBy = "text"
    """`text`: by the fields below. `tokenizer`, `processor`: by that one's chat template, which the worker applies."""
    parts: bool = False
    """Messages only: content as a list of parts; otherwise one string that holds the placeholders."""
    user: str = ""
    """`{content}` is the turn's text with its placeholders."""
    assistant: str = ""
    system: str | None = None
    """None: the family has no system turn. Messages always may have one."""
    default_system: str | None = None
    """The system prompt where the user gives none."""
    bos: str = ""
    generation_prompt: str = ""
    """What stands before the answer."""
    chat_template: str | None = None
    """Messages only: the Jinja template to apply instead of the model's own."""


class Lora(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A LoRA adapter that every request of the family needs."""

    name: str
    id: Count = 1
    path: str = ""
    """Relative to the model's folder."""


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to run the family."""

    engine: Engine = "vllm"
    """`vllm`: its own class; `vllm-transformers`: its Transformers backend; `plugin`: a package that extends vLLM."""
    architecture: str = ""
    """The class that serves it there, as vLLM's registry names it."""
    since: Version = ""
    """The first vLLM version with it; empty: not known, or any."""
    until: Version = ""
    """The last vLLM version with it; empty: the current one has it."""
    broken: tuple[Version, ...] = ()
    """vLLM versions that have it but cannot run it; `note` says why."""
    hf_overrides: dict[str, object] = msgspec.field(default_factory=dict)
    """Merged into the engine argument of that name."""
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    """Engine arguments of this route only."""
    needs: tuple[Package, ...] = ()
    """Packages, beyond vLLM's own, by the name they are imported under. No part of one (`a.b`): to look for that,
    Python would run the package."""
    note: str = ""


Checked = Literal["", "engine", "trained"]


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family."""

    family: str
    title: str
    models: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1)]
    """Repository ids; the first is the default. `bundled:NAME` is a model that ships with the package."""
    architectures: tuple[str, ...]
    """As in the models' `config.json`."""
    model_types: tuple[str, ...] = ()
    """As in the models' `config.json`."""
    config: dict[str, object] = msgspec.field(default_factory=dict)
    """Further facts of `config.json`, by dotted name, that tell the family from others of the same architecture."""
    patterns: tuple[str, ...] = ()
    """Shell patterns of repository or folder names, without the owner; case does not matter."""
    takes: dict[Modality, Takes]
    raw: RawTemplate
    raw_several: RawTemplate | None = None
    """For conversations with two or more items of a modality, where that prompt is another one."""
    question: Literal["free", "ignored", "task"] = "free"
    """`ignored`: the prompt has no place for it. `task`: one of `tasks` stands for it, unless it begins with one."""
    tasks: tuple[str, ...] = ()
    """Task prompts; the first is the default."""
    chat: Literal["model", "registry"] = "model"
    """Whether the model has a chat template of its own; if not, one is made from `raw`."""
    stop_tokens: tuple[str, ...] = ()
    """Tokens that end an answer besides the model's own end of sequence; `@eos_token` is the tokenizer's."""
    stop_token_ids: tuple[Count, ...] = ()
    sampling: Sampling | None = None
    """Stands under what the user has set."""
    lora: Lora | None = None
    trust_remote_code: bool = False
    """The repository's own Python code has to run. It never does without the user's yes."""
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    """vLLM engine arguments, by name."""
    engine_args_several: dict[str, object] = msgspec.field(default_factory=dict)
    """Replace those of the same name where a conversation may hold two or more images."""
    engine_args_video: dict[str, object] = msgspec.field(default_factory=dict)
    """Replace those of the same name where a conversation may hold a video."""
    routes: tuple[Route, ...] = (Route(),)
    """How it runs, the best way first. None of them may be open in the installed vLLM."""
    checked: Checked = ""
    """How it was verified: `engine`: a tiny model of the true architecture answered in the real engine, from this
    record (tests/zoo); `trained`: a trained model did; empty: only constructed and compared."""
    checked_note: str = ""
    """With what, or why not."""
    parameters_b: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)] | None = None
    """Billions of parameters of the default model, all of them (of a mixture of experts, too)."""
    context: Count | None = None
    """Tokens of context of the default model."""
    smaller: tuple[Name, ...] = ()
    """Repositories of smaller or quantised variants, for machines that the default does not fit."""
    gated: bool = False
    """The repository asks for an agreement and an account first."""
    licence: str = ""
    source: str = ""
    """Where the facts come from."""
    note: str = ""
    """One line for people."""
