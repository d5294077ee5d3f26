"""What the user sets for a conversation."""

from __future__ import annotations

from dataclasses import dataclass, field

from vlmtui.domain.sampling import Sampling


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """Applies from the next turn on."""

    system_prompt: str = ""
    sampling: Sampling = field(default_factory=Sampling)
