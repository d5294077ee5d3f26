"""Models that can't be read: lint and check say why in their own words, and none hangs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.command_line import CommandLine
from tests.zoo.kit import write_tokenizer
from tests.zoo.templates import chatml

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]
CONFIG = {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl"}
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>"]
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
GROWS = "{% set ns = namespace(s='aa') %}{% for a in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}"
HUGE = "{{ messages[0]['content'] }}{{ 'x' * 5000000 }}"
LONGEST_S = 300


def checkpoint(folder: Path, template: str | None = None) -> Path:
    """A checkpoint without weights; with the family's own template unless another is given, or none (empty)."""
    own = chatml(IMAGE, IMAGE.replace("image", "video"))
    write_tokenizer(folder, SPECIAL, eos="<|im_end|>", chat_template=(own if template is None else template) or None)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def without_tokenizer(folder: Path) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return str(folder)


def broken_tokenizer(folder: Path) -> str:
    (checkpoint(folder) / "tokenizer.json").write_text("{")
    return str(folder)


def own_code(folder: Path) -> str:
    file = checkpoint(folder) / "tokenizer_config.json"
    named = {"auto_map": {"AutoTokenizer": [None, "own.Own"]}, "tokenizer_class": "Own"}
    file.write_text(json.dumps(json.loads(file.read_text()) | named))
    (folder / "own.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\nraise SystemExit\n")
    return str(folder)


def foreign_config(folder: Path) -> str:
    folder.mkdir()
    (folder / "config.json").write_text('["not", "a", "config"]')
    return str(folder)


def with_template(template: str) -> Callable[[Path], str]:
    return lambda folder: str(checkpoint(folder, template))


class Bad(NamedTuple):
    """A model that can't be read, and what each command says of it."""

    make: Callable[[Path], str]
    """Makes it in a folder; returns its name."""
    lint: tuple[int, str]
    """Exit code, and words of what is printed."""
    golden: str
    """Words; empty: it is recorded, with the template that vLLM has for such a model."""


TABLE = {
    "no tokenizer": Bad(without_tokenizer, (1, "no_tokenizer"), "tokenizer"),
    "broken tokenizer": Bad(broken_tokenizer, (1, "tokenizer.json is cut off"), "tokenizer"),
    "no template": Bad(with_template(""), (1, "no_template"), ""),
    "a template without end": Bad(with_template(LOOPS), (1, "template_endless"), "template"),
    "a template that grows for ever": Bad(with_template(GROWS), (1, "template_"), "template"),
    "a template that writes too much": Bad(with_template(HUGE), (1, "template_too_big"), "template"),
    "a template that is none": Bad(with_template("{% for %}"), (1, "template_syntax"), "template"),
    "code that is not allowed": Bad(own_code, (1, "code_needed"), "code"),
    "a repository that is not here": Bad(lambda folder: "no/such-model", (2, "no/such-model"), "no/such"),
    "a gated repository": Bad(lambda folder: "gemma3", (0, "not downloaded"), "is not downloaded"),
    "a folder without a model": Bad(lambda folder: str(folder.parent), (2, "config.json"), "config.json"),
    "a configuration that is none": Bad(foreign_config, (2, "config.json"), "config.json"),
}


@pytest.fixture
def vlmtui(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return CommandLine(tmp_path / "home", monkeypatch, capsys)


@pytest.mark.parametrize("command", ["lint", "check"])
@pytest.mark.parametrize("name", TABLE)
def test_an_unreadable_model_is_reported(vlmtui: CommandLine, tmp_path: Path, name: str, command: str) -> None:
    bad, began = TABLE[name], time.monotonic()
    model = bad.make(tmp_path / "model")
    arguments = {"check": ("check", "record", str(tmp_path / "out"), "--model", model, "--case", "text")}
    ran = vlmtui(*arguments.get(command, (command, model)))
    said = ran.out + ran.err
    wanted = {"lint": bad.lint, "check": (2 if bad.golden else 0, bad.golden)}
    code, words = wanted[command]
    assert (ran.code, words in said) == (code, True), said
    assert "Traceback" not in said
    assert time.monotonic() - began < LONGEST_S
    assert not (tmp_path / "model" / "ran").exists()
    assert vlmtui.workers == []
