"""A family's placeholders as patterns, and where they stand in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import get_args

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.registry.schema import Family, Layout

MODALITIES: tuple[Modality, ...] = get_args(Modality)

_LABEL = re.compile(r"^\s*\w[\w -]*\{i\}\s*:\s*")
"""Words before the placeholder itself: `Picture {i}: `."""
_TOKEN = re.compile(r"<[^<>]+>|\[[^\[\]]+\]")


class Form(msgspec.Struct, frozen=True):
    """How a family writes one modality into a prompt."""

    modality: Modality
    full: str
    """With the tokens around it, without words and white space: `<|vision_start|><|image_pad|><|vision_end|>`."""
    core: str
    """What the engine replaces: `<|image_pad|>`. `full` itself where that is one token, or a pair."""
    prefix: str
    """Words and white space that the record writes before `full`; `{i}` for the number."""
    suffix: str

    @property
    def numbered(self) -> bool:
        """Whether the engine itself looks at the number, not only the model."""
        return "{i}" in self.core

    @property
    def wrapped(self) -> bool:
        return self.core != self.full

    def written(self, number: int) -> str:
        """The whole placeholder as the record writes it."""
        return (self.prefix + self.full + self.suffix).replace("{i}", str(number))

    def hollows(self, text: str) -> list[int]:
        """Offsets at which the tokens around the placeholder stand with nothing between them."""
        opening, _, closing = self.full.partition(self.core)
        if not (opening and closing):
            return []
        return [match.start() + len(opening) for match in re.finditer(re.escape(opening + closing), text)]

    def numbered_as(self, number: int) -> str:
        return self.full.replace("{i}", str(number))


class Occurrence(msgspec.Struct, frozen=True):
    """A placeholder in a text. `outer_start:outer_end` includes the words and line breaks that belong to it."""

    start: int
    end: int
    outer_start: int
    outer_end: int
    is_full: bool
    number: int | None = None
    """Of a placeholder whose number the engine looks at."""


def form_of(layout: Layout, modality: Modality) -> Form | None:
    """None where the engine puts the item's tokens into the prompt by itself."""
    label = _LABEL.match(layout.placeholder)
    start = label.end() if label else 0
    rest = layout.placeholder[start:]
    full = rest.strip()
    if not full:
        return None
    start += rest.index(full)
    tokens = _TOKEN.findall(full)
    core = tokens[len(tokens) // 2] if len(tokens) > 2 else full
    return Form(modality, full, core, layout.placeholder[:start], layout.placeholder[start + len(full) :])


def forms_of(family: Family, modality: Modality, *, several: bool = False) -> tuple[Layout, Form] | None:
    """The layout of the modality and its form; None where it is not taken or has no placeholder."""
    takes = family.takes.get(modality)
    if takes is None:
        return None
    layout = takes.several if several and takes.several else takes
    form = form_of(layout, modality)
    return (layout, form) if form else None


def all_forms(families: Iterable[Family]) -> Iterator[tuple[Family, Form]]:
    """Every form of every family, those for several items included."""
    for family in families:
        for modality, takes in family.takes.items():
            for layout in (takes, takes.several):
                form = form_of(layout, modality) if layout else None
                if form:
                    yield family, form


def occurrences(text: str, form: Form, no_core: AbstractSet[str] = frozenset()) -> list[Occurrence]:
    """Where the form stands, with or without the tokens around it. A core in `no_core` does not count by itself."""
    choices = [form.full] if form.core in no_core else [form.full, form.core]
    return [_occurrence(text, match, form) for match in re.finditer(pattern_of(choices), text)]


def pattern_of(choices: Iterable[str]) -> str:
    """Any of the forms, the longest first, with any number for `{i}`."""
    longest = sorted(set(choices), key=lambda one: (-len(one), one))
    return "|".join(re.escape(one).replace(r"\{i\}", r"\d+") for one in longest)


def _occurrence(text: str, match: re.Match[str], form: Form) -> Occurrence:
    prefix = re.escape(form.prefix).replace(r"\{i\}", r"\d+")
    before = re.search(f"(?:{prefix})$", text[max(0, match.start() - 80) : match.start()])
    lead = len(before[0]) if before else 0
    tail = len(form.suffix) if text.startswith(form.suffix, match.end()) else 0
    is_full = bool(re.fullmatch(pattern_of([form.full]), match[0]))
    number = re.search(r"\d+", match[0]) if form.numbered else None
    return Occurrence(
        match.start(),
        match.end(),
        match.start() - lead,
        match.end() + tail,
        is_full,
        int(number[0][:9]) if number else None,
    )
