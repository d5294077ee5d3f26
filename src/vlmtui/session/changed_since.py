"""What the user changed since an answer was requested, so that the same request would be another one now."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from vlmtui.domain.conversation import Turn, all_attachments
from vlmtui.domain.prompt import ChatPrompt, attachments_of
from vlmtui.domain.sampling import Sampling
from vlmtui.inspection.replay import Comparison, Side
from vlmtui.session.settings import ChatSettings


def sampling_since(before: Sampling, now: Sampling, *, besides: Collection[str] = ()) -> str:
    """Describe the changed parameters, `temperature 0.7 → 0.5`; empty if there are none. A seed that was drawn is no
    change. `besides`: parameters that do not count."""
    names = {*besides, *(["seed"] if now.seed is None else [])}
    same = {name: getattr(now, name) for name in names}
    return ChatSettings("", msgspec.structs.replace(before, **same)).changed_to(ChatSettings("", now))


def side_since(document: Comparison, side: Side, turns: Sequence[Turn], now: Sampling) -> str:
    """Describe what changed since a stored side was sent, if these turns were sent now; empty if nothing. A raw
    prompt's own text is never compared."""
    before = msgspec.structs.replace(document.sampling, **side.sampling)
    changed = [sampling_since(before, now)]
    if isinstance(side.request, ChatPrompt):
        was, new = (ChatSettings(_system_prompt(sent), now) for sent in (side.request.turns, turns))
        changed.append(was.changed_to(new))
    if side.request is not None:
        hashes = [
            sorted(item.sha256 for item in items) for items in (attachments_of(side.request), all_attachments(turns))
        ]
        changed.append("" if hashes[0] == hashes[1] else "attachments changed")
    return " · ".join(filter(None, changed))


def _system_prompt(turns: Sequence[Turn]) -> str:
    return next((turn.text for turn in turns if turn.role == "system"), "")
