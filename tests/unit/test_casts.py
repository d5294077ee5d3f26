"""The recorded demos: each is a sound cast, and shows what it is to show."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pyte
import pytest

from casts import SCENES

FOLDER = Path(__file__).parents[2] / "screenshots"
SHOWS = {
    "chat": ["Pick a model", "Message, or / for commands", "three-shapes.png", "What is in this image?", "tok/s"],
    "compare": [
        "circle.png",
        "Raw prompt",
        "<|im_start|>",
        "All 57 tokens are identical",
        "Answers: identical",
        "Chat template",
    ],
    "plain": ["[Image #1]", "two-shapes.png", "What is in this image?", "answer 2/2"],
}
_BYTES_MAX = 300_000


def test_every_demo_is_recorded_and_looked_at() -> None:
    assert {path.stem for path in FOLDER.glob("*.cast")} == set(SCENES) == set(SHOWS)


@pytest.mark.parametrize("name", SHOWS)
def test_a_demo_shows_its_subject(name: str) -> None:
    path = FOLDER / f"{name}.cast"
    assert path.stat().st_size < _BYTES_MAX
    head, *events = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert head["version"] == 2 and (head["width"], head["height"]) == (80, 24) and head["title"]
    assert all(kind == "o" and isinstance(text, str) for _, kind, text in events)
    times = [at for at, _, _ in events]
    assert times[0] >= 0 and all(before <= after <= before + 1.6 for before, after in pairwise(times))
    screen = pyte.Screen(80, 24)
    stream = pyte.Stream(screen)
    wanted = list(SHOWS[name])
    for _, _, text in events:
        stream.feed(text)
        shown = "".join(screen.display)  # words that are wrapped at the edge are whole
        # In this order: each is seen at the same time as the one before, or later.
        while wanted and wanted[0] in shown:
            del wanted[0]
    assert wanted == [], "never seen, or not in this order"


@pytest.mark.parametrize("name", SHOWS)
def test_a_demo_shows_nothing_of_its_machine(name: str) -> None:
    text = (FOLDER / f"{name}.cast").read_text("utf-8")
    assert not [word for word in ("/root", "/work", "/tmp/") if word in text]
    assert name != "plain" or "\\u001b" not in text, "plain mode writes no escape sequence"
