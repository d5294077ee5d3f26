"""From turns and a family's record to what is sent. Pure: no files, no engine."""

from __future__ import annotations

from collections.abc import Sequence

from vlmtui.domain.attachment import Modality
from vlmtui.domain.conversation import Media, Text, Turn, all_attachments
from vlmtui.domain.engine import ChatPrompt, RawPrompt
from vlmtui.errors import bad_input
from vlmtui.registry.schema import Family


def chat_prompt(family: Family, turns: Sequence[Turn]) -> ChatPrompt:
    """The turns for the model's own chat template. Raises VlmtuiError when the family cannot take what is attached."""
    check_attachments(family, turns)
    return ChatPrompt(turns=tuple(turns))


def raw_prompt(family: Family, turns: Sequence[Turn]) -> RawPrompt:
    """The whole prompt as text, placeholders in it, ready for the answer.

    Raises VlmtuiError when the family cannot take what is attached, or has no system turn and one is given.
    """
    check_attachments(family, turns)
    raw = family.raw
    formats = {"system": raw.system, "user": raw.user, "assistant": raw.assistant}
    counters: dict[Modality, int] = {}
    text = raw.bos
    for turn in turns:
        layout = formats[turn.role]
        if layout is None:
            message = f"{family.title} has no system prompt."
            raise bad_input(message, hint="Empty the system prompt in the settings, or put it into the message.")
        text += layout.replace("{content}", _content(family, turn, counters))
    return RawPrompt(text=text + raw.generation_prompt, attachments=all_attachments(turns))


def check_attachments(family: Family, turns: Sequence[Turn]) -> None:
    """Raise VlmtuiError when an attachment is of a kind, or one more, than the family takes."""
    counts: dict[Modality, int] = {}
    for attachment in all_attachments(turns):
        takes = family.takes.get(attachment.modality)
        if takes is None:
            able = " and ".join(f"{modality}s" for modality in family.takes) or "text only"
            message = f"{family.title} takes no {attachment.modality}, so {attachment.name!r} cannot be sent."
            raise bad_input(message, hint=f"It takes {able}. Choose another model, or remove the attachment.")
        counts[attachment.modality] = counts.get(attachment.modality, 0) + 1
        if counts[attachment.modality] > takes.max_items:
            message = f"{family.title} takes at most {takes.max_items} {attachment.modality}s in one conversation."
            raise bad_input(message, hint="Start a new chat, or remove an attachment.")


def _content(family: Family, turn: Turn, counters: dict[Modality, int]) -> str:
    pieces: dict[str, list[str]] = {"before": [], "inline": [], "after": []}
    for part in turn.parts:
        match part:
            case Text(text):
                pieces["inline"].append(text)
            case Media(attachment):
                takes = family.takes[attachment.modality]
                counters[attachment.modality] = counters.get(attachment.modality, 0) + 1
                placeholder = takes.placeholder.replace("{i}", str(counters[attachment.modality]))
                pieces[takes.place].append(placeholder + takes.joiner)
    return "".join(pieces["before"] + pieces["inline"] + pieces["after"])
