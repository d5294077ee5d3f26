"""`vlmtui ask --boxes`, with a worker that repeats its prompt."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.support.command_line import CommandLine, opened

ANSWER = '[{"bbox_2d":[250,500,750,1200],"label":"car"},{"bbox_2d":[1,2,3],"label":"torn"}]'


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    with (
        tempfile.TemporaryDirectory(prefix="vlmtui-") as folder,
        opened(Path(folder), monkeypatch, capsys) as cli,
    ):
        yield cli


@pytest.fixture
def picture(tmp_path: Path) -> str:
    Image.new("RGB", (400, 200), "white").save(tmp_path / "street.png")
    return str(tmp_path / "street.png")


def test_boxes_are_drawn_on_the_picture_and_listed_in_its_pixels(
    cli: CommandLine, tmp_path: Path, picture: str
) -> None:
    target = tmp_path / "out.png"
    found = cli.json("ask", ANSWER, "--image", picture, "--boxes", str(target), "--boxes-like", "qwen3_vl")
    (box,) = found["boxes"]
    assert box == {
        "kind": "box",
        "label": "car",
        "xyxy": [100.0, 100.0, 300.0, 200.0],
        "clipped": True,
        "text": '{"bbox_2d":[250,500,750,1200],"label":"car"}',
        "span": box["span"],
    }
    assert found["answer"][slice(*box["span"])] == box["text"]
    assert found["unreadable_boxes"] == ['{"bbox_2d":[1,2,3],"label":"torn"}']
    with Image.open(target) as drawn:
        assert drawn.size == (400, 200)
        assert drawn.getpixel((300, 150)) != (255, 255, 255)
        assert drawn.getpixel((350, 150)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--boxes", "out.png"), "does not say how its models write coordinates"),
        (("--boxes", "out.png", "--boxes-like", "qwen9"), "no family"),
        (("--boxes-like", "qwen3_vl"), "goes with --boxes"),
        (("--boxes", "out.png", "--mode", "both"), "one answer"),
        (
            ("--boxes", "out.png", "--boxes-like", "qwen2_5_vl", "--engine-arg", 'mm_processor_kwargs={"a": 28}'),
            "its size is unknown",
        ),
    ],
)
def test_what_cannot_be_drawn_is_told_before_anything_is_loaded(
    cli: CommandLine, picture: str, more: tuple[str, ...], words: str
) -> None:
    ran = cli("ask", "where?", "--image", picture, *more)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert cli.workers == []


def test_boxes_need_one_picture(cli: CommandLine, tmp_path: Path) -> None:
    ran = cli("ask", "where?", "--boxes", str(tmp_path / "out.png"), "--boxes-like", "qwen3_vl")
    assert ran.code == 2
    assert "one image; 0 are attached" in ran.err
