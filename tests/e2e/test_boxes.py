"""Boxes end to end: the bundled model with its adapter says where a drawn shape is, `vlmtui ask` reads and draws it.

How often the boxes are right is measured by `tools/eval_shapes.py --tasks box`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import scenes
from tests.support.machine import Machine, new_machine

pytestmark = [pytest.mark.engine, pytest.mark.e2e]

ADAPTER = "bundled:boxes"
DRAWINGS, RIGHT = 10, 9
IOU = 0.8


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with new_machine() as machine:
        yield machine


class Drawing:
    """A fresh square picture of one shape, and where that is in pixels."""

    def __init__(self, folder: Path, number: int) -> None:
        rng = scenes.rng_for("eval", "boxes end to end", number)
        scene, size = scenes.random_scene(rng, 1), (max(scenes.random_size(rng)),) * 2
        (self.shape,), (box,) = scene.shapes, scenes.boxes(scene, size)
        self.box = [share * side for share, side in zip(box, size * 2, strict=True)]
        self.path = folder / f"{number}.png"
        scenes.draw(scene, size).save(self.path)


@pytest.mark.timeout(900)
def test_the_adapters_box_is_right_and_drawn(machine: Machine, tmp_path: Path) -> None:
    right = 0
    for number in range(DRAWINGS):
        drawing, target = Drawing(tmp_path, number), tmp_path / f"{number}-out.png"
        question = f"Locate the {drawing.shape.name}."
        options = ("--adapter", ADAPTER, "--boxes", str(target), "--keep-alive", "10m")
        found: Any = machine.ask("--image", str(drawing.path), *options, question)
        assert found["unreadable_boxes"] == []
        for box in found["boxes"][:1]:
            is_right = box["label"] == drawing.shape.name and scenes.overlap(box["xyxy"], drawing.box) >= IOU
            right += is_right
            assert found["answer"][slice(*box["span"])] == box["text"]
        with Image.open(drawing.path) as before, Image.open(target) as after:
            assert after.size == before.size
            assert bool(found["boxes"]) == (after.convert("RGB").tobytes() != before.tobytes())
    assert right >= RIGHT


@pytest.mark.timeout(600)
def test_the_adapters_effect_is_reported(machine: Machine, tmp_path: Path) -> None:
    drawing = Drawing(tmp_path, 0)
    question = f"Locate the {drawing.shape.name}."
    plan = f"adapter=none,{ADAPTER}"
    code, out, error = machine.run("ask", "--json", "--image", str(drawing.path), "--fan-out", plan, question)
    assert code == 0, error
    without, with_it = json.loads(out)["answers"]
    assert "<box>" not in without["answer"]
    assert with_it["answer"].startswith(f"<ref>{drawing.shape.name}</ref><box>(")
    assert with_it["likelihood_of_first"]["ratio"] < 0.01
