"""A chat template to check, and the canned conversations that are rendered with it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property

import msgspec

from vlmtui.domain.conversation import Attachment, Media, Modality, Part, Role, Text, Turn, all_attachments
from vlmtui.domain.model_reading import (
    Form,
    RenderCase,
    Rendering,
    TemplateReading,
    TokenizerReading,
    rendering_key,
)
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.lint.finding import LintFinding, LintKind
from vlmtui.inspection.sequence_diff import common_start
from vlmtui.registry.prompts import chat_prompt, raw_prompt
from vlmtui.registry.schema import Family, Layout, RawTemplate
from vlmtui.text import quoted

ASKED, AGAIN, LAST = "What colour is the kite?", "How many boats are there?", "Which one is nearer?"
ANSWER, SECOND_ANSWER = "The kite is red.", "I count three."
BEGUN = "There are exactly"
"""A prefill: the beginning of an answer, which the model continues."""
SYSTEM = "Answer in one short sentence."
ODD = 'Is <b>this</b> & "that" — {{ 1 + 1 }} {% x %} \\n – «überall» 100 %?'
"""A user's text that a template must not change: markup, quotes, Jinja, a backslash."""
_SIZE = 224
TOKEN = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")


class Canned(msgspec.Struct, frozen=True):
    """A prepared conversation with which chat templates are tested."""

    name: str
    title: str
    """The name for people: `an image after the text`."""
    turns: tuple[Turn, ...]

    @property
    def texts(self) -> list[tuple[Role, str]]:
        """(role, text) of every text that is not empty, in order."""
        return [
            (turn.role, part.text)
            for turn in self.turns
            for part in turn.parts
            if isinstance(part, Text) and part.text.strip()
        ]

    @property
    def modalities(self) -> list[Modality]:
        """The modality of every attachment, in order."""
        return [item.modality for item in all_attachments(self.turns)]

    @property
    def has_several(self) -> bool:
        """True if the conversation has two or more attachments of one modality."""
        return len(self.modalities) > len(set(self.modalities))


def canned_conversations(family: Family, *, stop: str = "") -> list[Canned]:
    """Return the conversations that the family accepts. `stop`: a token that ends an answer, if known."""
    image, video = family.takes.get("image"), family.takes.get("video")
    found = list(_of_text(stop))
    if image is not None:
        found += _of_images(image, image.max_items)
    if video is not None:
        found.append(_canned("video", "one video", _user(_item("video", 1), ASKED)))
    if image is None and video is not None:
        found.append(_canned("later_video", "a video in turn 2", *_before(_user(_item("video", 1), AGAIN))))
    return [one for one in found if _can_have(family, one)]


def _of_text(stop: str) -> Iterator[Canned]:
    system = Turn("system", (Text(SYSTEM),))
    yield _canned("text", "text alone", _user(ASKED))
    yield _canned("answered", "an answered question", *_before())
    yield _canned("two_turns", "two turns", *_before(_user(AGAIN)))
    three = (*_before(_user(AGAIN)), Turn("assistant", (Text(SECOND_ANSWER),)), _user(LAST))
    yield _canned("three_turns", "three turns", *three)
    yield _canned("prefill", "a prefilled answer in turn 2", *_before(_user(AGAIN), Turn("assistant", (Text(BEGUN),))))
    yield _canned("system", "a system message", system, _user(ASKED))
    yield _canned("system_later", "a system message and two turns", system, *_before(_user(AGAIN)))
    yield _canned("odd_text", "text with markup, quotes and Jinja", _user(ODD))
    if stop:
        yield _canned("stop_in_text", f"text that holds {stop}", _user(f"What does {stop} mean?"))


def _of_images(layout: Layout, most: int) -> Iterator[Canned]:
    one, two = _item("image", 1), _item("image", 2)
    yield _canned("image", "one image", _user(one, ASKED))
    yield _canned("image_last", "an image after the text", _user(ASKED, one))
    yield _canned("image_between", "an image between two texts", _user("Look at this:", one, ASKED))
    yield _canned("later_image", "an image in turn 2", *_before(_user(one, AGAIN)))
    yield _canned("no_text", "an image and an empty text", _user(one, ""))
    system = Turn("system", (Text(SYSTEM),))
    yield _canned("system_image", "a system message and an image", system, _user(one, ASKED))
    after = (_user(one, ASKED), Turn("assistant", (Text(ANSWER),)))
    yield _canned("image_answered", "an image and an answer", *after)
    if most > 1:
        yield _canned("images", "two images", _user(one, two, ASKED))
        yield _canned("image_each_turn", "an image in each of two turns", *after, _user(two, AGAIN))
    if placeholder := layout.placeholder.replace("{i}", "1").strip():
        yield _canned("placeholder_in_text", "text that holds a placeholder", _user(f"What does {placeholder} mean?"))


def _can_have(family: Family, canned: Canned) -> bool:
    if family.question != "free" and any(role == "user" for role, _ in canned.texts):
        return False
    try:
        raw_prompt(family, canned.turns)
    except VlmtuiError:
        return False
    return True


def render_case(family: Family, canned: Canned) -> RenderCase:
    """Return the conversation as messages in each form (content as parts, or as a string). The parts of a message are
    in the family's order."""
    return in_each_form(family, canned.name, chat_prompt(family, canned.turns).turns)


def in_each_form(family: Family, name: str, turns: Sequence[Turn]) -> RenderCase:
    """Return turns as messages in each form. `family`: its placeholders stand for media where the content is a
    string."""
    forms: dict[Form, tuple[dict[str, object], ...]] = {
        "parts": tuple({"role": turn.role, "content": _parts(turn.parts)} for turn in turns),
        "mixed": tuple(
            {"role": turn.role, "content": _parts(turn.parts) if turn.attachments else turn.text} for turn in turns
        ),
        "text": tuple({"role": turn.role, "content": content} for turn, content in _as_text(family, turns)),
    }
    return RenderCase(name, forms)


def _parts(parts: Sequence[Part]) -> list[dict[str, object]]:
    return [
        {"type": "text", "text": part.text} if isinstance(part, Text) else {"type": part.attachment.modality}
        for part in parts
    ]


def _as_text(family: Family, turns: Sequence[Turn]) -> Iterator[tuple[Turn, str]]:
    """Yield each turn with its content as a string with placeholders."""
    counts: dict[Modality, int] = {}
    for turn in turns:
        written: list[str] = []
        for part in turn.parts:
            if isinstance(part, Text):
                written.append(part.text)
            else:
                modality = part.attachment.modality
                counts[modality] = counts.get(modality, 0) + 1
                layout = family.takes[modality]
                written.append(layout.placeholder.replace("{i}", str(counts[modality])) + layout.gap)
        yield turn, "".join(written)


def _canned(name: str, title: str, *turns: Turn) -> Canned:
    return Canned(name, title, turns)


def _before(*later: Turn) -> tuple[Turn, ...]:
    return (_user(ASKED), Turn("assistant", (Text(ANSWER),)), *later)


def _user(*parts: Attachment | str) -> Turn:
    return Turn("user", tuple(Text(part) if isinstance(part, str) else Media(part) for part in parts))


def _item(modality: Modality, number: int) -> Attachment:
    return Attachment(
        modality=modality,
        name=f"{modality} {number}",
        path="",
        sha256=str(number),
        width=_SIZE,
        height=_SIZE,
        size_bytes=0,
        format="",
    )


class Placeholder(msgspec.Struct, frozen=True):
    """A placeholder's token, and the tokens that belong around it."""

    core: re.Pattern[str]
    """Matches the placeholder's token; its group is the number, if the token has one."""
    name: str
    before: str = ""
    """The token before it, or empty."""
    after: str = ""
    numbered: bool = False


def known_placeholder(layout: str, stops: AbstractSet[str]) -> Placeholder:
    """Return the placeholder of a record's layout (`<|vision_start|><|image_pad|><|vision_end|>`, `<|image_{i}|>`).

    If there are three or more tokens, the last but one stands for the image, otherwise the whole text. `stops`: tokens
    that end an answer and so are not part of a placeholder.
    """
    tokens = TOKEN.findall(layout)
    if len(tokens) < 3 or tokens[-2] in stops:
        core = layout.strip() if len(tokens) != 1 or tokens[0] in stops else tokens[0]
        return Placeholder(_pattern(core), core, numbered="{i}" in core)
    return Placeholder(_pattern(tokens[-2]), tokens[-2], tokens[-3], tokens[-1], numbered="{i}" in tokens[-2])


def seen_placeholder(without: str, with_one: str, stops: AbstractSet[str]) -> Placeholder | None:
    """Return the text that an image adds to a prompt, as its placeholder. `without`, `with_one`: the prompts without
    and with an image. None if both are equal."""
    start = common_start(without, with_one)
    end = common_start(without[start:][::-1], with_one[start:][::-1])
    added = with_one[start : len(with_one) - end]
    for token in TOKEN.finditer(with_one):  # the common start may end in the middle of a token
        if token.start() < start < token.end():
            added = with_one[token.start() : len(with_one) - end]
    whole = "".join(TOKEN.findall(added)) or added.strip()
    return known_placeholder(whole, stops) if whole else None


def _pattern(core: str) -> re.Pattern[str]:
    return re.compile(re.escape(core).replace(re.escape("{i}"), r"(\d+)"))


PYTHON = re.compile(r"\[?\{['\"](?:type|role|text)['\"]:|\bNone\b|\bUndefined\b|<generator object|jinja2\.")
_SPACED = re.compile(r"\W+")
_AROUND = 36


class RenderedPart(msgspec.Struct, frozen=True):
    start: int
    end: int
    what: str
    """The text, or the modality of the placeholder."""
    is_text: bool


class Subject:
    """A template of a model, with its renderings of canned conversations."""

    def __init__(
        self, family: Family, template: TemplateReading, canned: Sequence[Canned], tokenizer: TokenizerReading | None
    ) -> None:
        self.family = family
        self.template = template
        self.canned = {one.name: one for one in canned}
        self.tokenizer = tokenizer

    @property
    def raw(self) -> RawTemplate | None:
        """The raw template of the family's record; None if only the model's chat template writes prompts."""
        return self.family.raw if self.family.raw.by == "text" else None

    @cached_property
    def form(self) -> Form:
        """The form of messages that the template reads. As in vLLM, a template that loops over the content gets
        parts."""
        if self.template.reads_parts:
            return "mixed" if not self._reads("parts") and self._reads("mixed") else "parts"
        return "text" if self._reads("text") or not self._reads("parts") else "parts"

    def _reads(self, form: Form) -> bool:
        for name in ("text", "image"):
            rendering = self.template.renderings.get(rendering_key(name, form, generation_prompt=True))
            if rendering is None or name not in self.canned:
                continue
            if rendering.trouble is not None or PYTHON.search(rendering.text):
                return False
            if any(text not in rendering.text for _, text in self.canned[name].texts):
                return False
        return True

    def rendering(self, name: str, *, generation_prompt: bool = True) -> Rendering | None:
        if name not in self.canned:
            return None
        return self.template.renderings.get(rendering_key(name, self.form, generation_prompt=generation_prompt))

    def text(self, name: str, *, generation_prompt: bool = True) -> str | None:
        rendering = self.rendering(name, generation_prompt=generation_prompt)
        return None if rendering is None or rendering.trouble is not None else rendering.text

    def placeholder(self, modality: Modality) -> Placeholder | None:
        """Return a modality's placeholder: from the family's record or, without one, from the prompt of an image."""
        takes = self.family.takes.get(modality)
        if takes is not None and takes.placeholder.strip():
            return known_placeholder(takes.placeholder, self.stops)
        with_one, without = self.text(modality), self.text("text")
        if self.family.family or self.form == "text" or with_one is None or without is None:
            return None
        return seen_placeholder(without, with_one, self.stops)

    @cached_property
    def stops(self) -> frozenset[str]:
        """The stop tokens and stop strings of the tokenizer and the family's record."""
        own = self.tokenizer.stops if self.tokenizer is not None else ()
        eos = self.tokenizer.eos if self.tokenizer is not None else None
        named = [eos if one == "@eos_token" else one for one in self.family.stop_tokens]
        strings = self.family.sampling.stop if self.family.sampling is not None else ()
        return frozenset(filter(None, (*own, *named, *strings)))

    def found(self, canned: Canned, text: str) -> list[RenderedPart]:
        """Return the conversation's texts and the placeholders outside of them, in the order of the prompt."""
        texts = list(self._texts(canned, text))
        marks: list[RenderedPart] = []
        for modality in dict.fromkeys(canned.modalities or [*self.family.takes]):
            placeholder = self.placeholder(modality)
            for match in placeholder.core.finditer(text) if placeholder is not None else ():
                if not any(one.start < match.end() and match.start() < one.end for one in texts):
                    marks.append(RenderedPart(match.start(), match.end(), modality, is_text=False))
        return sorted([*texts, *marks], key=lambda one: one.start)

    def _texts(self, canned: Canned, text: str) -> Iterator[RenderedPart]:
        for _, said in canned.texts:
            start = text.find(said)
            if start >= 0:
                yield RenderedPart(start, start + len(said), said, is_text=True)

    def after(self, name: str, said: str, *, generation_prompt: bool = True) -> str | None:
        """Return the part of a conversation's prompt after a text, or None if it lacks the text."""
        text = self.text(name, generation_prompt=generation_prompt)
        return None if text is None or said not in text else text.rpartition(said)[2]

    def between(self, name: str, first: str, second: str) -> str | None:
        """Return the part of a conversation's prompt between two texts, or None if it lacks one of them."""
        text = self.text(name)
        start = text.find(first) if text is not None else -1
        end = text.find(second, start + len(first)) if text is not None and start >= 0 else -1
        return None if text is None or end < 0 else text[start + len(first) : end]

    def finding(
        self,
        kind: LintKind,
        message: str,
        name: str = "",
        offset: int | None = None,
        *,
        token: str = "",
        generation_prompt: bool = True,
    ) -> LintFinding:
        """Return a finding about this template. `offset`: its place in the prompt of the conversation `name`."""
        rendering = self.rendering(name, generation_prompt=generation_prompt) if name else None
        line, excerpt = None, ""
        if rendering is not None and offset is not None:
            line = rendering.line_at(offset)
            excerpt = quoted(rendering.text[max(0, offset - _AROUND) : offset + _AROUND], longest=2 * _AROUND)
        return LintFinding(
            kind=kind,
            message=message,
            source=self.template.name,
            line=line,
            conversation=self.canned[name].title if name in self.canned else "",
            token=token,
            excerpt=excerpt,
        )


def resembles(said: str, text: str) -> bool:
    """Return True if the prompt `text` contains `said` with other case, white space or punctuation, or escaped for
    HTML."""
    plain, prompt = (_SPACED.sub("", html.unescape(one)).casefold() for one in (said, text))
    return bool(plain) and plain in prompt
