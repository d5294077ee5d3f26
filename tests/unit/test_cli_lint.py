"""`vlmtui lint`: exit codes, JSON, and models that can't be checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.zoo.kit import write_tokenizer
from tests.zoo.templates import chatml

pytestmark = pytest.mark.process
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
CONFIG = {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl"}


@pytest.fixture
def vlmtui(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return CommandLine(tmp_path / "home", monkeypatch, capsys)


def checkpoint(folder: Path, template: str) -> Path:
    special = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>"]
    write_tokenizer(folder, special, eos="<|im_end|>", chat_template=template)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def test_a_family_that_is_not_downloaded_is_checked_by_its_record(vlmtui: CommandLine) -> None:
    ran = vlmtui("lint", "gemma3")
    assert (ran.code, ran.out) == (0, "")
    assert "the record of gemma3: no finding" in ran.err


def test_findings_have_line_reason_and_remedy(vlmtui: CommandLine, tmp_path: Path) -> None:
    template = chatml(IMAGE, IMAGE.replace("image", "video"), default_system="You are a helpful assistant.")
    assert vlmtui("lint", str(checkpoint(tmp_path / "sound", template))).code == 0
    folder = checkpoint(tmp_path / "broken", template.replace("<|vision_start|><|image_pad|>", "<|image_pad|>"))
    ran = vlmtui("lint", str(folder), "--json")
    assert ran.code == 1
    report = json.loads(ran.out)
    found, differs = report["findings"]
    assert differs["kind"] == "record_differs"
    assert (found["kind"], found["token"], found["template"]) == (
        "placeholder_unwrapped",
        "<|vision_start|>",
        "chat_template.jinja",
    )
    source = (folder / "chat_template.jinja").read_text().splitlines()
    assert "<|image_pad|>" in source[found["line"] - 1]
    assert found["why"] and found["mend"] and "<|image_pad|>" in found["excerpt"]
    assert report["family"] == "qwen2_vl" and len(report["conversations"]) >= 16
    told = vlmtui("lint", str(folder))
    assert f"chat_template.jinja, line {found['line']} · one image" in told.out


@pytest.mark.parametrize("name", ["internvl_chat", "no/such-model-at-all", "nothing"])
def test_an_uncheckable_model_exits_with_2(vlmtui: CommandLine, name: str) -> None:
    ran = vlmtui("lint", name)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("vlmtui: ")


def test_a_fault_of_one_value_of_a_variable_names_the_value(vlmtui: CommandLine, tmp_path: Path) -> None:
    template = chatml(IMAGE, IMAGE.replace("image", "video"), default_system="You are a helpful assistant.")
    assert "{%- if add_generation_prompt" in template
    doubled = template.replace(
        "{%- if add_generation_prompt",
        "{%- if enable_thinking is defined and not enable_thinking -%}<|im_start|>assistant\n{% endif -%}\n"
        "{%- if add_generation_prompt",
        1,
    )
    ran = vlmtui("lint", str(checkpoint(tmp_path / "doubled", doubled)), "--json")
    found = json.loads(ran.out)["findings"]
    assert found and all(one["conversation"].endswith(" with enable_thinking = false") for one in found), found


def test_damaged_files_are_findings_and_nothing_else_is_said_of_them(vlmtui: CommandLine, tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    folder = checkpoint(tmp_path / "m", chatml(IMAGE, IMAGE.replace("image", "video")))
    (folder / "chat_template.jinja").write_text(pointer)
    (folder / "model.safetensors").write_text(pointer)
    (folder / "tokenizer.json").unlink()
    ran = vlmtui("lint", str(folder), "--json")
    assert ran.code == 1
    assert [(one["kind"], one["message"]) for one in json.loads(ran.out)["findings"]] == [
        ("file_damaged", "chat_template.jinja is a Git LFS pointer, not the file itself."),
        ("file_damaged", "model.safetensors is a Git LFS pointer, not the file itself."),
        ("file_damaged", "tokenizer.json is missing."),
    ]
