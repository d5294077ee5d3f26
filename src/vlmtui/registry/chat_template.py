"""Generates a Jinja chat template from a family's raw template, so that chat mode and raw mode agree."""

from __future__ import annotations

import json
from typing import get_args

from vlmtui.domain.attachment import Modality
from vlmtui.registry.schema import Family, Layout, RawTemplate

_MODALITIES: tuple[Modality, ...] = get_args(Modality)


_KNOWN_MAX = 64
_known: dict[tuple[int, bool], tuple[Family, str | None]] = {}
"""Templates by the identity of the family, which is held so that no other takes its place, and `several`."""


def chat_template_of(family: Family, *, several: bool = False) -> str | None:
    """Return a template for messages whose content parts are in prompt order. It is made once: a batch asks for it
    twice an item.

    None if the raw prompt itself is rendered with the model's own template.

    `several`: whether a modality has two or more items. The template uses only `messages` and `add_generation_prompt`.
    """
    found = _known.get((id(family), several))
    if found is None:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        found = _known[id(family), several] = family, _made(family, several=several)
    return found[1]


def _made(family: Family, *, several: bool) -> str | None:
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
    return "{{- " + json.dumps(text) + " -}}" if text else ""


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
