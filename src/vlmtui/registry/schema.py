"""The fields of a family's TOML record: every fact that the application uses about a model."""

# Annotations are no strings here: msgspec would compile each of them before the first paint.
import math
from collections.abc import Collection, Mapping
from typing import Annotated, ClassVar, Literal

import msgspec

from vlmtui.domain.conversation import Modality
from vlmtui.domain.dials import ArgumentKind
from vlmtui.domain.engine import LoraAdapter
from vlmtui.domain.sampling import Sampling
from vlmtui.domain.template import EFFORT
from vlmtui.domain.thinking import COMMON_TAGS, ThinkingTags

Settings = Mapping[str, object]
"""The engine argument `mm_processor_kwargs`."""
_MOST = 1_000_000_000
Tokens = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Pixels = Annotated[int, msgspec.Meta(ge=1, le=_MOST)]
Few = Annotated[int, msgspec.Meta(ge=1, le=200)]
_TILES_MAX = 1000
_LONGEST_TO_SHORTEST = 200
"""Maximum aspect ratio; Qwen's processors refuse longer images."""


class _Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="by"):
    knows: ClassVar[frozenset[str]] = frozenset()
    """The processor arguments that the rule supports."""

    def of_image(self, width: int, height: int, settings: Settings) -> int | None:
        """Return the number of tokens of an image of this size in pixels, or None if unknown."""
        raise NotImplementedError

    def of_video(self, width: int, height: int, frames: int, settings: Settings) -> int | None:
        """Return the number of tokens of a video's frames; by default that of the same number of images."""
        one = self.of_image(width, height, settings)
        return None if one is None else one * frames


class FixedTokens(_Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="fixed"):
    tokens: Tokens

    def of_image(self, width: int, height: int, settings: Settings) -> int | None:
        return self.tokens


class PatchTokens(_Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="patches"):
    """A rule that counts tokens: one per square of `patch * merge` pixels a side. The image is first scaled to whole
    squares, with between `min_pixels` and `max_pixels` pixels.

    Source: `smart_resize` of the Qwen2-VL image processor (transformers 5.19).
    """

    knows = frozenset({"min_pixels", "max_pixels", "size"})

    min_pixels: Pixels
    max_pixels: Pixels
    patch: Few = 14
    merge: Few = 2
    frames_together: Few = 2
    """Frames of a video that share one layer of tokens (the temporal patch size)."""

    def of_image(self, width: int, height: int, settings: Settings) -> int | None:
        grid = self._grid(width, height, settings)
        return None if grid is None else grid[0] * grid[1]

    def resized(self, width: int, height: int, settings: Settings) -> tuple[int, int] | None:
        """Return width and height of the resized image in pixels; None if the processor would refuse it."""
        grid = self._grid(width, height, settings)
        side = self.patch * self.merge
        return None if grid is None else (grid[1] * side, grid[0] * side)

    def _grid(self, width: int, height: int, settings: Settings) -> tuple[int, int] | None:
        if max(width, height) > _LONGEST_TO_SHORTEST * min(width, height):
            return None
        low = _setting(settings, "min_pixels", "shortest_edge", self.min_pixels)
        high = _setting(settings, "max_pixels", "longest_edge", self.max_pixels)
        side = self.patch * self.merge
        rows, columns = round(height / side), round(width / side)
        if rows * columns * side * side > high:
            scale = math.sqrt(height * width / high)
            rows, columns = (max(1, math.floor(pixels / scale / side)) for pixels in (height, width))
        elif rows * columns * side * side < low:
            scale = math.sqrt(low / (height * width))
            rows, columns = (math.ceil(pixels * scale / side) for pixels in (height, width))
        return rows, columns

    def of_video(self, width: int, height: int, frames: int, settings: Settings) -> int | None:
        one = self.of_image(width, height, settings)
        return None if one is None else one * math.ceil(frames / self.frames_together)


class TileTokens(_Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="tiles"):
    """A rule that counts tokens: the image is stretched over a grid of 1 to `max_tiles` square tiles, the grid with the
    closest aspect ratio. If there is more than one tile, a thumbnail is added.

    Source: `dynamic_preprocess` of InternVL's model card; the same in vLLM 0.32.
    """

    knows = frozenset({"min_dynamic_patch", "max_dynamic_patch", "dynamic_image_size"})

    tokens: Tokens
    """Per tile."""
    side: Pixels
    """Side of a tile in pixels."""
    max_tiles: Few

    def of_image(self, width: int, height: int, settings: Settings) -> int | None:
        least, most = self._limits(settings)
        sides = range(1, most + 1)
        grids = sorted(
            ((columns, rows) for columns in sides for rows in sides if least <= columns * rows <= most),
            key=lambda grid: grid[0] * grid[1],
        )
        shape, nearest, difference = width / height, (1, 1), math.inf
        for columns, rows in grids:
            off = abs(shape - columns / rows)
            # Of equally close grids, take the larger if the image has enough pixels for more than half of it.
            is_filled = width * height > 0.5 * self.side**2 * columns * rows
            if off < difference or (off == difference and is_filled):
                difference, nearest = off, (columns, rows)
        tiles = nearest[0] * nearest[1]
        return self.tokens * (tiles + 1 if tiles > 1 else 1)

    def _limits(self, settings: Settings) -> tuple[int, int]:
        if settings.get("dynamic_image_size") is False:
            return 1, 1
        given = settings.get("min_dynamic_patch"), settings.get("max_dynamic_patch")
        least, most = (value if isinstance(value, int) else None for value in given)
        most = min(most, _TILES_MAX) if most else self.max_tiles
        return min(max(least or 1, 1), most), most


class SplitTokens(_Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="split"):
    """A rule that counts tokens: the image is scaled to `longest` pixels on its longer side and cut into squares of
    `side` pixels. The whole image is added as one more square.

    Source: Idefics3's image processor (transformers 5.19).
    """

    knows = frozenset({"size", "max_image_size"})

    tokens: Tokens
    """Per square."""
    side: Pixels
    longest: Pixels

    def of_image(self, width: int, height: int, settings: Settings) -> int | None:
        longest = _edge(settings, "size", "longest_edge", self.longest)
        side = _edge(settings, "max_image_size", "longest_edge", self.side)
        shape = width / height
        shorter = int(longest / shape if shape >= 1 else longest * shape)
        shorter = max(1, shorter + shorter % 2)  # an even number of pixels
        squares = math.ceil(longest / side) * math.ceil(shorter / side)
        return self.tokens * (squares + 1 if squares > 1 else 1)


TokenRule = FixedTokens | PatchTokens | TileTokens | SplitTokens


def _setting(settings: Settings, name: str, edge: str, otherwise: int) -> int:
    """Return the pixel limit called `name` or, if that is not set, the `edge` of `size`. Qwen's processors accept
    both."""
    value = settings.get(name)
    return value if isinstance(value, int) and 0 < value <= _MOST else _edge(settings, "size", edge, otherwise)


def _edge(settings: Settings, name: str, edge: str, otherwise: int) -> int:
    table = settings.get(name)
    value = table.get(edge) if isinstance(table, Mapping) else None
    return value if isinstance(value, int) and 0 < value <= _MOST else otherwise


Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
Place = Literal["before", "after", "turn", "front"]
RenderedBy = Literal["text", "tokenizer", "processor"]
Engine = Literal["vllm", "vllm-transformers", "plugin", "transformers", "pinned"]
GroundingFormat = Literal[
    "json", "box_tags", "brackets", "det_tags", "loc_before", "loc_after", "point_tags", "coords_tags"
]
"""The syntax of boxes and points in an answer. `json`: objects with `bbox_2d`, `point_2d` and the like; `box_tags`:
`(x,y),(x,y)` or `[[x,y,x,y]]` between tags; `brackets`: `[[x,y,x,y]]`; `det_tags`: the same in `<|det|>`, after the
label in `<|ref|>`; `loc_before`, `loc_after`: `<locN>` tokens, the label before or after them; `point_tags`:
`<point x="…" y="…">`; `coords_tags`: `<points coords="…">`, which has for each image its number (in a video: the time
in seconds), then the number, x and y of each point."""
CoordinateScale = Literal["pixels", "resized", "unit", "percent", "thousand", "to_999", "to_1024", "bins"]
"""The unit of coordinates: pixels of the image (`pixels`) or of the processor's resized image (`resized`); 0 to 1, 100,
1,000, 999 or 1,024 for the whole side; `bins`: the middles of 1,000 equal parts."""
Version = Annotated[str, msgspec.Meta(pattern=r"^(\d{1,6}(\.\d{1,6}){0,3})?$")]
ModelClass = Annotated[str, msgspec.Meta(pattern=r"^([a-z][a-z0-9_]*:[A-Za-z][A-Za-z0-9_]*)?$", max_length=200)]
OWN_CLASSES = "vlmtui.worker.backends.vllm.models."
"""The package of the classes that `Route.model_class` can name."""
Package = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]


class Layout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the placeholders of one modality are written into a turn."""

    placeholder: str
    """Represents one item; `{i}` is the item's number in the conversation, per modality, from 1. Empty if the engine
    inserts the item's tokens itself."""
    place: Place = "before"
    """`before` or `after` the turn's text, before the whole `turn`, or at the very `front` of the prompt."""
    separator: str = ""
    """Text between two adjacent placeholders."""
    gap: str = ""
    """Text between placeholders and the turn's text, and between placeholders of different modalities."""


class Takes(Layout, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_items: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 1
    """Maximum number of items of this modality in a conversation."""
    interleave: bool = True
    """True if an item may be in the middle of the text. False: it is moved to `place`."""
    several: Layout | None = None
    """The layout for conversations with two or more items, if different."""
    as_text: bool = False
    """True if the processor replaces the placeholder's text before it tokenizes the prompt, so that the placeholder is
    no token. A numbered placeholder never is one."""
    part: dict[str, object] = msgspec.field(default_factory=dict)
    """The content part for one item in messages; empty: `{"type": MODALITY}`."""
    frames: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    """Video only: the default number of frames."""
    metadata: bool = False
    """Video only: the engine also needs the frames' times and indices."""
    tokens: TokenRule | None = None
    """How to estimate an item's tokens from its size before the model is loaded. None: unknown, or not the same for
    all of the family's models."""


class RawTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a raw prompt is written: as text turn by turn, or from messages with the model's own template."""

    by: RenderedBy = "text"
    """`text`: from the fields below. `tokenizer`, `processor`: with its chat template, applied by the worker."""
    parts: bool = False
    """Messages only: content is a list of parts; otherwise one string with the placeholders."""
    user: str = ""
    """`{content}` is the turn's text with its placeholders."""
    media_joins: bool = False
    """True if white space before `{content}` in `user` is left out in a turn that begins with a placeholder."""
    assistant: str = ""
    system: str | None = None
    """None: the family has no system turn. Messages may always have one."""
    default_system: str | None = None
    """The system prompt if the user sets none."""
    bos: str = ""
    generation_prompt: str = ""
    chat_template: str | None = None
    """Messages only: the Jinja template to apply instead of the model's own."""


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    engine: Engine = "vllm"
    """`vllm`: its own class; `vllm-transformers`: its Transformers backend; `plugin`: a package that extends vLLM;
    `transformers`: Hugging Face Transformers instead of vLLM; `pinned`: another version of vLLM, in an environment of
    its own."""
    vllm: Version = ""
    """For `pinned` only: the version."""
    model_class: ModelClass = ""
    """For `vllm` only: a class that ships with vlmtui, as `module:Class` below `vlmtui.worker.backends.vllm.models`."""
    architecture: str = ""
    """The architecture's name in vLLM's registry; for `transformers`, its class."""
    since: Version = ""
    """The first vLLM version that supports it; empty: unknown, or any."""
    until: Version = ""
    """The last vLLM version that supports it; empty: the current one does."""
    broken: tuple[Version, ...] = ()
    """vLLM versions that have it but cannot run it; `note` says why."""
    hf_overrides: dict[str, object] = msgspec.field(default_factory=dict)
    """Merged into the engine argument of the same name."""
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    """Engine arguments of this route only."""
    needs: tuple[Package, ...] = ()
    """Import names of required packages that vLLM does not install. No submodules (`a.b`): Python would have to run the
    package to find them."""
    note: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a field that this kind of engine ignores."""
        if (self.engine == "pinned") != bool(self.vllm):
            raise ValueError('a route with engine = "pinned" has a version `vllm`, and no other route has one')
        if self.model_class and self.engine != "vllm":
            raise ValueError('only a route with engine = "vllm" has a `model_class`')
        _refuse_trust(self.engine_args, self.hf_overrides)


def _refuse_trust(*tables: Mapping[str, object]) -> None:
    """Raise ValueError if a table of engine arguments sets `trust_remote_code`. A record can only say, in its own field
    of that name, that a model needs remote code; permission to run it comes from the user."""
    if any("trust_remote_code" in table for table in tables):
        raise ValueError("a record can't set the engine argument `trust_remote_code`: only the user can switch it on")


class Grounding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a family's models write positions in an image."""

    format: GroundingFormat
    scale: CoordinateScale
    order: Literal["xy", "yx"] = "xy"
    """The order of a pair of numbers: `xy` if the horizontal one comes first."""
    prompt: str = ""
    """The makers' prompt for the position of `{what}`; empty: unknown."""
    times_prompt: str = ""
    """The makers' prompt for when something happens in a video; empty: unknown."""
    source: str

    def prompt_for(self, what: str) -> str:
        """Return the prompt that the model's makers recommend to locate `what`; "" if unknown."""
        return self.prompt.replace("{what}", what)

    def prompt_about(self, modalities: Collection[Modality], what: str) -> str:
        """Return the prompt that the model's makers recommend for a message with these media; "" if unknown. With
        videos and no images it asks for time ranges, if such a prompt is known, and otherwise for the position of
        `what`."""
        is_video = "video" in modalities and "image" not in modalities
        return self.times_prompt if is_video and self.times_prompt else self.prompt_for(what)


class RawChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of `[raw]` that change with a value of the switch or effort of reasoning. A field that is None stays
    the same."""

    bos: str | None = None
    user: str | None = None
    assistant: str | None = None
    system: str | None = None
    default_system: str | None = None
    generation_prompt: str | None = None


Scalar = bool | int | str


class Thinking(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a family's models mark their reasoning, and how it is switched."""

    open: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = COMMON_TAGS.open
    close: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = COMMON_TAGS.close
    special: bool = False
    """True if the tags are special tokens. Answers then keep their special tokens."""
    switch: str = "enable_thinking"
    """The chat template's variable that turns reasoning on and off; empty: the template has none."""
    on: Scalar = True
    off: Scalar = False
    """The values of `switch`."""
    effort: str = EFFORT
    """The chat template's variable for the effort of reasoning; empty: the template has none."""
    raw_on: RawChange | None = None
    raw_off: RawChange | None = None
    """The changes of the raw prompt with reasoning on, and off. None: no changes, or the worker renders the prompt."""
    raw_effort: dict[str, RawChange] = msgspec.field(default_factory=dict)
    """How the raw prompt differs with these values of `effort`, in addition to `raw_on`; `raw_off` has precedence."""
    source: str

    @property
    def tags(self) -> ThinkingTags:
        return ThinkingTags(self.open, self.close)


UNKNOWN_THINKING = Thinking(source="the variables' usual names")
"""For families whose record has no `[thinking]`."""

Skill = Literal["what", "where", "count", "earlier", "compare", "read"]
"""The tasks of the questions that `vlmtui check` asks about drawn images."""
ComparedStage = Literal["image tokens", "pixels", "log-probabilities"]


class KnownDifference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A known difference between vLLM and Transformers with this family, and its reason."""

    stage: ComparedStage
    """The first differing stage in `vlmtui check`."""
    device: Literal["", "cpu"] = ""
    """The kind of device on which vLLM differs; empty: all."""
    why: str


Checked = Literal["", "engine", "trained"]


class ProcessorArgument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: ArgumentKind
    default: bool | int | float | dict[str, int] | None = None
    """The value, unless the model's own files set another; None: only those files tell it."""
    source: str = ""
    """The source of the default: `module:attribute.key`, or a bundled model's `folder/file.json:key`."""
    values: tuple[int, ...] = ()
    """The only numbers that it can be, in ascending order; empty: any."""

    @property
    def range(self) -> str:
        """`values` for people: `70, 140 or 280`; empty if it can be any."""
        *others, last = map(str, self.values or ("",))
        return f"{', '.join(others)} or {last}" if others else last


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    family: str
    title: str
    models: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1)]
    """Repository ids; the first is the default. `bundled:NAME` is a model that ships with the package."""
    architectures: tuple[str, ...]
    """The values of this key in the models' `config.json`."""
    model_types: tuple[str, ...] = ()
    """The values of this key in the models' `config.json`."""
    config: dict[str, object] = msgspec.field(default_factory=dict)
    """Further values of `config.json`, by dotted name, that distinguish families of the same architecture."""
    patterns: tuple[str, ...] = ()
    """Shell patterns for repository or folder names, without the owner; case-insensitive."""
    takes: dict[Modality, Takes]
    raw: RawTemplate
    raw_several: RawTemplate | None = None
    """The template for conversations with two or more items of a modality, if it differs from `raw`."""
    question: Literal["free", "ignored", "task"] = "free"
    """`ignored`: the prompt has no place for the user's text. `task`: replaced by the first of `tasks` unless it starts
    with one of them."""
    tasks: tuple[str, ...] = ()
    chat: Literal["model", "registry"] = "model"
    """The source of the chat template: `model`: the model's own; `registry`: one that is generated from `raw`."""
    stop_tokens: tuple[str, ...] = ()
    """Tokens that end an answer besides the model's EOS token; `@eos_token` is the tokenizer's."""
    stop_token_ids: tuple[Count, ...] = ()
    sampling: Sampling | None = None
    """Defaults for this family; the user's settings take precedence."""
    loras: tuple[LoraAdapter, ...] = ()
    """LoRA adapters; the first whose modalities fit a request answers it."""
    grounding: Grounding | None = None
    """None: unknown, or its models give no coordinates."""
    thinking: Thinking | None = None
    """None: unknown, or its models don't reason. The common tags are then recognised, too."""
    untrained: tuple[Skill, ...] = ()
    """Tasks that its models were not trained for."""
    differences: tuple[KnownDifference, ...] = ()
    """The known differences between vLLM and Transformers that `vlmtui check` finds."""
    trust_remote_code: bool = False
    """The model needs the repository's own Python code, which never runs without the user's permission."""
    processor: dict[str, ProcessorArgument] = msgspec.field(default_factory=dict)
    """Arguments of the model's processor that can be set for one answer."""
    processor_several: dict[str, object] = msgspec.field(default_factory=dict)
    """Defaults of these arguments for a prompt with two or more images."""
    engine_args: dict[str, object] = msgspec.field(default_factory=dict)
    """vLLM engine arguments, by name."""
    engine_args_several: dict[str, object] = msgspec.field(default_factory=dict)
    """Override `engine_args` if a conversation may have two or more images."""
    engine_args_video: dict[str, object] = msgspec.field(default_factory=dict)
    """Override `engine_args` if a conversation may have a video."""
    example: dict[str, object] = msgspec.field(default_factory=dict)
    """Override all of these with the preset `vllm-example`: the values of vLLM's example scripts that the record does
    not have, as they are for small GPUs."""
    example_several: dict[str, object] = msgspec.field(default_factory=dict)
    """Override `example` if a conversation may have two or more images."""
    routes: tuple[Route, ...] = (Route(),)
    """Ways to run the family, best first. Perhaps none works with the installed vLLM."""
    checked: Checked = ""
    """How the record was verified. `engine`: a tiny random model of the real architecture ran in the real engine
    (tests/zoo); `trained`: a trained model did; empty: only compared with vLLM's tables."""
    checked_note: str = ""
    """The model and engine with which the record was verified, or why it was not verified."""
    parameters_b: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)] | None = None
    """Billions of parameters of the default model, in total (for a mixture of experts, too)."""
    context: Count | None = None
    """Context length of the default model in tokens."""
    smaller: tuple[Name, ...] = ()
    """Repositories of smaller or quantised variants, for machines that are too small for the default."""
    gated: bool = False
    """The repository requires an account and accepting its terms."""
    licence: str = ""
    source: str = ""
    note: str = ""
    """A one-line note for display."""

    def __post_init__(self) -> None:
        _refuse_trust(*self.argument_tables)

    @property
    def argument_tables(self) -> tuple[dict[str, object], ...]:
        """All tables of engine arguments, except those of routes."""
        return (
            self.engine_args, self.engine_args_several, self.engine_args_video, self.example, self.example_several,
        )  # fmt: skip
