"""Questions about drawn images, whose answers show that a model sees them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from random import Random

import msgspec
from PIL import Image, ImageDraw, ImageFont

from vlmtui.domain.conversation import Attachment, Turn, assistant_turn, user_turn
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError
from vlmtui.media.images import stage_image
from vlmtui.registry.schema import Family, Skill
from vlmtui.session.lanes import Lane, Lanes, lane_spec

SEED = 19
_SIDE = 448
_TOKENS = 256
_COLOURS = {"red": "#dc1e1e", "green": "#1ea03c", "blue": "#1e46dc", "yellow": "#f0d214"}
_ALSO = {"circle": ("dot", "disc", "disk", "ball", "round"), "square": ("rectangle", "box"), "star": (), "triangle": ()}
_NUMBERS = {1: "one", 2: "two", 3: "three"}
_WHAT = "What is in this image?"
_WORDS = ("TIGER", "PIANO", "RIVER", "LEMON")

Words = tuple[tuple[str, ...], ...]
"""Groups of words: the answer needs a word of each group."""


class QuestionOutcome(StrEnum):
    RIGHT = "right"
    WRONG = "wrong"
    NOT_TRAINED = "not trained"
    IMPOSSIBLE = "not possible"
    FAILED = "failed"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation about drawn images, and the words that its answer needs."""

    skill: Skill
    turns: tuple[Turn, ...]
    expected: Words
    unwanted: tuple[str, ...] = ()
    """Words that must not come before the expected ones."""

    @property
    def text(self) -> str:
        return self.turns[-1].text


class QuestionResult(msgspec.Struct, frozen=True, kw_only=True):
    """A question, the answer, and the answer that was expected."""

    skill: Skill
    asked: str
    seen: str
    """The answer. Hostile text."""
    expected: str
    outcome: QuestionOutcome


def questions(folder: Path, media: Path, seed: int = SEED) -> list[Question]:
    """Draw the images into `folder`, store them in `media`, and return the conversations. Blocking."""
    rng = Random(seed)

    def staged(name: str, canvas: Image.Image) -> Attachment:
        canvas.save(folder / f"{name}.png")
        return stage_image(folder / f"{name}.png", media)

    colours = rng.sample(sorted(_COLOURS), 3)
    things = list(zip(colours, rng.sample(sorted(_ALSO), 3), strict=True))
    side, at = rng.choice((("left", 0.17), ("right", 0.83)))
    other = "left" if side == "right" else "right"
    number, word = rng.randint(2, 3), rng.choice(_WORDS)
    lone = [staged(f"one-{kind}", _drawn((colour, kind, 0.5))) for colour, kind in things]
    row = _drawn(*((colours[0], "circle", 0.17 + 0.33 * place) for place in range(number)))
    both = [staged(ground, Image.new("RGB", (_SIDE, _SIDE), ground)) for ground in ("#202020", "#e8e8e8")]
    text = _drawn()
    ImageDraw.Draw(text).text((40, 160), word, fill="black", font=ImageFont.load_default(96))
    talk = [turn for one in lone[:2] for turn in (user_turn("Look at this image.", [one]), assistant_turn("I see it."))]
    brighter = "Which of the two images is brighter, the first or the second? Answer with one word."

    def case(
        skill: Skill, turns: Sequence[Turn], *expected: tuple[str, ...], unwanted: tuple[str, ...] = ()
    ) -> Question:
        return Question(skill=skill, turns=tuple(turns), expected=expected, unwanted=unwanted)

    named = [((colour,), (kind, *_ALSO[kind])) for colour, kind in things]
    return [
        *(case("what", [user_turn(_WHAT, [one])], *words) for one, words in zip(lone, named, strict=True)),
        case(
            "where",
            [user_turn("Where is the red circle?", [staged("place", _drawn(("red", "circle", at)))])],
            (side,),
            unwanted=(other,),
        ),
        case(
            "count",
            [user_turn("How many shapes are in this image?", [staged("count", row)])],
            (_NUMBERS[number], str(number)),
        ),
        case("earlier", [*talk, user_turn("What was in the first image?")], *named[0]),
        case("compare", [user_turn(brighter, both)], ("second", "2"), unwanted=("first", "1")),
        case("read", [user_turn("Read the text in this image.", [staged("text", text)])], (word.lower(),)),
    ]


def _drawn(*shapes: tuple[str, str, float]) -> Image.Image:
    """Return a white image with shapes at half its height: colour, kind, and position as a fraction of the width."""
    canvas = Image.new("RGB", (_SIDE, _SIDE), "white")
    pen, reach = ImageDraw.Draw(canvas), 0.11 * _SIDE
    for colour, kind, across in shapes:
        x, y, fill = across * _SIDE, 0.5 * _SIDE, _COLOURS[colour]
        if kind == "circle":
            pen.ellipse((x - reach, y - reach, x + reach, y + reach), fill=fill)
        elif kind == "square":
            pen.rectangle((x - reach, y - reach, x + reach, y + reach), fill=fill)
        else:
            points = 3 if kind == "triangle" else 10
            corners = []
            for at in range(points):
                far = reach * (0.45 if points == 10 and at % 2 else 1.15)
                turn = math.tau * at / points - math.tau / 4
                corners.append((x + far * math.cos(turn), y + far * math.sin(turn)))
            pen.polygon(corners, fill=fill)
    return canvas


def is_right(case: Question, answer: str) -> bool:
    """Return True if an answer has all expected words, and no unwanted word before them."""
    words = [word.removesuffix("s") for word in re.findall(r"[a-z]+|[0-9]+", answer.lower())]
    unwanted = _place(words, case.unwanted)
    return all(_place(words, group) < min(unwanted, len(words)) for group in case.expected)


def _place(words: Sequence[str], wanted: Sequence[str]) -> int:
    """Return the index of the first word that is in `wanted`; the number of words if there is none."""
    return next((at for at, word in enumerate(words) if word in wanted), len(words))


async def ask_question(engine: Engine, family: Family, case: Question, sampling: Sampling) -> QuestionResult:
    """Ask the question of a case with greedy sampling, and judge the answer. Asks it even if the model was not trained
    for that kind of task."""
    sampling = msgspec.structs.replace(sampling, temperature=0.0, max_tokens=_TOKENS, seed=0)
    expected = " and ".join("/".join(group) for group in case.expected)

    def result(outcome: QuestionOutcome, seen: str) -> QuestionResult:
        return QuestionResult(skill=case.skill, asked=case.text, seen=seen, expected=expected, outcome=outcome)

    try:
        lanes = Lanes([Lane(lane_spec(family, case.turns, sampling), engine)])
    except VlmtuiError as error:
        return result(QuestionOutcome.IMPOSSIBLE, error.message)
    await lanes.run()
    answer = lanes[0].answer
    if answer.failure is not None:
        return result(QuestionOutcome.FAILED, answer.failure.message)
    seen = answer.text.strip()
    if is_right(case, seen):
        return result(QuestionOutcome.RIGHT, seen)
    return result(QuestionOutcome.NOT_TRAINED if case.skill in family.untrained else QuestionOutcome.WRONG, seen)


def sees(results: Sequence[QuestionResult]) -> bool | None:
    """Return whether the answers name colour and kind of two or more of the three single shapes; None if fewer than two
    were answered. Guessing succeeds 1 time in 16."""
    shapes = [one.outcome for one in results if one.skill == "what" and one.outcome is not QuestionOutcome.FAILED]
    return shapes.count(QuestionOutcome.RIGHT) >= 2 if len(shapes) >= 2 else None
