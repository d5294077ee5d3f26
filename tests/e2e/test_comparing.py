"""The chat template against a raw prompt, in the real app with the real engine, read off the screen."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pictures import Easel, Picture
from tests.support.terminal import Terminal, search_paths
from vlmtui.paths import Paths

pytestmark = [pytest.mark.engine, pytest.mark.e2e]
APP = [sys.executable, "-m", "vlmtui"]
QUESTION = "What is in this image?"
BEFORE, PLACEHOLDER = "<|vision_start|>", "<|image_pad|>"
DELETE, RIGHT, CLEAR, INSPECT = "\x1b[3~", "\x1b[C", "\x15", "\x18i"


def environment(paths: Paths) -> dict[str, str]:
    folder = str(paths.config.parent)
    return {"HOME": folder, **search_paths(), "VLMTUI_DATA_DIR": folder, "VLMTUI_GRAPHICS": "halfcell"}


@pytest.fixture
def picture(tmp_path: Path) -> Picture:
    return Easel(tmp_path).picture(("red", "circle", "top left"))


@pytest.fixture
def comparing(loaded_worker: Paths, picture: Picture) -> Iterator[Terminal]:
    """The comparison of a question about the picture, not sent yet."""
    with Terminal([*APP, "--model", "shapes"], env=environment(loaded_worker)) as terminal:
        terminal.wait_for(lambda text: "Message, or / for commands" in text and "ready" in text)
        terminal.paste(str(picture.path))
        terminal.wait_for(picture.path.name)
        terminal.type(QUESTION)
        terminal.wait_for(QUESTION)
        terminal.press("f10")
        terminal.wait_for(f"{PLACEHOLDER} = Image #1")
        yield terminal
        terminal.press("ctrl+q")
        assert terminal.wait_for_end() == 0


def send(terminal: Terminal, answer: str) -> None:
    """Both sides answer this."""
    terminal.press("ctrl+r")
    terminal.wait_for(lambda text: text.count(answer) == 2 and text.count("stop <|im_end|>") == 2)


def export(terminal: Terminal, path: Path) -> None:
    terminal.type("\x18w")
    terminal.wait_for("Export to")
    terminal.type(f"{CLEAR}{path}")
    terminal.wait_for(path.name)
    terminal.press("enter")
    # The message about an earlier export may still stand, and the dialog until the file is written.
    terminal.wait_for(lambda text: "Export to" not in text and path.exists())


def replay(paths: Paths, document: Path) -> subprocess.CompletedProcess[str]:
    command = [*APP, "check", str(document)]
    return subprocess.run(command, env=environment(paths), capture_output=True, text=True, check=False)


def test_equal_sides_are_exported_and_replayed(
    comparing: Terminal, picture: Picture, loaded_worker: Paths, tmp_path: Path
) -> None:
    send(comparing, picture.answer)
    comparing.press("f6")
    comparing.wait_for("Prompts: identical")
    comparing.wait_for("Answers: identical")

    page, document = tmp_path / "both.html", tmp_path / "both.json"
    export(comparing, page)
    export(comparing, document)
    text = page.read_text()
    assert base64.b64encode(picture.path.read_bytes()).decode() in text
    assert text.count(picture.answer) == 2
    run = replay(loaded_worker, document)
    assert run.returncode == 0, run.stderr
    assert "2 compared: 2 the same" in run.stderr

    told = json.loads(document.read_text())
    assert [side["answer"] for side in told["sides"]] == [picture.answer] * 2
    told["sides"][1]["answer"] = "A blue square."
    other = tmp_path / "other.json"
    other.write_text(json.dumps(told))
    run = replay(loaded_worker, other)
    assert run.returncode == 1, run.stderr
    assert "2 compared: 1 the same, 1 differ" in run.stderr


def test_a_key_restores_a_removed_placeholder(comparing: Terminal, picture: Picture) -> None:
    comparing.press("down")
    comparing.type(RIGHT * len(BEFORE))
    comparing.type(DELETE * len(PLACEHOLDER))
    comparing.wait_for(lambda text: f"{PLACEHOLDER} = Image #1" not in text and "1 too few" in text)
    warned = comparing.wait_for(". Fix")
    assert "0 image placeholders for 1" in warned
    comparing.press("f8")
    comparing.wait_for(f"{PLACEHOLDER} = Image #1")
    send(comparing, picture.answer)
    comparing.press("f6")
    comparing.wait_for("Prompts: identical")


def test_a_changed_raw_prompt_differs_and_opens_in_the_inspector(comparing: Terminal) -> None:
    comparing.press("down")
    comparing.type(RIGHT * len(f"{BEFORE}{PLACEHOLDER}<|vision_end|>What is"))
    comparing.type(" not")
    comparing.wait_for("not in this image?")
    comparing.press("ctrl+r")
    comparing.wait_for(lambda text: text.count("stop <|im_end|>") == 2)
    comparing.type(INSPECT)
    comparing.wait_for(lambda text: "Inspector · raw prompt" in text and "What is not" in text)
    comparing.press("escape")
    comparing.wait_for("Send both")
    comparing.press("f6")
    comparing.wait_for("Prompts: ")
    assert "Prompts: identical" not in comparing.text
