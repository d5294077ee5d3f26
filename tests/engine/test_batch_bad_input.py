"""A wrong item of a batch costs only its own line, which names its number. Real vLLM, the bundled model."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.support.batch_command import BatchCommand
from vlmtui.paths import Paths, bundled

pytestmark = [pytest.mark.engine]

QUESTION = "What is in this image?"
_CIRCLE = str(bundled("samples") / "circle.png")
_SENTENCE = "A red circle in the center."


@pytest.fixture
def batch(tmp_path: Path, loaded_worker: Paths) -> BatchCommand:
    return BatchCommand(tmp_path, loaded_worker)


@pytest.fixture
def silent_url() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/picture.png"


def _ask(name: str, image: str = _CIRCLE, **more: object) -> str:
    return json.dumps({"id": name, "images": [image], "prompt": QUESTION, **more})


def _write(folder: Path, *lines: str) -> str:
    file = folder / "in.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    return str(file)


def test_long_items_do_not_delay_the_others_or_take_their_place(batch: BatchCommand, tmp_path: Path) -> None:
    long = "A" * 700_000
    lines = [_ask(f"{n}") if n % 4 == 0 else _ask(f"{n}", prompt=f"{n} {long}") for n in range(40)]
    summary = batch(_write(tmp_path, *lines), code=1)
    assert (summary["answered"], summary["failed"]) == (10, 30)
    errors = [line["error"] for line in batch.lines() if line["error"]]
    assert {error["kind"] for error in errors} == {"context_too_long"}, errors[0]


def test_each_wrong_item_is_an_error_line_and_the_others_are_answered(
    batch: BatchCommand, tmp_path: Path, silent_url: str
) -> None:
    Image.new("RGB", (2, 900), "red").save(tmp_path / "strip.png")  # beyond the processor's ratio of 200
    Image.effect_noise((64, 64), 90).save(tmp_path / "noise.png")
    (tmp_path / "half.png").write_bytes((tmp_path / "noise.png").read_bytes()[:900])
    file = _write(
        tmp_path,
        _ask("first"),
        "{ no json",
        _ask("unknown", promt="x"),
        _ask("first"),
        _ask("missing", "missing.png"),
        _ask("damaged", "half.png"),
        _ask("long", prompt="circle " * 6000),
        _ask("refused", "strip.png"),
        _ask("silent", silent_url),
        _ask("last"),
    )
    summary = batch(file, code=1)
    found = {line["line"]: line for line in batch.lines()}
    assert sorted(found) == list(range(1, 11))
    assert (summary["answered"], summary["failed"]) == (2, 8)
    assert {found[n]["id"]: found[n]["answer"] for n in (1, 10)} == {"first": _SENTENCE, "last": _SENTENCE}
    errors = {number: line["error"] for number, line in found.items() if line["error"]}
    said = {number: (error["kind"], error["message"]) for number, error in errors.items()}
    assert [number for number, (_, message) in said.items() if not message.startswith(f"Line {number}: ")] == []
    assert "unknown field `promt`" in said[3][1]
    assert "is also used in line 1" in said[4][1]
    assert said[5][1] == "Line 5: missing.png does not exist."
    assert "half.png" in said[6][1]
    assert said[7][0] == "context_too_long"
    assert (said[8][0], "strip.png" in said[8][1] or "ratio" in json.dumps(errors[8])) == ("bad_input", True)
    assert said[9][0] == "no_network"
    again = batch(file, code=1)  # only lines that are no items and files that are missing are looked at again
    assert (again["answered"], again["failed"], again["failed_before"]) == (0, 4, 4)
