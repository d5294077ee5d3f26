"""A conversation's settings: system prompt and sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from vlmtui.domain.conversation import Turn
from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.sampling import PARAMETERS, Sampling
from vlmtui.registry.schema import Family
from vlmtui.session.dials import (
    described_extra,
    of_family,
    with_family,
    with_family_defaults,
)
from vlmtui.session.generation import make_request
from vlmtui.text import one_line, quoted

_SHOWN_MAX = 40


class ChatSettings(msgspec.Struct, frozen=True):
    """The settings of a conversation's next request."""

    system_prompt: str = ""
    sampling: Sampling = msgspec.field(default_factory=Sampling)
    family: str | None = None
    """The model family that the processor arguments and template variables in `sampling` belong to; None: unknown."""
    kept: Mapping[str, Mapping[str, object]] = msgspec.field(default_factory=dict)
    """Processor arguments and template variables of other families, by family: entries of `Sampling.extra`, for when
    their models are loaded again."""
    adapter: str = ""
    """The LoRA adapter's folder; empty: the engine's own adapter, if it has one."""

    def for_family(self, family: Family, defaults: Mapping[str, object]) -> ChatSettings:
        """Return the settings for a model of `family`: another family's processor arguments and template variables move
        to `kept`, and its LoRA adapter is dropped. `defaults`: parameters of the settings file. Raises VlmtuiError for
        an invalid parameter."""
        if self.family in (None, family.family):
            return msgspec.structs.replace(self, family=family.family)
        kept = {**self.kept, str(self.family): of_family(self.sampling)}
        is_known = family.family in kept
        sampling = with_family(self.sampling, kept.pop(family.family, {}))
        if not is_known:
            sampling = with_family_defaults(sampling, family, defaults)
        return msgspec.structs.replace(self, sampling=sampling, family=family.family, kept=kept, adapter="")

    def request(
        self, family: Family, turns: Sequence[Turn], *, seed: int | None = None, logprobs: int | None = None
    ) -> GenerateRequest:
        """Return the request for an answer to the last turn. The engine keeps the answer until it is fetched. `seed`:
        replaces the seed in the sampling. Raises VlmtuiError if the family does not accept the conversation."""
        sampling = self.sampling if seed is None else msgspec.structs.replace(self.sampling, seed=seed)
        return make_request(family, turns, sampling, logprobs=logprobs, adapter=self.adapter, keep=True)

    def changed_to(self, other: ChatSettings) -> str:
        """Describe how `other` differs from these settings, for display: `temperature 0.7 → 0.5 · system prompt
        set`."""
        told = []
        for name, parameter in PARAMETERS.items():
            before, after = getattr(self.sampling, name), getattr(other.sampling, name)
            if before != after:
                values = [parameter.unset if value is None else parameter.format(value) for value in (before, after)]
                told.append(f"{parameter.label} {' → '.join(values)}")
        ours, theirs = described_extra(self.sampling), described_extra(other.sampling)
        for name in {**ours, **theirs}:
            if ours.get(name) != theirs.get(name):
                shown = [shown_value(found.get(name)) for found in (ours, theirs)]
                told.append(f"{name.removeprefix('template.').replace('_', ' ')} {' → '.join(shown)}")
        if self.adapter != other.adapter:
            told.append(f"adapter {self.adapter_name or 'none'} → {other.adapter_name or 'none'}")
        if self.system_prompt != other.system_prompt:
            how = "removed" if not other.system_prompt else "changed" if self.system_prompt else "set"
            told.append(f"system prompt {how}")
        return " · ".join(told)

    @property
    def adapter_name(self) -> str:
        """The name of the adapter's folder; empty if there is none."""
        return one_line(Path(self.adapter).name)

    @property
    def summary(self) -> str:
        """The temperature, and all other settings that are not the default, for the status line: `T 0.7 · top-p 0.9 ·
        enable_thinking false · LoRA my-adapter · system prompt`."""
        dials = self.sampling.dials()
        temperature = dials.pop("temperature", None)
        told = [f"T {'default' if temperature is None else PARAMETERS['temperature'].format(temperature)}"]
        told += [PARAMETERS[name].describe(value) for name, value in dials.items()]
        told += [f"{one_line(name)} {shown_value(value)}" for name, value in other_dials(self.sampling)]
        told += [f"LoRA {self.adapter_name}"] if self.adapter else []
        return " · ".join([*told, *(["system prompt"] if self.system_prompt else [])])


def other_dials(sampling: Sampling) -> list[tuple[str, object]]:
    """Return the parameters that are set in addition to `Sampling.dials`, by the names that the status shows."""
    return [(name.removeprefix("template."), value) for name, value in described_extra(sampling).items()]


def shown_value(value: object) -> str:
    if value is None:
        return "default"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return quoted(text) if len(text) > _SHOWN_MAX else one_line(text)
