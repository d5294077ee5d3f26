"""A fan-out: one message sent once for each combination of some parameters' values, and its answers in kinds."""

from __future__ import annotations

import asyncio
import enum
import math
import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import msgspec

from vlmtui.domain.capabilities import lack, require_capability
from vlmtui.domain.conversation import (
    Attachment,
    Media,
    RawPrompt,
    Text,
    Turn,
    all_attachments,
    system_turn,
    with_changed_media,
)
from vlmtui.domain.dials import ARGUMENTS, DIALS, PROMPT_DIALS, dial_name, read_dial, template_variable
from vlmtui.domain.generation import PromptReady
from vlmtui.domain.sampling import PARAMETERS, Number, Sampling, find_parameter
from vlmtui.engine.interface import Engine
from vlmtui.errors import bad_input
from vlmtui.inspection.answer_diff import AnswerDiff, answer_diff
from vlmtui.inspection.build import texts_of
from vlmtui.inspection.prompt_diff import PromptTokens, prompt_diff
from vlmtui.inspection.replay import Comparison
from vlmtui.registry.match import Model
from vlmtui.registry.schema import Family
from vlmtui.session.adapters import NONE, find_adapter
from vlmtui.session.comparison import ComparedMessage
from vlmtui.session.dials import ParameterHelp, with_parameter
from vlmtui.session.engines import AppEngines
from vlmtui.session.exchange import Exchange
from vlmtui.session.generation import PromptMode
from vlmtui.session.lanes import (
    MATTERS,
    Lane,
    LaneEngines,
    Lanes,
    LaneScore,
    LaneSpec,
    lane_spec,
    score_lanes,
    with_seed,
)
from vlmtui.session.prompt_report import PromptReport
from vlmtui.session.resume import Generation
from vlmtui.text import is_number, one_line, token_place

PROMPT, SYSTEM, PICTURE, PIXELS, ENGINE = "prompt", "system", "image", "pixels", "engine"
ADAPTER = "adapter"
"""Parameters of a plan that are not those of the sampling. PROMPT: the message's text."""
MOST = 8
"""Most requests that score an answer at once."""
REQUESTS_MAX = 64
"""Most requests of a plan."""
PIXELS_LEAST = 28 * 28
_NOUNS = {
    PROMPT: "prompts",
    SYSTEM: "system prompts",
    PICTURE: "images",
    PIXELS: "image sizes",
    ENGINE: "engines",
    ADAPTER: "adapters",
}
"""Parameters whose values give each request another prompt or model: their answers are never grouped together."""
_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})")
_VALUE = r'(?:"[^"]*"|[^\s,="])+'
_PART = re.compile(rf"([A-Za-z_][\w.-]*)\s*=\s*({_VALUE}(?:\s*,\s*{_VALUE})*)(?=\s|$)")
_TEXTS = (PROMPT, SYSTEM)
_CHANGES_MAX = 3
_EXAMPLE = "For instance seed=1..8 temperature=0.7,1.2, or image=sent,none,grey."


class PictureChange(enum.StrEnum):
    """A change of every image or video of the prompt. The values are the words that users type."""

    SENT = "sent"
    NONE = "none"
    GREY = "grey"
    BLUR = "blur"
    SWAP = "swap"
    """Each is replaced by the next."""


FAN_PARAMETERS = {
    "seed": ParameterHelp("numbers: 1,5 or a range 1..8", ("1..4", "1..8")),
    "temperature": ParameterHelp(PARAMETERS["temperature"].help, ("0", "0.7", "1.2")),
    PROMPT: ParameterHelp('wordings of the message: "What is it?","Describe it."'),
    SYSTEM: ParameterHelp('system prompts: "Be brief.",""'),
    PICTURE: ParameterHelp("changes of the images", tuple(PictureChange)),
    PIXELS: ParameterHelp("most pixels of an image: 1000000,250000"),
    ENGINE: ParameterHelp("engines, models or servers", ("here", "transformers")),
    ADAPTER: ParameterHelp("LoRA adapters: none,FOLDER", (NONE,)),
}
"""The parameters to which a fan-out gives several values, beside those of `/set`."""
PictureMap = Mapping[tuple[str, str | int], Attachment]
"""The image to send instead, by an image's SHA-256 and the change (an int: most pixels)."""
LABELS = {
    PictureChange.SENT: "as sent",
    PictureChange.NONE: "no image",
    PictureChange.GREY: "grey",
    PictureChange.BLUR: "blurred",
    PictureChange.SWAP: "exchanged",
}
_ALIASES = {"gray": PictureChange.GREY, "removed": PictureChange.NONE, "blurred": PictureChange.BLUR}
_UNCHANGED: dict[str, str] = {PICTURE: PictureChange.SENT, ADAPTER: NONE}
"""By parameter: the value of the request as it would be sent without a plan, which the verdict is about."""
WITHOUT = {
    PictureChange.NONE: "Without the image",
    PictureChange.GREY: "With grey in the image's place",
    PictureChange.BLUR: "With the image blurred",
    PictureChange.SWAP: "With another image in its place",
}
"""The changes that a verdict can be about, the best first, in words."""


def possible_changes(turns: Sequence[Turn]) -> list[PictureChange]:
    """Return the changes that can be made to the attachments of these turns. The first is `SENT`: no change. Raises
    VlmtuiError without attachments."""
    items = all_attachments(turns)
    if not items:
        raise bad_input("There is no image to leave out.", hint="Attach one, or ask about one that was sent.")
    changes = [PictureChange.SENT, PictureChange.NONE]
    if all(item.modality == "image" for item in items):
        changes += [PictureChange.GREY, PictureChange.BLUR]
        if len({item.sha256 for item in items}) > 1:
            changes.append(PictureChange.SWAP)
    return changes


def changed_pictures(changes: Sequence[Number | str], turns: Sequence[Turn], store: Path) -> PictureMap:
    """Make the images that these changes need. A change is a name, or the maximum number of pixels of each image.
    Blocking. Raises VlmtuiError."""
    if not changes:
        return {}
    from vlmtui.media.changed_images import blurred_image, bounded_image, grey_image

    possible = possible_changes(turns)
    items = {item.sha256: item for item in all_attachments(turns)}
    made: dict[tuple[str, str | int], Attachment] = {}
    for change in changes:
        if isinstance(change, str) and change not in possible:
            no_other = "There is no other image to swap it with."
            not_changeable = "A video can be left out, but not made grey or blurred."
            raise bad_input(no_other if change == PictureChange.SWAP else not_changeable)
        for (sha256, item), other in zip(items.items(), [*list(items.values())[1:], *items.values()], strict=False):
            match change:
                case int():
                    made[sha256, change] = bounded_image(item, change, store) if item.modality == "image" else item
                case PictureChange.GREY:
                    made[sha256, change] = grey_image(item, store)
                case PictureChange.BLUR:
                    made[sha256, change] = blurred_image(item, store)
                case PictureChange.SWAP:
                    made[sha256, change] = other
    return made


def with_pictures(turns: Sequence[Turn], change: PictureChange | int, made: PictureMap) -> tuple[Turn, ...]:
    """Return the turns with every image changed. `made`: the result of `changed_pictures`."""
    if change is PictureChange.SENT:
        return tuple(turns)

    def changed(item: Attachment) -> Attachment | None:
        return None if change is PictureChange.NONE else made[item.sha256, change]

    return tuple(Turn(turn.role, with_changed_media(turn.parts, changed)) for turn in turns)


class Plan(msgspec.Struct, frozen=True):
    """Parameters (axes) with their values. There is a request for each combination of values, the first axis
    outermost."""

    axes: Mapping[str, tuple[Number | str, ...]]
    """By parameter: a sampling parameter, a dial (`vlmtui.domain.dials`), `PROMPT`, `SYSTEM`, `PICTURE` … The values
    are numbers, texts, names of image changes or engines, or adapters' folders; all values of an axis differ."""

    @property
    def varied(self) -> list[str]:
        """The axes with several values."""
        return [name for name, values in self.axes.items() if len(values) > 1]

    @property
    def combinations(self) -> list[dict[str, Number | str]]:
        """The values of each request, by parameter."""
        return [dict(zip(self.axes, values, strict=True)) for values in product(*self.axes.values())]

    @property
    def labels(self) -> list[str]:
        """For each request the values that the others do not share: `seed 2`, `temperature 1.2 · seed 2`."""
        return [" · ".join(self._value(name, one[name]) for name in self.varied) for one in self.combinations]

    @property
    def title(self) -> str:
        """The plan in short, for display: `3 seeds`, `2 temperatures × 8 seeds · max tokens 20`."""
        counts = " × ".join(f"{len(self.axes[name])} {_noun(name)}" for name in self.varied)
        fixed = (self._value(name, values[0]) for name, values in self.axes.items() if len(values) == 1)
        return " · ".join([counts, *fixed])

    @property
    def changes_prompt(self) -> bool:
        """True if the plan changes the prompt or the adapter: the same answer can then be scored in each lane."""
        return any(name in (SYSTEM, PICTURE, PIXELS, ADAPTER) for name in self.varied) or self.changes_rendering

    @property
    def changes_rendering(self) -> bool:
        """True if the plan varies a variable of the chat template."""
        return any(name in PROMPT_DIALS or template_variable(name) is not None for name in self.varied)

    @property
    def picture_changes(self) -> Sequence[Number | str]:
        """The values that change images."""
        return (*self.axes.get(PICTURE, ()), *self.axes.get(PIXELS, ()))

    @property
    def prompt_values(self) -> list[tuple[Number | str, ...]]:
        """For each request the values that give it a prompt or a model of its own."""
        names = [name for name in self.varied if name in _NOUNS or name in PROMPT_DIALS or "." in name]
        return [tuple(one[name] for name in names) for one in self.combinations]

    @property
    def engines(self) -> dict[str, str]:
        """The name of each request's engine, by the request's label; empty unless the plan names engines."""
        named = zip(self.labels, self.combinations, strict=True) if ENGINE in self.axes else ()
        return {label: str(one[ENGINE]) for label, one in named}

    def where(self, requests: Sequence[int]) -> str:
        """Return which of the requests these are: `seeds 1 4`, `T 0.7: all · T 1.2: seeds 1 4`."""
        if len(requests) == len(self.combinations):
            return "all"
        inner = "seed" if "seed" in self.varied else self.varied[-1]
        found: dict[str, list[str]] = {}
        combinations = self.combinations
        for at in requests:
            others = (self._value(name, combinations[at][name], short=True) for name in self.varied if name != inner)
            found.setdefault(" · ".join(others), []).append(self._value(inner, combinations[at][inner]))
        return " · ".join(
            f"{outer}{': ' if outer else ''}{self._among(inner, values)}" for outer, values in found.items()
        )

    def _among(self, name: str, values: Sequence[str]) -> str:
        if len(values) == len(self.axes[name]):
            return f"all {_noun(name)}"
        if len(values) == 1 or name not in PARAMETERS:
            return ", ".join(values)
        return f"{_noun(name)} {' '.join(value.rpartition(' ')[2] for value in values)}"

    def _value(self, name: str, value: Number | str, *, short: bool = False) -> str:
        """Return a value with the name of its parameter."""
        match name:
            case "prompt" | "system":
                return f"{_NOUNS[name][:-1]} {self.axes[name].index(value) + 1}"
            case "engine":
                return str(value)
            case "adapter":
                return "no adapter" if value == NONE else f"adapter {one_line(Path(str(value)).name)}"
            case "image":
                return LABELS[PictureChange(str(value))]
            case "pixels":
                return f"≤ {value:,} pixels"
            case "temperature" if short:
                return f"T {value:g}"
            case _ if not isinstance(value, str):
                return PARAMETERS[name].describe(value)
            case _:
                return f"{name.rpartition('.')[2].replace('_', ' ')} {value}"


def _noun(name: str) -> str:
    parameter = find_parameter(name)
    return _NOUNS.get(name) or (parameter.plural if parameter else "") or f"{name.rpartition('.')[2]} values"


def plan_of(axes: Mapping[str, Sequence[Number | str]]) -> Plan:
    """Return a validated plan. Raises VlmtuiError."""
    plan = Plan({name: tuple(values) for name, values in axes.items()})
    for name, values in plan.axes.items():
        if len(set(values)) != len(values):
            raise bad_input(f"The {_noun(name)} must all be different.")
        for value in values if name in PARAMETERS else ():
            if problem := msgspec.structs.replace(Sampling(), **{name: value}).problem():
                raise bad_input(f"{problem}.")
    if PICTURE in plan.axes and PIXELS in plan.axes:
        raise bad_input("image and pixels can't be combined.")
    count = math.prod(len(values) for values in plan.axes.values())
    if not 2 <= count <= REQUESTS_MAX:
        raise bad_input(f"A fan-out has 2 to {REQUESTS_MAX} requests, not {count:,}.", hint=_EXAMPLE)
    return plan


def planned_specs(
    plan: Plan,
    family: Family,
    turns: Sequence[Turn],
    sampling: Sampling,
    *,
    mode: PromptMode = "chat",
    raw: RawPrompt | None = None,
    logprobs: int | None = None,
    adapter: str = "",
    pictures: PictureMap | None = None,
    families: Mapping[str, Family] | None = None,
) -> list[LaneSpec]:
    """Return the specs of the plan's lanes. Those that sample have the same seed, unless the plan gives them seeds, so
    that only the plan's values differ.

    adapter: the LoRA adapter's folder, unless the plan names adapters. pictures: the result of `changed_pictures`.
    families: by lane label, the families of lanes that ask another model than the conversation's. Raises VlmtuiError
    if a family does not accept a request."""
    found = []
    seed = with_seed(msgspec.structs.replace(sampling, temperature=None)).seed
    for label, values in zip(plan.labels, plan.combinations, strict=True):
        asked, own, folder, asks = tuple(turns), sampling, adapter, (families or {}).get(label, family)
        for name, value in values.items():
            match name:
                case "prompt":
                    asked = (*asked[:-1], with_text(asked[-1], str(value)))
                case "system":
                    asked = with_system(asked, str(value))
                case "image":
                    asked = with_pictures(asked, PictureChange(str(value)), pictures or {})
                case "pixels":
                    asked = with_pictures(asked, int(value), pictures or {})
                case "adapter":
                    folder = "" if value == NONE else str(value)
                case "engine":
                    pass
                case _ if name in PARAMETERS:
                    own = msgspec.structs.replace(own, **{name: value})
                case _:
                    own = with_parameter(own, asks, name, str(value))
        if own.seed is None and not own.is_greedy:
            own = msgspec.structs.replace(own, seed=seed)
        found.append(lane_spec(asks, asked, own, mode=mode, raw=raw, label=label, logprobs=logprobs, adapter=folder))
    return found


def with_text(turn: Turn, text: str) -> Turn:
    """Return the turn with another text. Attachments keep their places if the turn has one text; otherwise they move to
    the front."""
    texts = [part for part in turn.parts if isinstance(part, Text)]
    if len(texts) == 1:
        return Turn(turn.role, tuple(Text(text) if isinstance(part, Text) else part for part in turn.parts))
    return Turn(turn.role, (*(part for part in turn.parts if isinstance(part, Media)), Text(text)))


def with_system(turns: Sequence[Turn], text: str) -> tuple[Turn, ...]:
    """Return the turns with another system prompt, or with no system prompt if `text` is empty."""
    rest = [turn for turn in turns if turn.role != "system"]
    return (system_turn(text), *rest) if text else tuple(rest)


def why_identical(plan: Plan, sampling: Sampling) -> str:
    """Return a sentence on why all answers will be the same; empty if they may differ."""
    temperatures = plan.axes.get("temperature", (sampling.temperature,))
    if set(plan.varied) <= {"seed", "top_p", "top_k", "min_p"} and set(temperatures) == {0}:
        return "At temperature 0 all answers will be the same: set a temperature."
    return ""


def parse_plan(text: str) -> Plan:
    """Parse a plan such as `seed=1..8 temperature=0.7,1.2`. Raises VlmtuiError naming the problem."""
    if text.count('"') % 2:
        raise bad_input("A quotation mark is not closed.", hint=_EXAMPLE)
    axes: dict[str, list[Number | str]] = {}
    for found, values in _PART.findall(text):
        parameter = find_parameter(found)
        dial = dial_name(found, ARGUMENTS)
        name = parameter.name if parameter else dial or found.lower()
        if parameter is None and dial is None and name not in _NOUNS:
            known = ", ".join((*PARAMETERS, *_NOUNS, *DIALS, *sorted(ARGUMENTS)))
            raise bad_input(f"Can't fan out over {found}. Parameters: {known}.", hint=_EXAMPLE)
        if name in axes:
            raise bad_input(f"{name} is given twice.", hint=_EXAMPLE)
        given = (value.replace('"', "") for value in re.findall(_VALUE, values))
        axes[name] = [_read(name, one) for value in given for one in _spread(name, value)]
    if not axes or _PART.sub("", text).strip():
        raise bad_input(f"{text!r} is not a list of values.", hint=_EXAMPLE)
    return plan_of(axes)


def _spread(name: str, text: str) -> Sequence[str]:
    """Return the whole numbers of a range `1..8`; any other value alone."""
    ends = _RANGE.fullmatch(text)
    is_whole = name not in (*_TEXTS, ENGINE, ADAPTER) and (name not in PARAMETERS or PARAMETERS[name].kind is int)
    if ends is None or not is_whole:
        return (text,)
    first, last = int(ends[1]), int(ends[2])
    if not first < last < first + REQUESTS_MAX:
        raise bad_input(f"{name}={text} is not a range of 2 to {REQUESTS_MAX} numbers.", hint=_EXAMPLE)
    return [str(number) for number in range(first, last + 1)]


def _read(name: str, text: str) -> Number | str:
    if name in (*_TEXTS, ENGINE):
        return text
    if name == ADAPTER:
        return text if text == NONE else find_adapter(text).folder
    if dial_name(name, ARGUMENTS) is not None:
        read_dial(name, text, {})
        return text
    if name == PICTURE:
        return _change(text).value
    if name != PIXELS:
        return PARAMETERS[name].read(text)
    if not is_number(text) or int(text) < PIXELS_LEAST:
        raise bad_input(f"pixels must be a whole number from {PIXELS_LEAST} on, not {text!r}.", hint=_EXAMPLE)
    return int(text)


def _change(text: str) -> PictureChange:
    name = text.strip().lower()
    change = _ALIASES.get(name) or next((change for change in PictureChange if change == name), None)
    if change is None:
        known = ", ".join(PictureChange)
        raise bad_input(f"An image cannot be {text!r}. There are: {known}.", hint=_EXAMPLE)
    return change


class Kind(msgspec.Struct, frozen=True):
    """Lanes with the same prompt and the same answer. A lane without a complete answer is a kind by itself."""

    lanes: tuple[int, ...]
    where: str
    """The values of these lanes: `T 0.7: all seeds · T 1.2: seeds 1 4`."""
    logprob: float | None
    """The log-probability of the answer; None if unknown."""


class FanOut:
    """A plan's requests (lanes), sent together. Raises VlmtuiError if the family does not accept a request."""

    def __init__(
        self,
        plan: Plan,
        family: Family,
        turns: Sequence[Turn],
        sampling: Sampling,
        engine: Engine,
        *,
        adapter: str = "",
        pictures: PictureMap | None = None,
        engines: LaneEngines | None = None,
    ) -> None:
        """`adapter`: the LoRA adapter's folder unless the plan names adapters. `engines`: the engines of a plan that
        names engines."""
        self.plan = plan
        self.sampling = sampling
        self.base = 0
        """The lane that the others are compared with."""
        self.question = turns[-1].text
        self.turns = tuple(turns)
        """The turns to send without a plan."""
        self._engines = engines
        self.models = dict(engines.models) if engines is not None else {}
        """The models of a plan that names engines, by lane label."""
        families = {name: model.family for name, model in self.models.items()}
        logprobs = 0 if engines is None and not lack(engine.info, "logprobs") else None
        specs = planned_specs(
            plan,
            family,
            turns,
            sampling,
            logprobs=logprobs,
            adapter=adapter,
            pictures=pictures,
            families=families,
        )
        used = [engines.loaded(spec.label) if engines is not None else engine for spec in specs]
        self.lanes = Lanes([Lane(spec, one) for spec, one in zip(specs, used, strict=True)])

    @property
    def is_running(self) -> bool:
        return self.lanes.is_running

    async def run(self) -> None:
        """Send all requests and receive the answers. Each lane has an outcome afterwards."""
        if self._engines is None:
            await self.lanes.run()
        else:
            await self._engines.run(self.lanes)

    def kinds(self) -> list[Kind]:
        """Return the kinds of answers: for each prompt the most frequent first, then those that are not complete."""
        found: dict[object, list[int]] = {}
        prompts = self.plan.prompt_values
        for at, lane in enumerate(self.lanes):
            is_whole = not lane.is_running and not lane.has_failed
            found.setdefault((prompts[at], lane.answer.text.strip()) if is_whole else at, []).append(at)
        order = sorted(found.values(), key=lambda lanes: (prompts.index(prompts[lanes[0]]), -len(lanes), lanes[0]))
        return [Kind(tuple(lanes), self.plan.where(lanes), self._logprob(lanes[0])) for lanes in order]

    def title(self, number: int) -> str:
        """Return a lane's values with the seed, which repeats its answer: `temperature 1.2 · seed 7`."""
        lane = self.lanes[number]
        seed = lane.request.sampling.seed
        shown = "" if seed is None or "seed" in self.plan.varied else f"seed {seed}"
        return " · ".join(filter(None, (lane.spec.label, shown)))

    def _logprob(self, number: int) -> float | None:
        """Return the log-probability of a lane's whole answer; None if it is not complete, or the engine tells none."""
        lane = self.lanes[number]
        known = lane.answer.logprobs
        is_told = not lane.is_running and len(known) > 0 and len(known) == len(lane.answer.token_ids)
        return math.fsum(one.logprob for one in known) if is_told else None

    def difference(self, number: int) -> AnswerDiff | None:
        """Compare the answer of lane `number` (right) with the answer of the lane `base` (left); None if there is
        nothing to compare. May be slow."""
        base, other = self.lanes[self.base], self.lanes[number]
        if base is other or base.is_running or other.is_running:
            return None
        ids = (base.answer.token_ids or None, other.answer.token_ids or None)
        return answer_diff(base.answer.text, other.answer.text, *ids)

    def prompt_change(self, number: int) -> str:
        """Return how the prompt of lane `number` differs from the base's, for a plan that varies the chat template:
        `this prompt lacks “Think first.” …`; empty for the base, and until both prompts are known. May be slow."""
        before, after = (self.lanes[at].answer.prompt for at in (self.base, number))
        if not self.plan.changes_rendering or number == self.base or before is None or after is None:
            return ""
        return rendering_change(before, after)

    async def scores(self) -> list[LaneScore | None]:
        """Return how likely the answer of the lane `base` is under each lane's prompt; None for that lane. Raises
        VlmtuiError."""
        if not self.plan.changes_prompt:
            return [None] * len(self.lanes)
        return await score_lanes(self.lanes, self.base)

    def document(self) -> Comparison:
        """Return all answers as a document, the base first. Slow for long prompts."""
        return self.lanes.document(first=self.base)

    def report(self, number: int) -> PromptReport:
        lane = self.lanes[number]
        return PromptReport.of_answer(lane.spec.label, lane.answer, request=lane.request, info=lane.info)


def rendering_change(before: PromptReady, after: PromptReady) -> str:
    """Return how the second rendering of the same message differs from the first, in words."""
    if before.token_ids == after.token_ids and before.prompt == after.prompt:
        return "same prompt: the variable changes nothing"
    sides = [
        PromptTokens(ids=one.token_ids, texts=texts_of(one.token_ids, one.vocabulary), name=name)
        for one, name in ((before, "the base's prompt"), (after, "this prompt"))
    ]
    found = prompt_diff(*sides).findings
    more = f" and {len(found) - _CHANGES_MAX} more" if len(found) > _CHANGES_MAX else ""
    return one_line(" · ".join(found[:_CHANGES_MAX])) + more


async def choose_lane(fan_out: FanOut, chosen: int, message: ComparedMessage, model: Model) -> Exchange:
    """Continue the conversation with the answer of lane `chosen`, and store it. The answers of lanes with the same
    turns become other answers to the same message. Raises VlmtuiError."""
    lane = fan_out.lanes[chosen]
    if lane.is_running or not lane.answer.text:
        raise bad_input("There is no answer to use.")
    if lane.spec.turns[:-1] != fan_out.turns[:-1]:
        raise bad_input("The chat cannot continue with this answer: what comes before its message was changed, too.")
    same = [other for other in fan_out.lanes if other.spec.turns == lane.spec.turns and other is not lane]
    first, *rest = [*(other for other in same if not other.is_running and other.answer.text), lane]

    def made(one: Lane) -> Generation:
        of = fan_out.models.get(one.spec.label, model)
        return Generation(one.request, one.answer, of, one.info, one.spec.mode, one.spec.sampling)

    exchange = await _first_answer(first, message, made(first))
    for one in rest:
        await message.conversation.adopt(exchange, made(one))
    return exchange


async def _first_answer(lane: Lane, message: ComparedMessage, made: Generation) -> Exchange:
    """Add a lane's answer to the exchange of the sent message. If the message is still a draft, or the lane sent
    another text, add a new exchange with this answer."""
    conversation, exchange, turn = message.conversation, message.exchange, lane.spec.turn
    assert turn is not None
    if exchange is None or turn != exchange.user:
        return await conversation.fork(turn, made, instead_of=exchange)
    await conversation.adopt(exchange, made)
    return exchange


async def planned_fan_out(
    plan: Plan,
    message: ComparedMessage,
    controller: AppEngines,
    *,
    media: Path,
    engines: LaneEngines | None = None,
) -> FanOut:
    """Return the fan-out: a request with `message` for each value of the plan. Sends nothing yet. `media`: the folder
    of stored media.

    Raises VlmtuiError.
    """
    engine = controller.require_engine()
    if "seed" in plan.varied:
        require_capability(controller.info, "seed")
    family, settings, turns = controller.require_model().family, message.conversation.settings, message.turns
    pictures = await asyncio.to_thread(changed_pictures, plan.picture_changes, turns, media)
    return FanOut(
        plan, family, turns, settings.sampling, engine, adapter=settings.adapter, pictures=pictures, engines=engines
    )


def verdict(plan: Plan, scores: Sequence[LaneScore | None]) -> str:
    """Return a sentence on whether the answer depends on the image or the adapter; empty if unknown. `scores`: a score
    for each request; None for the request that gave the answer. That must be the request without any change."""
    if len(plan.varied) != 1 or plan.varied[0] not in _UNCHANGED or None not in scores:
        return ""
    parameter, *_ = plan.varied
    values = plan.axes[parameter]
    if values[scores.index(None)] != _UNCHANGED[parameter]:
        return ""
    if parameter == ADAPTER:
        if (score := next((score for score in scores if score is not None), None)) is None:
            return ""
        if score.is_equal:
            return "The adapter changes nothing here: every token of the answer is as likely without it."
        return f"The adapter changes the model: with it this answer is {score.text}{_most(score)}."
    by_change = {PictureChange(str(value)): score for value, score in zip(values, scores, strict=True) if score}
    change = next((change for change in WITHOUT if change in by_change), None)
    return image_verdict(by_change[change], change, _most(by_change[change])) if change is not None else ""


def image_verdict(score: LaneScore, change: PictureChange, most: str) -> str:
    """Say whether an answer depends on the image. `score`: that of the prompt with `change`. `most`: names the token
    whose probability falls most."""
    told = f"{WITHOUT[change]}, this answer is {score.text}"
    if score.ratio < MATTERS:
        return f"It looks. {told}{most}."
    return f"{told}: the image makes it less likely." if score.ratio > 1 / MATTERS else f"It may not look. {told}."


def _most(score: LaneScore) -> str:
    drop = score.drop
    if drop is None:
        return ""
    change = f"{_percent(drop.before)} → {_percent(drop.after)}"
    return f", most at {token_place(drop.index)}, “{one_line(drop.text)}”: {change}"


def _percent(probability: float) -> str:
    return f"{probability:.0%}" if probability >= 0.01 else f"{probability:.1%}" if probability >= 0.001 else "<0.1%"
