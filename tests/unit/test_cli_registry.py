"""`vlmtui models` and `vlmtui prompt`, as a shell sees them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vlmtui.cli import main
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.skeleton import skeleton

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("VLMTUI_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def closed_family(tmp_path: Path) -> str:
    """Write a user's record of a family that only an old vLLM runs; return the family's name."""
    families = Paths.below(tmp_path).families
    families.mkdir(parents=True)
    text = skeleton("closed").partition("[[routes]]")[0]
    (families / "closed.toml").write_text(f'{text}\n[[routes]]\nuntil = "0.10.2"\n')
    return "closed"


def the_json(ran: tuple[int, str, str]) -> Any:
    code, out, _ = ran
    assert code == 0
    return json.loads(out)


def test_the_list_names_every_family(run: Run, closed_family: str) -> None:
    listed = the_json(run("models", "--json"))
    assert {one["name"] for one in listed} == {*Registry.bundled(), closed_family}
    _, out, _ = run("models")
    assert "qwen2_5_vl" in out
    assert "up to vLLM 0.10.2" in out
    assert "(6 GB or more on disk)" in out


def test_the_list_is_filtered(run: Run, closed_family: str) -> None:
    videos = the_json(run("models", "--json", "--modality", "video"))
    assert {"qwen2_vl", "shapes"} <= {one["name"] for one in videos}
    assert all("video" in one["takes"] for one in videos)
    runnable = the_json(run("models", "--json", "--runnable"))
    assert all(one["runnable"] for one in runnable)
    assert closed_family not in {one["name"] for one in runnable}


def test_a_record_is_shown_in_short_and_as_json(run: Run) -> None:
    code, out, _ = run("models", "show", "phi3_v")
    assert code == 0
    assert "microsoft/Phi-3.5-vision-instruct" in out and "Takes at most: 8 image" in out
    shown = the_json(run("models", "show", "microsoft/Phi-3.5-vision-instruct", "--json"))
    assert shown["family"] == "phi3_v"
    assert shown["takes"]["image"]["placeholder"] == "<|image_{i}|>"
    assert shown["resolved_engine_args"]["mm_processor_kwargs"] == {"num_crops": 4}
    assert shown["trust_remote_code"] is True


def test_the_variables_of_a_models_template_are_shown_with_what_sets_them(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "own-qwen"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["Qwen3_5ForConditionalGeneration"]}')
    template = "{% if enable_thinking is false %}x{% endif %}{{ style | default('dry') }}"
    (folder / "chat_template.jinja").write_text(template)
    code, out, _ = run("models", "show", str(folder))
    assert code == 0
    lines = out.splitlines()
    assert lines[lines.index("Its chat template reads:") + 1 :] == [
        "  enable_thinking: false, true (set by thinking)",
        "  style: dry (set by template.style)",
    ]
    shown = the_json(run("models", "show", str(folder), "--json"))
    assert shown["template_variables"] == {"enable_thinking": [False, True], "style": ["dry"]}
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert "Its chat template reads no variables." in run("models", "show", str(folder))[1]
    (folder / "chat_template.jinja").write_text("{% if %}")
    assert "chat template" not in run("models", "show", str(folder))[1]


def test_every_family_is_shown(run: Run) -> None:
    for name, family in Registry.bundled().items():
        code, out, _ = run("models", "show", name)
        assert code == 0 and family.title in out


def test_a_new_record_is_written_once(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("models", "new", "mine")
    file = Paths.below(tmp_path).families / "mine.toml"
    assert (code, out.strip()) == (0, str(file))
    assert the_json(run("models", "show", "mine", "--json"))["family"] == "mine"
    assert run("models", "new", "mine")[0] == 2
    assert run("models", "new", "../mine")[0] == 2
    file.write_text("family = 3")
    code, out, error = run("models")
    assert code == 0
    assert "mine.toml" in error
    assert "qwen2_vl" in out


def test_a_prompt_is_printed_as_it_would_be_sent(run: Run) -> None:
    code, out, _ = run("prompt", "llava", "--images", "1", "What is {this}?")
    assert (code, out) == (0, "USER: <image>\nWhat is {this}?\nASSISTANT:\n")


def test_a_preset_shows_the_arguments_of_vllms_example(run: Run) -> None:
    own = the_json(run("prompt", "qwen2_vl", "--images", "1", "--json", "q"))
    assert (own["engine_args"]["max_model_len"], own["mm_processor_kwargs"]) == (32768, {})
    small = the_json(run("prompt", "qwen2_vl", "--images", "1", "--preset", "vllm-example", "--json", "q"))
    assert small["engine_args"]["max_model_len"] == 4096
    assert small["mm_processor_kwargs"] == {"min_pixels": 784, "max_pixels": 1003520}


def test_a_prompt_as_json(run: Run) -> None:
    found = the_json(run("prompt", "internvl_chat", "--images", "2", "--json", "q"))
    assert (found["family"], found["model"], found["kind"]) == ("internvl_chat", "OpenGVLab/InternVL3-2B", "messages")
    assert found["messages"] == [{"role": "user", "content": "Image-1: <image>\n\nImage-2: <image>\n\nq"}]
    assert found["stop"] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|end|>"]
    assert found["engine_args"]["limit_mm_per_prompt"] == {"image": 2, "video": 0}
    assert found["engine_args"]["trust_remote_code"] is True
    text = the_json(run("prompt", "aria", "--images", "1", "--json", "q"))
    assert text["prompt"] == "<|im_start|>user\n<fim_prefix><|img|><fim_suffix>q<|im_end|>\n<|im_start|>assistant\n"
    assert text["stop_token_ids"] == [93532, 93653, 944, 93421, 1019, 93653, 93519]
    lora = the_json(run("prompt", "phi4_mm", "--images", "1", "--json", "q"))
    assert lora["lora"] == {"name": "vision", "id": 1, "path": "vision-lora"}
    assert the_json(run("prompt", "qwen3_vl", "--videos", "1", "--json", "q"))["needs_video_metadata"] is True
    ocr = the_json(run("prompt", "deepseek_ocr", "--images", "1", "--json", "q"))
    assert ocr["sampling"]["extra"]["extra_args"]["whitelist_token_ids"] == [128821, 128822]
    assert ocr["sampling"]["skip_special_tokens"] is False


def test_chat_mode_and_a_system_prompt(run: Run) -> None:
    found = the_json(run("prompt", "qwen2_vl", "--images", "1", "--mode", "chat", "--system", "S", "--json", "q"))
    assert found["kind"] == "messages"
    assert found["messages"] == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "q"}]},
    ]
    raw = the_json(run("prompt", "qwen2_vl", "--system", "S", "--json", "q"))
    assert raw["prompt"].startswith("<|im_start|>system\nS<|im_end|>\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("prompt", "llava", "--videos", "1", "q"), "does not accept videos"),
        (("prompt", "blip-2", "--images", "2", "q"), "at most 1 image"),
        (("prompt", "gemma3", "--system", "S", "q"), "does not support a system prompt"),
        (("prompt", "nothing-like-it", "q"), "Unknown model"),
        (("prompt", "llava", " "), "question is empty"),
    ],
)
def test_unsupported_media_of_a_family_are_reported(run: Run, arguments: tuple[str, ...], words: str) -> None:
    code, out, error = run(*arguments)
    assert (code, out) == (2, "")
    assert words in error


def test_ask_refuses_foreign_code_and_closed_families_before_anything_is_loaded(run: Run, closed_family: str) -> None:
    code, _, error = run("ask", "--model", "internvl_chat", "q")
    assert code == 1
    assert "--trust-remote-code" in error
    code, _, error = run("ask", "--model", closed_family, "q")
    assert code == 1
    assert "0.10.2" in error
    code, _, error = run("ask", "--engine-arg", "max_model_len", "q")
    assert code == 2
    assert "NAME=VALUE" in error


HOSTILE = "\x1b]0;pwn\x07\u202eil\x9b"


def test_nothing_hostile_reaches_the_terminal(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / f"ev{HOSTILE}"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["Qwen2VLForConditionalGeneration"]}')
    code, out, _ = run("models", "show", str(folder))
    assert code == 0 and "Qwen2-VL" in out
    assert not set(out) & set(HOSTILE) - set(ascii(HOSTILE))

    families = tmp_path / "config" / "families"
    families.mkdir(parents=True)
    text = skeleton("mine").replace('title = "mine"', f"title = {json.dumps(HOSTILE)}")
    (families / "mine.toml").write_text(text.replace("owner/mine", "o\\u202e/mine"))
    for command in (("models",), ("models", "show", "mine")):
        code, out, err = run(*command)
        assert code == 0
        assert not set(out + err) & {"\x1b", "\x07", "\u202e", "\x9b"}
    assert the_json(run("models", "show", "mine", "--json"))["title"] == HOSTILE


def test_a_name_that_is_too_long_is_reported(run: Run) -> None:
    code, _, err = run("models", "new", "x" * 300)
    assert code == 2 and "is not a valid family name" in err and len(err) < 300


def test_a_new_record_is_printed_as_json(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("models", "new", "mine", "--json")
    told = json.loads(out)
    assert code == 0 and told["family"] == "mine" and Path(told["file"]).name == "mine.toml"


def test_folders_and_files_are_private(run: Run, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert run("models", "new", "mine")[0] == 0
    finally:
        os.umask(before)
    for path in (tmp_path / "config" / "families" / "mine.toml", tmp_path / "config" / "families", tmp_path / "config"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_folders_left_open_to_others_are_closed(run: Run, tmp_path: Path) -> None:
    families = tmp_path / "config" / "families"
    families.mkdir(parents=True)
    for folder in (families, families.parent):
        folder.chmod(0o777)
    assert run("models")[0] == 0
    assert {folder.stat().st_mode & 0o777 for folder in (families, families.parent)} == {0o700}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("folder", ["", "config", "config/families", "data"])
def test_a_folder_of_another_user_is_refused(run: Run, tmp_path: Path, folder: str) -> None:
    (tmp_path / "config" / "families").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    os.chown(tmp_path / folder, 65534, 65534)
    for command in (("models",), ("conversations",), ("config", "show"), ("export", "--all", "-o", str(tmp_path))):
        code, _, err = run(*command)
        assert code == 2 and "not your own folder" in err


@pytest.mark.parametrize("content", [b"[" * 50_000, b"fifo"])
def test_unreadable_settings_are_reported(run: Run, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config" / "config.toml"
    file.parent.mkdir()
    if content == b"fifo":
        os.mkfifo(file)
    else:
        file.write_bytes(content)
    code, _, err = run("models")
    assert code == 2 and "config.toml" in err
