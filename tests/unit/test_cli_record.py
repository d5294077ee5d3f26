"""`vlmtui check record`: records prompts; `check` finds every kind of change in them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine, opened
from vlmtui.paths import bundled

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
Json = dict[str, Any]


@pytest.fixture
def vlmtui(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path / "home", monkeypatch, capsys)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    shutil.copytree(bundled("shapes"), folder, ignore=shutil.ignore_patterns("*.safetensors"))
    return folder


def edit(path: Path, change: Callable[[Json], None]) -> None:
    data: Json = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def run_pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the test that docs/check.md shows."""
    page = (ROOT / "docs/check.md").read_text(encoding="utf-8")
    (folder / "test_prompts.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    bin_folder = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": os.pathsep.join([bin_folder, os.environ["PATH"]])}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.timeout(600)
def test_prompts_are_recorded_and_each_change_is_found(vlmtui: CommandLine, model: Path, tmp_path: Path) -> None:
    recorded = tmp_path / "recorded"
    cases = ("--case", "image", "--case", "images", "--case", "video", "--case", "later_image")
    done = vlmtui("check", "record", str(recorded), "--model", str(model), *cases)
    assert done.code == 0, done.err
    files = {Path(line).name.partition(".")[0]: Path(line) for line in done.out.splitlines()}
    assert list(files) == ["image", "images", "video", "later_image"]
    data: Json = json.loads(files["images"].read_text())
    assert data["model"] == "../../checkpoint"
    assert [one["tokens"] for one in data["media"]] == [36, 28]
    assert json.loads(files["video"].read_text())["media"][0]["tokens"] > 0
    refused = vlmtui("check", str(recorded))
    assert refused.code == 2 and "If it is yours, add --model " in refused.out
    check = ("check", str(recorded), "--model", str(model))
    same = vlmtui(*check)
    assert same.code == 0, same.out + same.err
    assert "4 compared: 4 the same, 0 differ, 0 failed." in same.err

    (model / "chat_template.jinja").write_text(
        (model / "chat_template.jinja").read_text().replace("<|im_start|>assistant\n", "<|im_start|>assistant ")
    )
    smaller = {"min_pixels": 3136, "max_pixels": 12544, "size": {"shortest_edge": 3136, "longest_edge": 12544}}
    edit(model / "preprocessor_config.json", lambda data: data.update(smaller))
    moved = vlmtui(*check, "--json")
    assert moved.code == 1
    told = {
        one["case"]: [stage["stage"] for stage in one["stages"] if stage["outcome"] == "differs"]
        for one in json.loads(moved.out)["results"]
    }
    assert told["image chat"] == ["prompt text", "token ids", "image tokens", "pixels"]
    assert told["video chat"] == ["prompt text", "token ids"]

    files["video"].write_text(json.dumps({"format": 2}))
    refused = vlmtui(*check)
    assert refused.code == 2
    assert "video.chat.json is not a recorded prompt. " in refused.out
    assert "4 compared: 0 the same, 3 differ, 1 failed." in refused.err


@pytest.mark.timeout(600)
def test_a_user_question_is_recorded_and_tested(vlmtui: CommandLine, tmp_path: Path) -> None:
    recorded, picture = tmp_path / "prompts", tmp_path / "pictures" / "mine.png"
    picture.parent.mkdir()
    shutil.copyfile(bundled("samples") / "three-shapes.png", picture)
    mine = ("--case", "mine", "--question", "Where is the star?", "--image", str(picture), "--mode", "both")
    assert vlmtui("check", "record", str(recorded), "--model", "shapes", *mine).code == 0
    (chat,) = recorded.glob("*/mine.chat.json")
    assert json.loads(chat.read_text())["media"][0]["file"] == "mine.png"
    assert (chat.parent / "mine.png").read_bytes() == picture.read_bytes()
    passed = run_pytest(tmp_path)
    assert (passed.returncode, "1 passed" in passed.stdout) == (0, True), passed.stdout + passed.stderr
    edit(chat, lambda data: data["media"][0].update(tokens=1))
    failed = run_pytest(tmp_path)
    assert failed.returncode == 1
    assert "mine.chat.json · mine chat · processor: image tokens: image 1 takes " in failed.stdout
    edit(chat, lambda data: data["media"][0].update(file="../../pictures/mine.png"))
    assert "is not below its own folder" in run_pytest(tmp_path).stdout
    edit(chat, lambda data: data["media"][0].update(file="mine.png"))
    (chat.parent / "mine.png").write_bytes((bundled("samples") / "circle.png").read_bytes())
    assert "its content has changed" in run_pytest(tmp_path).stdout


def test_an_unrecordable_prompt_gives_the_reason(
    vlmtui: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    ran = vlmtui("check", "record", str(tmp_path), "--model", "qwen2_vl")
    assert ran.code == 2 and "is not downloaded" in ran.err
    ran = vlmtui("check", "record", str(tmp_path), "--model", "shapes", "--case", "nonsense")
    assert ran.code == 2 and "has no conversation 'nonsense'" in ran.err
    (tmp_path / "empty").mkdir()
    ran = vlmtui("check", str(tmp_path / "empty"))
    assert ran.code == 2 and "has no recorded prompts" in ran.err
    assert vlmtui("check").code == 2


def test_an_engine_with_earlier_files_is_refused_or_loaded_again(
    short_path: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases, output, document = tmp_path / "cases", tmp_path / "out.jsonl", tmp_path / "kept.json"
    named = ("--model", str(model))
    picture = ("--image", str(bundled("samples") / "circle.png"))
    with opened(short_path, monkeypatch, capsys) as vlmtui:
        asked = vlmtui("ask", "What?", *named, *picture, "--export", str(document), "--keep-alive", "forever")
        assert asked.code == 0, asked.err
        assert vlmtui("check", "record", str(cases), *named, "--case", "text", "--on", "here").code == 0
        (model / "chat_template.jinja").write_text("another")
        told = "have changed since it was loaded: chat_template.jinja."
        refusing = (
            ("batch", *named, *picture, "--prompt", "What?", "-o", str(output)),
            ("check", str(cases), *named, "--on", "here"),
            ("check", str(document), *named),
            ("check", "--on", str(model), "--case", "text"),
        )
        for command in refusing:
            ran = vlmtui(*command)
            assert ran.code in (1, 2) and told in ran.out + ran.err and "--reload" in ran.out + ran.err, command
        assert output.read_text() == ""
        [(before, told_by_ps)] = [(one["pid"], one["changed"]) for one in vlmtui.json("ps")]
        assert told_by_ps == ["chat_template.jinja"]
        for command in refusing[:2]:
            ran = vlmtui(*command, "--reload")
            assert ran.code == 0, ran.out + ran.err
        again = vlmtui("ask", "What?", *named, *picture)
        assert again.code == 0 and told not in again.err
        [after] = vlmtui.json("ps")
        assert after["pid"] != before and after["keep_alive_s"] is None
        (model / "tokenizer_config.json").unlink()
        assert "tokenizer_config.json (removed). It is loaded again." in vlmtui("ask", "What?", *named, *picture).err
