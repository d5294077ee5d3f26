"""Builds prompts from turns, as the model family's TOML record describes. No files, no engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

import msgspec

from vlmtui.domain.conversation import (
    Attachment,
    ChatPrompt,
    Media,
    Message,
    MessagesPrompt,
    Modality,
    Part,
    RawPrompt,
    Text,
    Turn,
    all_attachments,
)
from vlmtui.errors import bad_input
from vlmtui.registry.schema import Family, Layout, RawTemplate, Takes

_MODALITIES: tuple[Modality, ...] = get_args(Modality)


def chat_template_of(family: Family, *, several: bool = False) -> str | None:
    """Return a chat template in Jinja, made from the family's record, for messages whose content parts are in prompt
    order. None if the record leaves all prompts to the model's own template.

    `several`: True if a modality has two or more items. The template uses only `messages` and `add_generation_prompt`.
    """
    raw = family.raw_several if several and family.raw_several else family.raw
    if raw.by != "text":
        return raw.chat_template
    layouts = {
        modality: takes.several if several and takes.several else takes for modality, takes in family.takes.items()
    }
    front = _media_loop(layouts, "front")
    lines = [
        "{%- set ns = namespace(" + ", ".join(f"{name}=0" for name in _MODALITIES) + ", before='') -%}",
        ("{%- for message in messages -%}" + front + "{%- endfor -%}") if front else "",
        _text(raw.bos),
        _default_system(raw),
        "{%- for message in messages -%}",
        "{%- if message['role'] == 'user' -%}" + _media_loop(layouts, "turn") + "{%- endif -%}",
        _by_role(raw, 0),
        "{%- set ns.before = '' -%}",
        "{%- if message['content'] is string -%}{{- message['content'] -}}{%- else -%}",
        "{%- for part in message['content'] -%}" + _part(layouts) + "{%- endfor -%}{%- endif -%}",
        _by_role(raw, 1),
        "{%- endfor -%}",
        "{%- if add_generation_prompt -%}" + _text(raw.generation_prompt) + "{%- endif -%}",
    ]
    return "\n".join(line for line in lines if line)


def _text(text: str) -> str:
    """Return Jinja code that prints a literal text."""
    return "{{- " + msgspec.json.encode(text).decode() + " -}}" if text else ""


def _default_system(raw: RawTemplate) -> str:
    if raw.default_system is None or raw.system is None:
        return ""
    text = _text(raw.system.replace("{content}", raw.default_system))
    return "{%- if messages[0]['role'] != 'system' -%}" + text + "{%- endif -%}"


def _by_role(raw: RawTemplate, side: int) -> str:
    """Return Jinja code for the text before (0) or after (1) the content of a turn."""
    layouts = {"user": raw.user, "assistant": raw.assistant, "system": raw.system}
    lines = ""
    for role, layout in layouts.items():
        word = "elif" if lines else "if"
        if layout is None:
            said = "{{- raise_exception('This model has no system prompt.') -}}" if side == 0 else ""
        else:
            said = _text(layout.partition("{content}")[2 * side])
            if side == 0 and role == "user" and raw.media_joins:
                head = layout.partition("{content}")[0]
                first = "message['content'] is string or message['content'][0]['type'] == 'text'"
                space = _text(head[len(head.rstrip()) :])
                said = _text(head.rstrip()) + "{%- if " + first + " -%}" + space + "{%- endif -%}"
        lines += "{%- " + word + f" message['role'] == '{role}' -%}}" + said
    return lines + "{%- endif -%}"


def _part(layouts: dict[Modality, Layout]) -> str:
    """Return Jinja code for one content part: text, or a placeholder with its separator."""
    gaps = {modality: layout.gap for modality, layout in layouts.items() if layout.gap}
    lines = "{%- if part['type'] == 'text' -%}{%- if part['text'] -%}"
    lines += "".join(_if_before(modality, gap) for modality, gap in gaps.items())
    lines += "{{- part['text'] -}}{%- set ns.before = 'text' -%}"
    if any(layout.place == "after" for layout in layouts.values()):
        lines += "{%- if part['text'][-1:] in ' \\n\\t' -%}{%- set ns.before = 'space' -%}{%- endif -%}"
    lines += "{%- endif -%}"
    for modality, layout in layouts.items():
        if layout.place in ("front", "turn"):
            continue
        lines += "{%- elif part['type'] == '" + modality + "' -%}"
        lines += _if_before(modality, layout.separator)
        lines += "".join(_if_before(other, gap) for other, gap in gaps.items() if other != modality)
        lines += _if_before("text", layout.gap if layout.place == "after" else "")
        lines += _placeholder(modality, layout) + "{%- set ns.before = '" + modality + "' -%}"
    return lines + "{%- endif -%}"


def _if_before(what: str, text: str) -> str:
    return "{%- if ns.before == '" + what + "' -%}" + _text(text) + "{%- endif -%}" if text else ""


def _placeholder(modality: Modality, layout: Layout) -> str:
    count = "{%- set ns." + modality + " = ns." + modality + " + 1 -%}"
    before, numbered, after = layout.placeholder.partition("{i}")
    return count + _text(before) + ("{{- ns." + modality + " -}}" if numbered else "") + _text(after)


def _media_loop(layouts: dict[Modality, Layout], place: str) -> str:
    """Return Jinja code for a message's placeholders that come before the turn or at the front of the prompt."""
    lines = ""
    for modality, layout in layouts.items():
        if layout.place == place:
            lines += "{%- if part['type'] == '" + modality + "' -%}" + _placeholder(modality, layout) + "{%- endif -%}"
    if not lines:
        return ""
    start = "{%- if message['content'] is not string -%}{%- for part in message['content'] -%}"
    return start + lines + "{%- endfor -%}{%- endif -%}"


_PLURALS: dict[Modality, str] = {"image": "images", "video": "videos", "audio": "sounds"}


def chat_prompt(family: Family, turns: Sequence[Turn]) -> ChatPrompt:
    """Return a prompt that the model's chat template renders, or, if it has none, a template generated from the
    family's TOML record.

    Raises VlmtuiError if the family does not accept the attachments.
    """
    check_attachments(family, turns)
    several = _several(turns)
    template = chat_template_of(family, several=several)
    if family.chat == "model":
        return ChatPrompt(turns=_with_questions(family, turns), fallback_template=template)
    writer = _Writer(family, several)
    arranged = tuple(Turn(turn.role, tuple(writer.arranged(turn.parts))) for turn in _with_questions(family, turns))
    return ChatPrompt(turns=arranged, chat_template=template)


def raw_prompt(
    family: Family, turns: Sequence[Turn], variables: Mapping[str, object] | None = None
) -> RawPrompt | MessagesPrompt:
    """Return the prompt as text with placeholders and the generation prompt; or as messages, if the worker must render
    them with the model's own template.

    `variables`: the chat template's variables. If one of them switches reasoning, the text is changed accordingly.

    Raises VlmtuiError if the family does not accept the attachments or a system turn.
    """
    check_attachments(family, turns)
    several = _several(turns)
    raw = family.raw_several if several and family.raw_several else family.raw
    raw = _with_reasoning(raw, family, variables or {})
    turns = _with_questions(family, turns)
    if raw.default_system is not None and not any(turn.role == "system" for turn in turns):
        turns = (Turn("system", (Text(raw.default_system),)), *turns)
    writer = _Writer(family, several)
    if raw.by == "text":
        return RawPrompt(text=_as_text(family, raw, turns, writer), attachments=_in_order(writer))
    messages = tuple(
        Message(role=turn.role, content=writer.parts(turn) if raw.parts else writer.content(turn)) for turn in turns
    )
    return MessagesPrompt(messages=messages, by=raw.by, chat_template=raw.chat_template, attachments=_in_order(writer))


def _with_reasoning(raw: RawTemplate, family: Family, variables: Mapping[str, object]) -> RawTemplate:
    """Return the raw template with the family's changes for the values of the switch and the effort of reasoning in
    `variables`. If the worker renders the messages, the template itself follows its variables."""
    thinking = family.thinking
    if thinking is None or raw.by != "text":
        return raw
    switch, effort = variables.get(thinking.switch), variables.get(thinking.effort)
    changes = (
        thinking.raw_on if switch == thinking.on else None,
        thinking.raw_effort.get(effort) if isinstance(effort, str) else None,
        thinking.raw_off if switch == thinking.off else None,
    )
    for change in changes:
        if change is not None:
            fields = {name: one for name, one in msgspec.structs.asdict(change).items() if one is not None}
            raw = msgspec.structs.replace(raw, **fields)
    return raw


def check_attachments(family: Family, turns: Sequence[Turn]) -> None:
    """Raise VlmtuiError if the family does not accept an attachment's modality or the number of attachments."""
    counts: Counter[Modality] = Counter()
    for attachment in all_attachments(turns):
        takes = family.takes.get(attachment.modality)
        if takes is None:
            able = " and ".join(_PLURALS[modality] for modality in family.takes) or "text only"
            message = (
                f"{family.title} does not accept {_PLURALS[attachment.modality]}, so {attachment.name!r} can't be sent."
            )
            raise bad_input(message, hint=f"It accepts {able}. Choose another model, or remove the attachment.")
        counts[attachment.modality] += 1
        if counts[attachment.modality] > takes.max_items:
            one = _PLURALS[attachment.modality].removesuffix("s")
            kind = one if takes.max_items == 1 else _PLURALS[attachment.modality]
            message = f"{family.title} accepts at most {takes.max_items} {kind} per conversation."
            raise bad_input(message, hint="Start a new chat, or remove an attachment.")


def _several(turns: Iterable[Turn]) -> bool:
    return max(Counter(item.modality for item in all_attachments(turns)).values(), default=0) > 1


def _with_questions(family: Family, turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Return the turns with the user's text as the family expects it: unchanged, left out, or as a task prompt."""
    if family.question == "free":
        return tuple(turns)
    return tuple(_with_task(family, turn) if turn.role == "user" else turn for turn in turns)


def _with_task(family: Family, turn: Turn) -> Turn:
    media = tuple(part for part in turn.parts if isinstance(part, Media))
    if family.question == "ignored":
        return Turn(turn.role, media)
    known = any(turn.text.startswith(task) for task in family.tasks)
    return Turn(turn.role, (*media, Text(turn.text if known else family.tasks[0])))


def _as_text(family: Family, raw: RawTemplate, turns: Sequence[Turn], writer: _Writer) -> str:
    formats = {"system": raw.system, "user": raw.user, "assistant": raw.assistant}
    written: list[str] = []
    for turn in turns:
        layout = formats[turn.role]
        if layout is None:
            message = f"{family.title} does not support a system prompt."
            raise bad_input(message, hint="Clear the system prompt in the settings, or put it in the message.")
        content = writer.content(turn)
        if raw.media_joins and turn.role == "user" and writer.begins_with_media(turn):
            head, _, tail = layout.partition("{content}")
            layout = head.rstrip() + "{content}" + tail
        written.append(writer.take_pending() + layout.replace("{content}", content))
    return "".join((*writer.front, raw.bos, *written, raw.generation_prompt))


def _in_order(writer: _Writer) -> tuple[Attachment, ...]:
    return tuple(writer.front_items + writer.items)


class _Writer(msgspec.Struct):
    """Writes a conversation's placeholders turn by turn, and collects the attachments in the same order."""

    family: Family
    several: bool
    front: list[str] = msgspec.field(default_factory=list)
    """Placeholders at the front of the prompt."""
    front_items: list[Attachment] = msgspec.field(default_factory=list)
    items: list[Attachment] = msgspec.field(default_factory=list)
    _pending: str = ""
    _counts: Counter[Modality] = msgspec.field(default_factory=Counter)

    def content(self, turn: Turn) -> str:
        """Return the turn's text with its placeholders."""
        return "".join(self._joined(self.arranged(turn.parts)))

    def begins_with_media(self, turn: Turn) -> bool:
        """Return True if a placeholder is the first of the turn's content."""
        return isinstance(next(iter(self.arranged(turn.parts)), None), Media)

    def parts(self, turn: Turn) -> tuple[dict[str, object], ...] | str:
        """Return the turn's content as parts, or as a plain string if it has no media."""
        arranged = self.arranged(turn.parts)
        if not turn.attachments:
            return turn.text
        found: list[dict[str, object]] = []
        for part in arranged:
            if isinstance(part, Text):
                found.append({"type": "text", "text": part.text})
            else:
                self.items.append(part.attachment)
                modality = part.attachment.modality
                found.append(self.family.takes[modality].part or {"type": modality})
        return tuple(found)

    def take_pending(self) -> str:
        """Return the placeholders that belong before the latest turn, and forget them."""
        taken, self._pending = self._pending, ""
        return taken

    def arranged(self, parts: Sequence[Part]) -> list[Part]:
        """Return the parts in the order to write them. If the family allows media between texts, they stay there;
        otherwise all go to the family's standard place."""
        said = [part for part in parts if isinstance(part, Media) or part.text]
        if self._is_interleaved(said):
            return said
        media = [part for part in said if isinstance(part, Media)]
        texts = [part for part in said if isinstance(part, Text)]
        after = [part for part in media if self._layout(part).place == "after"]
        return [*(part for part in media if part not in after), *texts, *after]

    def _is_interleaved(self, parts: Sequence[Part]) -> bool:
        behind = False
        for part in parts:
            if isinstance(part, Text):
                behind = behind or bool(part.text.strip())
            elif behind and self.family.takes[part.attachment.modality].interleave:
                return self._layout(part).place in ("before", "after")
        return False

    def _joined(self, parts: Sequence[Part]) -> Iterable[str]:
        before: Part | None = None
        for part in parts:
            if isinstance(part, Text):
                yield (self._layout(before).gap if isinstance(before, Media) else "") + part.text
            else:
                layout = self._layout(part)
                modality = part.attachment.modality
                self._counts[modality] += 1
                placeholder = layout.placeholder.replace("{i}", str(self._counts[modality]))
                if layout.place == "front":
                    self.front.append(placeholder)
                    self.front_items.append(part.attachment)
                    continue
                self.items.append(part.attachment)
                if layout.place == "turn":
                    self._pending += placeholder
                    continue
                yield self._between(before, layout, modality) + placeholder
            before = part

    def _between(self, before: Part | None, layout: Layout, modality: Modality) -> str:
        match before:
            case None:
                return ""
            case Text(text):
                # After text typed by the user, add nothing except the gap of placeholders that follow the text.
                return layout.gap if layout.place == "after" and text[-1:] not in (" ", "\n", "\t") else ""
            case Media(attachment) if attachment.modality == modality:
                return layout.separator
            case Media():
                return self._layout(before).gap

    def _layout(self, part: Media) -> Layout:
        takes: Takes = self.family.takes[part.attachment.modality]
        return takes.several if self.several and takes.several else takes
