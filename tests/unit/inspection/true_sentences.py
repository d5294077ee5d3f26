"""Check a sentence about the difference of two prompts against nothing but their tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_HEADS = re.compile(r"<[|｜](system|user|assistant)[|｜]>", re.IGNORECASE)
_NAMED = {"system": "system", "user": "user", "assistant": "assistant", "model": "assistant"}
_TIMES = {"once": 1, "twice": 2}
_Q = "“(.*?)”"
_SIDE = "(left|right)"


@dataclass
class Tokens:
    """A prompt as the model gets it; a picture is one item of several tokens."""

    texts: list[str]
    specials: list[bool]
    pictures: list[str | None]
    lengths: list[int]
    turns: list[str] = field(init=False)
    """For every item, the turn that it stands in."""

    def __post_init__(self) -> None:
        self.turns = [""] * len(self.texts)
        counts: dict[str, int] = {}
        current = ""
        for at in range(len(self.texts)):
            role = self.role_at(at)
            if role:
                counts[role] = counts.get(role, 0) + 1
                current = f"{role} turn {counts[role]}"
            self.turns[at] = current
        self.knows_turns = "user" in counts

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def role_at(self, at: int) -> str:
        if not self.specials[at]:
            return ""
        behind = ""
        for text, special, picture in zip(
            self.texts[at + 1 :], self.specials[at + 1 :], self.pictures[at + 1 :], strict=True
        ):
            if special or picture:
                break
            behind += text
        else:
            behind += "\n"
        word = behind.partition("\n")[0]
        is_word = "\n" in behind or at + 1 < len(self.texts)
        if is_word and word in _NAMED:
            return _NAMED[word]
        match = _HEADS.fullmatch(self.texts[at])
        return match[1].lower() if match else ""

    def system_text(self) -> str | None:
        """Return the text of the first system turn."""
        title = "system turn 1"
        if title not in self.turns:
            return None
        first = self.turns.index(title)
        items = [at for at in range(first, len(self.turns)) if self.turns[at] == title]
        says = "".join(self.texts[at] for at in items).removeprefix(self.texts[first])
        says = says if _HEADS.fullmatch(self.texts[first]) else says.removeprefix("system")
        says = says.strip().removeprefix("<|end_header_id|>")
        closing = [at for at in items if self.texts[at].strip()][-1]
        if self.specials[closing] and closing != first:
            says = says.removesuffix(self.texts[closing])
        return says.strip()

    def turn_text(self, title: str) -> str:
        return "".join(text for text, turn in zip(self.texts, self.turns, strict=True) if turn == title)

    def item_at(self, token: int) -> int:
        """The item that this token begins."""
        return [sum(self.lengths[:at]) for at in range(len(self.lengths) + 1)].index(token)

    def count(self, picture: str, turn: str = "") -> int:
        return sum(one == picture and turn in ("", place) for one, place in zip(self.pictures, self.turns, strict=True))


Sides = Mapping[str, Tokens]


def holds(sentence: str, left: Tokens, right: Tokens) -> bool:
    """Return whether the sentence is true. Raises ValueError for an unknown form of sentence."""
    sides = {"left": left, "right": right}
    for pattern, check in _CHECKS.items():
        match = re.fullmatch(pattern.replace("SIDE", "the " + _SIDE).replace("QUOTE", _Q), sentence, re.DOTALL)
        if match:
            return check(sides, *match.groups())
    raise ValueError(sentence)


# -- quotes are cut in the middle, and their line breaks are shown


def _places(quote: str, text: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """Return the places at which the quoted text may stand."""
    parts = quote.replace("↵", "\n").replace("⇥", "\t").split("…")
    if len(parts) == 1 or len(quote) < 50:
        whole = quote.replace("↵", "\n").replace("⇥", "\t")
        at = text.find(whole, start)
        while at >= 0:
            yield at, at + len(whole)
            at = text.find(whole, at + 1)
        return
    for first in re.finditer(f"(?={re.escape(parts[0])})", text):
        for last in re.finditer(f"(?={re.escape(parts[-1])})", text):
            if last.start() > first.start() + len(parts[0]):
                yield first.start(), last.start() + len(parts[-1])


def _has(quote: str, text: str) -> bool:
    return any(True for _ in _places(quote, text))


def _is(quote: str, text: str) -> bool:
    return (0, len(text)) in set(_places(quote, text))


def _behind(after: str, quote: str, text: str) -> list[int]:
    """Return the place behind `after` and the quoted text."""
    starts = {end for _, end in _places(after, text)} if after else {0}
    return [end for start, end in _places(quote, text) if start in starts]


def _goes_on_alike(one: str, ends: Sequence[int], other: str, others: Sequence[int]) -> bool:
    return any(one[end : end + 1] == other[there : there + 1] for end in ends for there in others)


def _number(said: str) -> int:
    return _TIMES.get(said) or int(said.removesuffix(" times").replace(",", ""))


# -- one check for each form of sentence


def _not_begins(sides: Sides, poor: str, quote: str, rich: str) -> bool:
    one, other = sides[rich].texts, sides[poor].texts
    return bool(one) and one[0] == quote and other[:1] != [quote]


def _begins_more(sides: Sides, rich: str, quote: str, many: str, poor: str, few: str) -> bool:
    def leading(texts: Sequence[str]) -> int:
        return next((at for at, text in enumerate(texts) if text != quote), len(texts))

    return leading(sides[rich].texts) == _number(many) > leading(sides[poor].texts) == _number(few)


def _adds_system(sides: Sides, rich: str, said: str) -> bool:
    text = sides[rich].system_text()
    poor = next(side for name, side in sides.items() if name != rich)
    is_said = text == "" if said == "an empty one" else text is not None and _is(said[1:-1], text)
    return is_said and poor.system_text() is None


def _other_system(sides: Sides, one: str, other: str) -> bool:
    texts = [side.system_text() for side in sides.values()]
    return texts[0] != texts[1] and all(
        text == "" if said == "an empty one" else text is not None and _is(said[1:-1], text)
        for said, text in zip((one, other), texts, strict=True)
    )


def _no_generation_prompt(sides: Sides, poor: str, quote: str) -> bool:
    rich = next(side for name, side in sides.items() if name != poor)
    ends = [start for start, end in _places(quote, rich.text) if end == len(rich.text.rstrip())]
    return bool(ends) and not any(end == len(sides[poor].text.rstrip()) for _, end in _places(quote, sides[poor].text))


def _white_space(sides: Sides, where: str, one: str, other: str) -> bool:
    if one == other:
        return False
    for said, side in zip((one, other), sides.values(), strict=True):
        space = "" if said == "none" else said[1:-1].replace("↵", "\n").replace("⇥", "\t")
        if where == "at the end":
            true = side.text[len(side.text.rstrip()) :] == space
        else:
            before = where.removeprefix("before “").removesuffix("”")
            true = any(
                side.text[:start].endswith(space)
                and not side.text[: start - len(space)][-1:].isspace()
                and not side.text[start : start + 1].isspace()
                for start, _ in _places(before, side.text)
            )
        if not true:
            return False
    return True


def _adds(sides: Sides, rich: str, quote: str, where: str) -> bool:
    one = sides[rich].text
    other = next(side for name, side in sides.items() if name != rich).text
    if where == "at the end":
        starts = [start for start, end in _places(quote, one) if end == len(one)]
        return any(one[:start][-1:] == other[-1:] or not other for start in starts)
    after = where.removeprefix("after “").removesuffix("”") if where != "at the start" else ""
    places = [end for _, end in _places(after, other)] if after else [0]
    return _goes_on_alike(one, _behind(after, quote, one), other, places)


def _replaced(sides: Sides, where: str, one: str, other: str) -> bool:
    after = where.removeprefix("after “").removesuffix("”") if where != "at the start" else ""
    texts = [side.text for side in sides.values()]
    ends = [_behind(after, said, text) for said, text in zip((one, other), texts, strict=True)]
    return (one != other or "…" in one) and _goes_on_alike(texts[0], ends[0], texts[1], ends[1])


def _other_tokens(sides: Sides, where: str, quote: str, *counts: str) -> bool:
    after = where.removeprefix("after “").removesuffix("”") if where != "at the start" else ""
    if counts[0] == counts[1] and len(sides["left"].texts) == len(sides["right"].texts) == 0:
        return False
    return all(
        any(
            _is(quote, "".join(side.texts[at : at + int(count)]))
            and "".join(side.texts[:at]).endswith(after.replace("↵", "\n"))
            for at in range(len(side.texts))
        )
        for side, count in zip(sides.values(), counts, strict=True)
    )


def _other_placeholder(sides: Sides, one: str, other: str) -> bool:
    return one != other and one in sides["left"].text and other in sides["right"].text


def _has_where(sides: Sides, one: str, name: str, other: str, instead: str) -> bool:
    rich, poor = sides[one], sides[other]
    if rich.count(name) <= poor.count(name):
        return False
    if instead.endswith("” that is not a picture"):
        return _has(
            instead.removeprefix("“").removesuffix("” that is not a picture"),
            "".join(text for text, picture in zip(poor.texts, poor.pictures, strict=True) if not picture),
        )
    return poor.count(instead) > rich.count(instead)


def _takes(sides: Sides, name: str, one: str, other: str) -> bool:
    return one != other and all(
        any(
            picture == name and length == int(said.replace(",", ""))
            for picture, length in zip(side.pictures, side.lengths, strict=True)
        )
        for side, said in zip(sides.values(), (one, other), strict=True)
    )


def _lacks(sides: Sides, poor: str, name: str) -> bool:
    rich = next(side for one, side in sides.items() if one != poor)
    return not sides[poor].count(name) and rich.count(name) > 0


def _stands(sides: Sides, name: str, many: str, rich: str, few: str, poor: str) -> bool:
    return sides[rich].count(name) == _number(many) > sides[poor].count(name) == _number(few)


def _moved(sides: Sides, what: str, one: str, other: str | None) -> bool:
    left, right = sides["left"], sides["right"]
    if not (left.knows_turns and right.knows_turns):
        return False

    def count(side: Tokens, turn: str) -> int:
        if not what.startswith("“"):
            return side.count(what, turn)
        return len(list(_places(what[1:-1], side.turn_text(turn))))

    if other is None:
        return count(left, one) == count(right, one) > 0
    return count(left, one) > count(right, one) and count(left, other) < count(right, other)


def _moved_within(sides: Sides, what: str, turn: str) -> bool:
    return _moved(sides, what, turn, None)


def _moved_tokens(sides: Sides, what: str, one: str, other: str) -> bool:
    starts = [int(number.replace(",", "")) for number in (one, other)]
    items = [side.item_at(start) for side, start in zip(sides.values(), starts, strict=True)]
    left, right = sides["left"], sides["right"]
    if left.texts[: items[0]] == right.texts[: items[1]]:
        return False
    if not what.startswith("“"):
        return left.pictures[items[0]] == right.pictures[items[1]] == what
    return all(
        any(start == 0 for start, _ in _places(what[1:-1], "".join(side.texts[item:]).lstrip()))
        for side, item in zip(sides.values(), items, strict=True)
    )


def _changed_places(sides: Sides, one: str, other: str) -> bool:
    def orders(side: Tokens) -> set[tuple[str, str]]:
        names = [name for name in side.pictures if name is not None and name in (one, other)]
        return {(a, b) for at, a in enumerate(names) for b in names[at + 1 :]}

    return (one, other) in orders(sides["left"]) and (other, one) in orders(sides["right"])


_WHERE = "(at the start|after “.*?”)"
_CHECKS: dict[str, Callable[..., bool]] = {
    r"no difference": lambda sides: sides["left"] == sides["right"],
    r"[\d,]+ more differences?": lambda sides: sides["left"] != sides["right"],
    r"SIDE does not begin with QUOTE, SIDE does": _not_begins,
    r"SIDE begins with QUOTE (\S+(?: times)?), SIDE (\S+(?: times)?)": _begins_more,
    r"SIDE adds a system prompt: (.*)": _adds_system,
    r"the system prompts differ: (“.*”|an empty one) in the left, (“.*”|an empty one) in the right": _other_system,
    r"SIDE does not end with the generation prompt QUOTE": _no_generation_prompt,
    r"white space (at the end|before “.*”): (none|“[↵⇥ ]*”) in the left, (none|“[↵⇥ ]*”) in the right": _white_space,
    r"SIDE adds “(.*)” (at the end|at the start|after “.*”)": _adds,
    _WHERE + r": “(.*)” in the left, “(.*)” in the right": _replaced,
    _WHERE + r": “(.*)” tokenized differently, ([\d,]+) tokens? in the left, ([\d,]+) in the right": _other_tokens,
    r"different placeholders: (.*) in the left, (.*) in the right": _other_placeholder,
    r"SIDE has (.*) where SIDE has (.*)": _has_where,
    r"(.*) takes ([\d,]+) tokens in the left, ([\d,]+) in the right": _takes,
    r"SIDE lacks (.*)": _lacks,
    r"(.*) appears (\S+(?: times)?) in SIDE, (\S+(?: times)?) in SIDE": _stands,
    r"(.*) moved from token ([\d,]+) to token ([\d,]+)": _moved_tokens,
    r"(.*) moved within (.*)": _moved_within,
    r"(.*) moved from (\w+ turn \d+) to (\w+ turn \d+)": _moved,
    r"(.*) and (.*) changed places": _changed_places,
}  # fmt: skip
