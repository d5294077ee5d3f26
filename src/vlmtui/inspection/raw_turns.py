"""Split a raw prompt into its turns, by the family's raw template."""

from __future__ import annotations

import re

import msgspec

from vlmtui.registry.schema import Family, RawTemplate

_SPECIAL = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")
_ROLES = {"developer": "system", "human": "user", "model": "assistant"}
_COMMON_HEAD = re.compile(
    r"<[^<>\s]{1,40}>(system|developer|user|human|assistant|model|tool)(?=[\s<])|<[|｜](system|user|assistant)[|｜]>",
    re.IGNORECASE,
)
"""The head of a turn as most families write it: `<|im_start|>user`, `<|user|>`."""


class Segment(msgspec.Struct, frozen=True):
    """One turn: its head and its content."""

    role: str
    head: int
    """Offset of the head."""
    start: int
    """Offset of the content."""
    end: int


def template_for(family: Family, *, several: bool) -> tuple[RawTemplate, bool] | None:
    """Return the raw template for this number of items, and whether it matches that number exactly.

    None where the model's own template always writes the prompt: then its turns are unknown here.
    """
    raw = family.raw_several if several and family.raw_several else family.raw
    if raw.by == "text":
        return raw, True
    return (family.raw, False) if family.raw.by == "text" else None


def segments(text: str, raw: RawTemplate) -> list[Segment]:
    """Return the turns in order; the whole text is one user turn where the template has no head for it. A user's
    content begins after the white space that follows the head."""
    heads = {role: head for role, layout in _layouts(raw) if (head := head_of(layout))}
    if "user" not in heads:
        return [Segment("user", 0, len(raw.bos) if text.startswith(raw.bos) else 0, len(text))]
    found: list[tuple[int, int, str]] = []
    for role, head in heads.items():
        found += [(match.start(), match.end(), role) for match in re.finditer(_head_pattern(head), text)]
    if raw.generation_prompt.strip() and head_of(raw.assistant) not in raw.generation_prompt:
        pattern = _head_pattern(raw.generation_prompt.strip())
        found += [(match.start(), match.end(), "assistant") for match in re.finditer(pattern, text)]
    found.sort()
    ends = [head for head, _, _ in found[1:]] + [len(text)]
    space = raw.user.partition("{content}")[0]
    space = space[len(space.rstrip()) :]
    return [
        Segment(role, head, start + len(space) if text.startswith(space, start) else start, end)
        for (head, start, role), end in zip(found, ends, strict=False)
    ]


def turn_starts(text: str, family: Family) -> list[tuple[int, str]]:
    """Return where each turn begins, with its role: at the heads of the family's templates, and at the most common
    ones. The first turn begins with the text; without any head it has no role."""
    found = [(match.start(), match.end(), _role_of(match)) for match in _COMMON_HEAD.finditer(text)]
    for raw in filter(None, (family.raw, family.raw_several)):
        heads = [(role, head_of(layout)) for role, layout in _layouts(raw)] if raw.by == "text" else []
        for role, head in heads:
            found += [(one.start(), one.end(), role) for one in re.finditer(_head_pattern(head), text)] if head else []
    starts: list[tuple[int, str]] = []
    taken = 0
    for start, end, role in sorted(found, key=lambda one: (one[0], -one[1])):
        if start >= taken:
            starts.append((start, role))
            taken = end
    return [(0, starts[0][1]), *starts[1:]] if starts else [(0, "")] if text else []


def _role_of(match: re.Match[str]) -> str:
    role = (match[1] or match[2]).lower()
    return _ROLES.get(role, role)


def head_of(layout: str | None) -> str:
    """Return the text before a turn's content, without the white space around it."""
    return layout.partition("{content}")[0].strip() if layout else ""


def tail_of(layout: str) -> str:
    """Return the text after a turn's content."""
    return layout.partition("{content}")[2]


def own_tokens(family: Family) -> set[str]:
    """Return everything in the record's templates and placeholders that looks like a special token."""
    texts = [layout.placeholder for takes in family.takes.values() for layout in (takes, takes.several) if layout]
    for raw in (family.raw, family.raw_several):
        if raw is not None:
            texts += [raw.bos, raw.user, raw.assistant, raw.system or "", raw.generation_prompt]
    return {*family.stop_tokens, *(token for text in texts for token in _SPECIAL.findall(text))}


def _layouts(raw: RawTemplate) -> list[tuple[str, str | None]]:
    return [("system", raw.system), ("user", raw.user), ("assistant", raw.assistant)]


def _head_pattern(head: str) -> str:
    """Return a pattern for the head; a plain word (`User:`) must begin at a word boundary."""
    return (r"(?<!\w)" if head[0].isalnum() else "") + re.escape(head)
