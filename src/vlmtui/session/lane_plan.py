"""The plan of a fan-out: one turn asked with several seeds, temperatures, other sampling parameters, wordings, system
prompts, pictures, picture sizes or engines. `plan_text` reads one that was typed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from vlmtui.domain.conversation import Media, Text, Turn, system_turn
from vlmtui.domain.parameters import PARAMETERS, Number, find_parameter
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import bad_input
from vlmtui.session.adapters import NONE as NO_ADAPTER
from vlmtui.session.dials import with_parameter
from vlmtui.session.picture_changes import PictureChange, PictureMap, label_of, with_pictures
from vlmtui.text import one_line

PROMPT, SYSTEM, PICTURE, PIXELS, ENGINE = "prompt", "system", "picture", "pixels", "engine"
ADAPTER = "adapter"
"""The names of plans that vary the turn's text, the system prompt, the pictures, their sizes, the engine, or the LoRA
adapter."""
MOST = 8
"""Most answers at a time."""
PIXELS_LEAST = 28 * 28
_SEEDS = 2**31
_NOUNS = {
    PROMPT: "prompts",
    SYSTEM: "system prompts",
    PICTURE: "pictures",
    PIXELS: "picture sizes",
    ENGINE: "engines",
    ADAPTER: "adapters",
}


class Plan(msgspec.Struct, frozen=True):
    """One parameter with several values; the others are fixed."""

    parameter: str
    """The name of a sampling parameter or dial (`vlmtui.domain.dials`), or `PROMPT`, `SYSTEM`, `PICTURE`, `PIXELS`,
    `ENGINE` or `ADAPTER`."""
    values: tuple[Number | str, ...]
    """Numbers, texts, names of picture changes or engines, or folders of adapters; 2 to `MOST`, all different."""
    fixed: Mapping[str, Number] = msgspec.field(default_factory=dict)
    """Sampling parameters with one value for all, overriding the conversation's."""

    @property
    def title(self) -> str:
        """`3 seeds`, `2 prompts · temperature 0.8`."""
        parameter = find_parameter(self.parameter)
        noun = _NOUNS.get(self.parameter) or (parameter.plural if parameter else "") or f"{self.parameter} values"
        fixed = (PARAMETERS[name].describe(value) for name, value in self.fixed.items())
        return " · ".join([f"{len(self.values)} {noun}", *fixed])

    @property
    def changes_prompt(self) -> bool:
        """Whether the same answer can be scored in each lane: what surrounds the message differs, or the adapter."""
        return self.parameter in (SYSTEM, PICTURE, PIXELS, ADAPTER)


class LaneVariant(msgspec.Struct, frozen=True):
    """One request of a plan."""

    label: str
    """`seed 1`, `prompt 2`."""
    turns: tuple[Turn, ...]
    """All that is sent."""
    sampling: Sampling
    adapter: str = ""
    """The folder of a LoRA adapter; empty: none."""


def plan_of(parameter: str, values: Sequence[Number | str], fixed: Mapping[str, Number] | None = None) -> Plan:
    """Return a validated plan. Raises VlmtuiError."""
    what = _NOUNS.get(parameter) or f"values of {parameter}"
    if not 2 <= len(values) <= MOST:
        raise bad_input(f"A fan-out needs 2 to {MOST} {what}, not {len(values)}.")
    if len(set(values)) != len(values):
        raise bad_input(f"The {what} must all be different.")
    others = dict(fixed or {})
    for value in values if parameter in PARAMETERS else ():
        if problem := msgspec.structs.replace(Sampling(), **others, **{parameter: value}).problem():
            raise bad_input(f"{problem}.")
    if problem := msgspec.structs.replace(Sampling(), **others).problem():
        raise bad_input(f"{problem}.")
    return Plan(parameter, tuple(values), others)


def variants(
    plan: Plan, turns: Sequence[Turn], sampling: Sampling, pictures: PictureMap | None = None
) -> list[LaneVariant]:
    """Return what each request of the plan sends. `pictures`: the result of `changed_pictures` for the plan."""
    base = msgspec.structs.replace(sampling, **plan.fixed)
    if plan.changes_prompt:
        base = with_seed(base)  # the same for all, so that the prompt alone makes the difference
    made = pictures or {}
    found = []
    for number, value in enumerate(plan.values, 1):
        match plan.parameter:
            case "prompt":
                asked = (*turns[:-1], with_text(turns[-1], str(value)))
                found.append(LaneVariant(f"prompt {number}", asked, base))
            case "system":
                found.append(LaneVariant(f"system prompt {number}", with_system(turns, str(value)), base))
            case "engine":
                found.append(LaneVariant(str(value), tuple(turns), with_seed(base)))
            case "adapter":
                folder = "" if value == NO_ADAPTER else str(value)
                label = f"adapter {one_line(Path(folder).name)}" if folder else "no adapter"
                found.append(LaneVariant(label, tuple(turns), base, folder))
            case "picture":
                change = PictureChange(str(value))
                found.append(LaneVariant(label_of(change), with_pictures(turns, change, made), base))
            case "pixels":
                found.append(LaneVariant(f"≤ {value:,} pixels", with_pictures(turns, int(value), made), base))
            case name if name not in PARAMETERS:
                own = with_parameter(base, None, name, str(value))
                label = f"{name.removeprefix('processor.').replace('_', ' ')} {value}"
                found.append(LaneVariant(label, tuple(turns), own))
            case name:
                own = msgspec.structs.replace(base, **{name: value})
                label = PARAMETERS[name].describe(value) if not isinstance(value, str) else value
                found.append(LaneVariant(label, tuple(turns), own))
    return found


def with_text(turn: Turn, text: str) -> Turn:
    """Replace the text of a turn. Attachments keep their places; those between texts move to the front."""
    texts = [part for part in turn.parts if isinstance(part, Text)]
    if len(texts) == 1:
        return Turn(turn.role, tuple(Text(text) if isinstance(part, Text) else part for part in turn.parts))
    return Turn(turn.role, (*(part for part in turn.parts if isinstance(part, Media)), Text(text)))


def with_system(turns: Sequence[Turn], text: str) -> tuple[Turn, ...]:
    """The turns with another system prompt; with none where the text is empty."""
    rest = [turn for turn in turns if turn.role != "system"]
    return (system_turn(text), *rest) if text else tuple(rest)


def with_seed(sampling: Sampling) -> Sampling:
    """Return the sampling with a random seed if none is set and tokens are sampled."""
    if sampling.seed is not None or sampling.temperature == 0:
        return sampling
    return msgspec.structs.replace(sampling, seed=random.randrange(_SEEDS))


def why_identical(plan: Plan, sampling: Sampling) -> str:
    """Return a sentence on why all answers will be the same; empty if they may differ."""
    temperature = plan.fixed.get("temperature", sampling.temperature)
    if plan.parameter in ("seed", "top_p") and temperature == 0:
        return "At temperature 0 all answers will be the same: set a temperature."
    return ""
