"""The canned conversations that a chat template is checked with. Each text occurs once, so it is found in a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from vlmtui.domain.attachment import Attachment, Modality
from vlmtui.domain.conversation import Media, Part, Role, Text, Turn, all_attachments
from vlmtui.domain.model_reading import Form, RenderCase
from vlmtui.errors import VlmtuiError
from vlmtui.registry.prompts import chat_prompt, raw_prompt
from vlmtui.registry.schema import Family, Layout

ASKED, AGAIN, LAST = "What colour is the kite?", "How many boats are there?", "Which one is nearer?"
ANSWER, SECOND_ANSWER = "The kite is red.", "I count three."
BEGUN = "There are exactly"
"""A prefill: the beginning of an answer, which the model continues."""
SYSTEM = "Answer in one short sentence."
ODD = 'Is <b>this</b> & "that" — {{ 1 + 1 }} {% x %} \\n – «überall» 100 %?'
"""Text that a template must leave as it is: markup, quotes, Jinja, a backslash."""
_SIZE = 224


class Canned(msgspec.Struct, frozen=True):
    """A canned conversation."""

    name: str
    title: str
    """For people: `two images, then text`."""
    turns: tuple[Turn, ...]

    @property
    def texts(self) -> list[tuple[Role, str]]:
        """Every text that is not empty, with its role, in order."""
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
        """Whether it has two or more items of a modality."""
        return len(self.modalities) > len(set(self.modalities))


def canned_conversations(family: Family, *, stop: str = "") -> list[Canned]:
    """Return the conversations that the family's models can have. `stop`: a token that ends an answer, if known."""
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
    """Whether the record can write the conversation; a model without a record can have any."""
    if family.question != "free" and any(role == "user" for role, _ in canned.texts):
        return False
    try:
        raw_prompt(family, canned.turns)
    except VlmtuiError:
        return False
    return True


def render_case(family: Family, canned: Canned) -> RenderCase:
    """Return the conversation as messages in each form, with its parts in the order in which the family has them."""
    return in_each_form(family, canned.name, chat_prompt(family, canned.turns).turns)


def in_each_form(family: Family, name: str, turns: Sequence[Turn]) -> RenderCase:
    """Return turns as messages in each form. `family` writes the placeholders of strings."""
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
    """Yield each turn with its content as one string, with placeholders."""
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
