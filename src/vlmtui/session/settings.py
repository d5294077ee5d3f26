"""A conversation's settings: system prompt and sampling."""

from __future__ import annotations

import msgspec

from vlmtui.domain.sampling import Sampling


class ChatSettings(msgspec.Struct, frozen=True):
    """The settings that apply from the next turn on."""

    system_prompt: str = ""
    sampling: Sampling = msgspec.field(default_factory=Sampling)
