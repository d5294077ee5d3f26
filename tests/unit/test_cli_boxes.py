"""`vlmtui ask --boxes`, with a worker that answers with its prompt."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.support.command_line import CommandLine, opened
from vlmtui.domain.conversation import VideoSampling
from vlmtui.media.frames import sample_frames
from vlmtui.paths import bundled

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
        "swapped": False,
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
        (("--model", "llava", "--boxes", "out.png"), "does not say how its models write coordinates"),
        (("--boxes", "out.png", "--boxes-like", "qwen9"), "no family"),
        (("--boxes-like", "qwen3_vl"), "goes with --boxes"),
        (("--boxes", "out.png", "--mode", "both"), "one answer"),
        (
            ("--boxes", "out.png", "--boxes-like", "qwen2_5_vl", "--engine-arg", 'mm_processor_kwargs={"a": 28}'),
            "its size is unknown",
        ),
    ],
)
def test_undrawable_boxes_are_reported_before_a_load(
    cli: CommandLine, picture: str, more: tuple[str, ...], words: str
) -> None:
    ran = cli("ask", "where?", "--image", picture, *more)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert cli.workers == []


TIMES = '[{"start_time": "00:00.25", "end_time": 1, "label": "red"}, {"start": 90, "end": 95}, {"start": 1, "end": ""}]'


def test_times_of_a_video_are_listed_and_their_frames_drawn(cli: CommandLine, tmp_path: Path) -> None:
    target = tmp_path / "out.png"
    video = str(bundled("samples") / "moving-circle.mp4")
    ran = cli("ask", TIMES, "--video", video, "--boxes", str(target), "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert [(one["label"], one["start_s"], one["end_s"]) for one in found["time_ranges"]] == [
        ("red", 0.25, 1.0),
        ("", 90.0, 95.0),
    ]
    assert all(found["answer"][slice(*one["span"])] == one["text"] for one in found["time_ranges"])
    assert (found["boxes"], found["unreadable_boxes"]) == ([], ['{"start": 1, "end": ""}'])
    assert "0.25 s – 1.00 s red" in ran.err and "1 could not be read" in ran.err
    frames = sample_frames(video, VideoSampling(num_frames=1, start_s=0.25))
    height, width = frames.frames.shape[1:3]
    with Image.open(target) as drawn:
        assert drawn.width == 2 * width and drawn.height > height
        assert drawn.crop((0, 0, width, height)).tobytes() == frames.frames[0].tobytes()
        assert drawn.getpixel((width + 5, 5)) == (128, 128, 128), "the video has no frame at 90 s"


def test_timed_points_lie_on_the_frame_of_their_time(cli: CommandLine, tmp_path: Path) -> None:
    said = '<tracks coords="0.5 1 500 500;1.0 1 250 750">circle</tracks>'
    target = tmp_path / "out.png"
    video = str(bundled("samples") / "moving-circle.mp4")
    found = cli.json("ask", said, "--video", video, "--boxes", str(target), "--boxes-like", "molmo2")
    assert [(one["second"], one["label"]) for one in found["boxes"]] == [(0.5, "circle"), (1.0, "circle")]
    with Image.open(target) as drawn:
        width = drawn.width // 2
        first, second = (drawn.crop((at, 0, at + width, drawn.height)).tobytes() for at in (0, width))
        assert first != second


def test_boxes_of_an_unknown_convention_in_a_video_are_left_out(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vlmtui.engine.local.hub.hub_error", lambda spec: None)  # nothing is downloaded
    video = str(bundled("samples") / "moving-circle.mp4")
    more = ("--model", "llava-onevision", "--video", video, "--boxes", str(tmp_path / "out.png"), "--json")
    ran = cli("ask", ANSWER, *more)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["boxes"] == [] and "1 boxes are left out" in ran.err
    assert len(cli.json("ask", ANSWER, *more, "--boxes-like", "qwen3_vl")["boxes"]) == 1


def test_boxes_need_one_picture(cli: CommandLine, tmp_path: Path) -> None:
    ran = cli("ask", "where?", "--boxes", str(tmp_path / "out.png"), "--boxes-like", "qwen3_vl")
    assert ran.code == 2
    assert "one image or one video; 0 are attached" in ran.err
