"""The page on vLLM's examples names families and switches that are there."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from vlmtui.cli import batch as module
from vlmtui.cli.batch import batch, fill_batch
from vlmtui.domain.engine import FITTED
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import EXAMPLE

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "seeds.md").read_text("utf-8")
OF_MODELS = PAGE[PAGE.index("## The functions of models") :]
FUNCTIONS = re.findall(r"^\| `((?:run|load)_\w+)` \| ([\d, ]+) \| (.+) \|$", OF_MODELS, re.MULTILINE)


def test_every_function_of_a_model_has_a_family() -> None:
    registry = Registry.bundled()
    families = {name for _, _, cell in FUNCTIONS for name in re.findall(r"`([^`]+)`", cell)}
    assert len(FUNCTIONS) >= 79
    assert families <= set(registry)


def test_every_switch_is_one_of_the_command() -> None:
    parser = argparse.ArgumentParser()
    fill_batch(parser)
    known = {option for action in parser._actions for option in action.option_strings}
    table = PAGE[PAGE.index("## The switches") : PAGE.index("## The functions that")]
    named = set(re.findall(r"(--[a-z][a-z-]+)", table)) - {"--image", "--prompt", "--mode", "--model"}
    assert {"--num-prompts", "--verify-mm-cache-hit-with-uuids", "--disable-mm-preprocessor-cache"} <= named
    assert named <= known


def test_every_command_of_ours_is_one() -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    fill_batch(parser)
    table = PAGE[PAGE.index("| the script's command") : PAGE.index("N is 4 where")]
    commands = [row.split("`")[3] for row in table.splitlines()[2:] if "`" in row]
    assert len(commands) >= 8
    for command in commands:
        assert parser.parse_args(["-o", "out.jsonl", *command.split()]).model is not None


def test_the_preset_is_named_once() -> None:
    assert PAGE.count(f"--preset {EXAMPLE}") == 1
    families = Registry.bundled().values()
    fitted = {family.family for family in families if family.example and family.engine_args["max_model_len"] == FITTED}
    reason = {family.family for family in families if family.thinking is not None and family.example}
    assert fitted == reason | {"exaone4_5"}


@pytest.mark.parametrize(
    ("words", "preset"),
    [(["--num-prompts", "2"], EXAMPLE), (["in.jsonl"], None), (["in.jsonl", "--preset", EXAMPLE], EXAMPLE)],
)
def test_the_scripts_items_load_with_the_scripts_arguments(
    words: list[str], preset: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str | None] = []

    def prepare(arguments: argparse.Namespace) -> None:
        given.append(arguments.preset)
        raise bad_input("enough")

    monkeypatch.setattr(module, "prepare", prepare)
    parser = argparse.ArgumentParser()
    fill_batch(parser)
    with pytest.raises(VlmtuiError, match="enough"):
        batch(parser.parse_args(["-o", "out.jsonl", "-m", "qwen2_vl", *words]))
    assert given == [preset]
