"""`vlmtui batch` with the bundled model in real vLLM: the switches of vLLM's offline examples, and plain batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.batch_command import BatchCommand
from tests.support.pictures import Easel
from vlmtui.domain.conversation import user_turn
from vlmtui.paths import Paths, bundled

pytestmark = [pytest.mark.engine]

QUESTION = "What is in this image?"


@pytest.fixture
def batch(tmp_path: Path, loaded_worker: Paths) -> BatchCommand:
    return BatchCommand(tmp_path, loaded_worker)


def test_every_picture_gets_its_answer(batch: BatchCommand, tmp_path: Path) -> None:
    easel = Easel(tmp_path)
    kinds = [(colour, kind, "center") for colour in ("red", "blue", "green") for kind in ("circle", "square")]
    pictures = [easel.picture(kind) for kind in kinds]
    items = [
        {"id": f"{n}", "images": [one.path.name], "prompt": QUESTION, "expect": one.answer}
        for n, one in enumerate(pictures)
    ]
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(item) + "\n" for item in items))
    summary = batch(str(file), "--min-score", "1")
    assert batch.answers() == {f"{n}": one.answer for n, one in enumerate(pictures)}
    assert summary["answered"] == 6
    assert batch(str(file))["answered_before"] == 6
    raw = batch(str(file), "--mode", "raw", "--include-prompt", "--min-score", "1")
    assert (raw["answered"], raw["changed"]) == (6, 6)
    assert all(line["prompt"].count("<|image_pad|>") == line["usage"]["image_tokens"] for line in batch.lines())


def test_openai_lines_from_stdin(batch: BatchCommand) -> None:
    content = [
        {"type": "image_url", "image_url": {"url": str(bundled("samples") / "circle.png")}},
        {"type": "text", "text": QUESTION},
    ]
    body = {"model": "shapes", "messages": [{"role": "user", "content": content}], "max_tokens": 3}
    line = {"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": body}
    batch("-", stdin=json.dumps(line) + "\n")
    (found,) = batch.lines()
    assert (found["id"], found["finish_reason"]) == ("one", "length")
    assert "A red circle in the center.".startswith(found["answer"])


def test_pictures_by_a_pattern(batch: BatchCommand) -> None:
    batch("--image", str(bundled("samples") / "*.png"), "--prompt", QUESTION, "--set", "max_tokens=40")
    found = {Path(name).name: answer for name, answer in batch.answers().items()}
    assert found["circle.png"] == "A red circle in the center."
    assert found["two-shapes.png"] == "A yellow star at the top left and a blue square at the right."


def test_num_prompts_and_different_prompts(batch: BatchCommand) -> None:
    image = ("--image", str(bundled("samples") / "circle.png"))
    summary = batch("--num-prompts", "6", *image, "--seed", "3", "--temperature", "0.2")
    assert summary["answered"] == 6
    assert {line["question"] for line in batch.lines()} == {"What is the content of this image?"}
    assert {line["sampling"]["seed"] for line in batch.lines()} == set(range(3, 9))
    batch.output.unlink()
    batch("--num-prompts", "6", *image, "--use-different-prompt-per-request")
    asked = [line["question"] for line in sorted(batch.lines(), key=lambda line: str(line["id"]))]
    assert asked[:2] == ["What is the content of this image?", "Describe the content of this image in detail."]
    assert asked[4] == asked[0]


def test_time_generate(batch: BatchCommand) -> None:
    batch("--num-prompts", "1", "--time-generate")
    assert "-- generate time = " in batch.error


def test_image_repeat_prob(batch: BatchCommand) -> None:
    batch("--num-prompts", "12", "--image-repeat-prob", "0.5", "--seed", "1")
    pictures = [line["media"][0] for line in sorted(batch.lines(), key=lambda line: str(line["id"]))]
    assert 1 < len(set(pictures)) < 12
    repeats = sum(one == before for one, before in zip(pictures[1:], pictures, strict=False))
    assert len(set(pictures)) + repeats == 12
    assert batch("--num-prompts", "12", "--image-repeat-prob", "0.5", "--seed", "1")["answered_before"] == 12
    batch.output.unlink()
    batch("--num-prompts", "4", "--image-repeat-prob", "0")
    assert len({line["media"][0] for line in batch.lines()}) == 4
    batch.output.unlink()
    batch("--num-prompts", "4", "--image-repeat-prob", "1")
    assert len({line["media"][0] for line in batch.lines()}) == 1


@pytest.mark.parametrize("method", ["chat", "generate"])
@pytest.mark.parametrize("modality", ["image", "video"])
def test_verify_mm_cache_hit_with_uuids(batch: BatchCommand, modality: str, method: str) -> None:
    switches = ("--verify-mm-cache-hit-with-uuids", "--method", method, "--modality", modality)
    batch("--num-prompts", "5", "--use-different-prompt-per-request", *switches)
    assert "By identifier: 5 of 5 found in the cache, 0 answers differ." in batch.error


def test_modality_and_num_frames(batch: BatchCommand) -> None:
    batch("--num-prompts", "1", "--modality", "video", "--num-frames", "4", "--prompt", "What happens in this video?")
    (four,) = batch.lines()
    batch.output.unlink()
    batch("--num-prompts", "1", "--modality", "video", "--num-frames", "8", "--prompt", "What happens in this video?")
    (eight,) = batch.lines()
    assert 0 < four["usage"]["video_tokens"] < eight["usage"]["video_tokens"]


async def test_an_image_missing_from_the_cache_is_reported(engine: Any, shapes: Any, tmp_path: Path) -> None:
    import msgspec

    from vlmtui.domain.generation import Failed
    from vlmtui.domain.sampling import Sampling
    from vlmtui.errors import ErrorKind
    from vlmtui.session.generation import make_request

    picture = Easel(tmp_path).picture(("red", "star", "top"))
    unknown = msgspec.structs.replace(picture.attachment, sha256="0" * 64)
    request = make_request(shapes.family, [user_turn(QUESTION, [unknown])], Sampling())
    events = [event async for event in engine.generate(msgspec.structs.replace(request, from_cache=True))]
    assert isinstance(events[-1], Failed)
    assert events[-1].failure.kind is ErrorKind.NOT_KEPT
