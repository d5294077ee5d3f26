"""The placeholders in the record of a model family, as patterns, and their occurrences in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import get_args

import msgspec

from vlmtui.domain.conversation import Modality
from vlmtui.registry.schema import Family, Layout

MODALITIES: tuple[Modality, ...] = get_args(Modality)

_LABEL = re.compile(r"^\s*\w[\w -]*\{i\}\s*:\s*")
"""A label before the placeholder, such as `Picture {i}: `."""
_TOKEN = re.compile(r"<[^<>]+>|\[[^\[\]]+\]")


class Form(msgspec.Struct, frozen=True):
    """A family's placeholder for one modality, split into its parts (core, surrounding tokens, label)."""

    modality: Modality
    full: str
    """The placeholder with its surrounding tokens, without label: `<|vision_start|><|image_pad|><|vision_end|>`."""
    core: str
    """The token that the engine replaces: `<|image_pad|>`. Equal to `full` if that has one or two tokens."""
    prefix: str
    """The label and white space before `full`; `{i}` stands for the number."""
    suffix: str

    @property
    def numbered(self) -> bool:
        """True if the placeholder itself has a number, not only its label."""
        return "{i}" in self.core

    @property
    def wrapped(self) -> bool:
        return self.core != self.full

    def written(self, number: int) -> str:
        """Return the complete placeholder for this item number, with its label and white space."""
        return (self.prefix + self.full + self.suffix).replace("{i}", str(number))

    def hollows(self, text: str) -> list[int]:
        """Return the offsets at which the placeholder's core is missing between its surrounding tokens."""
        opening, _, closing = self.full.partition(self.core)
        if not (opening and closing):
            return []
        return [match.start() + len(opening) for match in re.finditer(re.escape(opening + closing), text)]

    def numbered_as(self, number: int) -> str:
        return self.full.replace("{i}", str(number))


class Occurrence(msgspec.Struct, frozen=True):
    """A placeholder in a text. `outer_start:outer_end` includes its label and white space."""

    start: int
    end: int
    outer_start: int
    outer_end: int
    is_full: bool
    number: int | None = None
    """The number in the placeholder itself, if it has one."""


def form_of(layout: Layout, modality: Modality) -> Form | None:
    """Return the placeholder of a layout, split into its parts. None if the layout has no placeholder, because the
    engine inserts the tokens itself."""
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
    """Return the layout and the placeholder of a modality. None if the family does not accept the modality or uses no
    placeholder.

    `several`: True if the prompt has two or more items of a modality.
    """
    takes = family.takes.get(modality)
    if takes is None:
        return None
    layout = takes.several if several and takes.several else takes
    form = form_of(layout, modality)
    return (layout, form) if form else None


def all_forms(families: Iterable[Family]) -> Iterator[tuple[Family, Form]]:
    """Yield every placeholder of every family, including those for prompts with several items."""
    for family in families:
        for modality, takes in family.takes.items():
            for layout in (takes, takes.several):
                form = form_of(layout, modality) if layout else None
                if form:
                    yield family, form


def occurrences(text: str, form: Form, no_core: AbstractSet[str] = frozenset()) -> list[Occurrence]:
    """Find a placeholder in the text, either complete or only its core, without the surrounding tokens. If the core is
    in `no_core`, finds only complete placeholders."""
    choices = [form.full] if form.core in no_core else [form.full, form.core]
    return [_occurrence(text, match, form) for match in re.finditer(pattern_of(choices), text)]


def pattern_of(choices: Iterable[str]) -> str:
    """Return a pattern for any of the placeholders, the longest first, with any number for `{i}`."""
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


def placeholder_texts(family: Family) -> dict[Modality, list[str]]:
    """Return the tokens that the engine replaces (the cores of the placeholders), by modality; `{i}` stands for the
    number."""
    found: dict[Modality, list[str]] = {}
    for _, form in all_forms([family]):
        if form.core not in found.setdefault(form.modality, []):
            found[form.modality].append(form.core)
    return found
