"""The steps of the tour: what ends them, and where one continues."""

from __future__ import annotations

import re
from pathlib import Path

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Media, Text, Turn, user_turn
from vlmtui.paths import sample_image
from vlmtui.session.tour import (
    END,
    STEPS,
    ComparisonAnswered,
    ConversationChosen,
    ConversationsFound,
    Deed,
    FanOutAnswered,
    FileAttached,
    InspectorPartShown,
    RawPromptChecked,
    Tour,
    TurnAnswered,
)
from vlmtui.ui.actions import ACTIONS
from vlmtui.ui.keys import default_keys

PICTURE = Attachment(
    modality="image",
    name="circle.png",
    path=str(sample_image()),
    sha256="0" * 64,
    format="PNG",
    width=2,
    height=2,
    size_bytes=9,
)
INSIDE = Turn("user", (Text("What is "), Media(PICTURE), Text("here?")))
DEEDS: tuple[Deed, ...] = (
    FileAttached(),
    TurnAnswered(user_turn("What?", [PICTURE])),
    TurnAnswered(INSIDE),
    ComparisonAnswered(),
    RawPromptChecked(True),
    RawPromptChecked(False),
    InspectorPartShown("tokens"),
    FanOutAnswered(),
    ConversationsFound("circle", 1),
    ConversationChosen(),
)


def test_each_step_ends_by_its_own_deed_alone(tmp_path: Path) -> None:
    tour = Tour(tmp_path / "step.json")
    seen: list[int] = []
    unsubscribe = tour.subscribe(lambda: seen.append(tour.done))
    for number, deed in enumerate(DEEDS):
        for other in DEEDS[:number] + DEEDS[number + 1 :]:
            if not STEPS[number].is_done(other):
                tour.take(other)
        assert tour.done == number
        tour.take(deed)
        assert tour.done == number + 1
    assert seen == list(range(1, len(STEPS) + 1))
    assert tour.step is None
    unsubscribe()
    tour.take(DEEDS[0])


def test_what_is_nearly_right_ends_no_step() -> None:
    by_id = {step.id: step for step in STEPS}
    assert not by_id["ask"].is_done(TurnAnswered(user_turn("no picture")))
    assert not by_id["place"].is_done(TurnAnswered(user_turn("after the picture", [PICTURE])))
    assert not by_id["place"].is_done(TurnAnswered(Turn("user", (Text(" "), Media(PICTURE), Text("after")))))
    assert not by_id["tokens"].is_done(InspectorPartShown("prompt"))
    assert not by_id["search"].is_done(ConversationsFound("ci", 1))
    assert not by_id["search"].is_done(ConversationsFound("circle", 0))


def test_it_continues_where_it_was_left_and_begins_again_at_its_end(tmp_path: Path) -> None:
    file = tmp_path / "tour" / "step.json"
    assert Tour.read(file).done == 0
    Tour(file, 4).write()
    assert Tour.read(file).done == 4
    Tour(file, len(STEPS)).write()
    assert Tour.read(file).done == 0
    file.write_bytes(b'{"not": a step')
    assert Tour.read(file).done == 0


def test_every_key_that_a_step_names_exists() -> None:
    named = re.findall(r"\{([a-z_.]+)\}", " ".join([END, *(step.text for step in STEPS)]))
    assert named
    assert all(default_keys(id) for id in named), [id for id in named if id not in ACTIONS]
    assert len({step.id for step in STEPS}) == len(STEPS)
