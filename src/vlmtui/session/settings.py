"""A conversation's settings: system prompt and sampling."""

from __future__ import annotations

import msgspec

from vlmtui.domain.parameters import PARAMETERS
from vlmtui.domain.sampling import Sampling


class ChatSettings(msgspec.Struct, frozen=True):
    """The settings that apply from the next turn on."""

    system_prompt: str = ""
    sampling: Sampling = msgspec.field(default_factory=Sampling)

    def changed_to(self, other: ChatSettings) -> str:
        """Describe what differs in `other`, for people: `temperature 0.7 → 0.5 · system prompt set`."""
        told = []
        for name, parameter in PARAMETERS.items():
            before, after = getattr(self.sampling, name), getattr(other.sampling, name)
            if before != after:
                values = [parameter.unset if value is None else parameter.format(value) for value in (before, after)]
                told.append(f"{parameter.label} {' → '.join(values)}")
        if self.system_prompt != other.system_prompt:
            how = "removed" if not other.system_prompt else "changed" if self.system_prompt else "set"
            told.append(f"system prompt {how}")
        return " · ".join(told)

    @property
    def summary(self) -> str:
        """A short summary to keep in view: `T 0.7 · system prompt`."""
        temperature = self.sampling.temperature
        shown = "default" if temperature is None else PARAMETERS["temperature"].format(temperature)
        return f"T {shown}{' · system prompt' if self.system_prompt else ''}"
