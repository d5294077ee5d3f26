"""Tiny models of families of different kinds, in the real engines, from their own records.

`make zoo` runs all of them. Here: prompts that the record, the tokenizer and the processor write; placeholders that the
engine puts in by itself, and behind the text; video with and without metadata; sound; a configuration of the
repository's own; a family under a sister architecture, and one on vLLM's Transformers backend; those that run in
Transformers itself, and those for which vlmtui brings a class.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vlmtui.worker
from tests.zoo.controls import CONTROLS
from tests.zoo.kit import load_recipes
from tests.zoo.trial import MATTERING, MODES, Results, cases
from vlmtui.domain.engine import DEFAULT_BACKEND
from vlmtui.registry.loader import Registry
from vlmtui.registry.routes import choice_of

FAMILIES = (
    "aya_vision", "blip-2", "gemma3", "glm4_1v", "idefics3", "internvl_chat", "llava-onevision", "lfm2_vl", "mantis",
    "phi4_mm", "pixtral_hf", "qwen2_5_omni", "qwen2_5_vl",
    "chameleon", "florence2", "fuyu", "mllama", "phi4_multimodal",  # in Transformers
    "interns1_pro", "openpangu_vl", "tarsier", "tarsier2",  # by classes of vlmtui
)  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Results]]:
    """The runner's results, by family."""
    folder = tmp_path_factory.mktemp("zoo")
    site = Path(vlmtui.worker.__file__).parent / "site"
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.zoo", *FAMILIES, "--keep", str(folder), "--json", str(folder / "all.json")]
    done = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert (folder / "all.json").exists(), done.stdout[-2000:] + done.stderr[-2000:]
    yield json.loads((folder / "all.json").read_text())


def has_adapters(name: str) -> bool:
    """Return whether the tiny model has adapters of its own."""
    return load_recipes()[name].lora and bool(Registry.bundled()[name].loras)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.timeout(1600)
def test_the_family_answers_every_case_in_both_modes(results: dict[str, Results], name: str) -> None:
    shown = cases(load_recipes()[name], Registry.bundled()[name])
    wanted = {"load", *(f"{case} {what}" for case in shown for what in (*MODES, "difference"))}
    if choice_of(Registry.bundled()[name].routes[0]).backend == DEFAULT_BACKEND:  # only vLLM's tensors are compared
        wanted |= {"image seen"} & {f"{case} seen" for case in shown}
    wanted |= {f"{case} matters" for case in shown if case in MATTERING}
    wanted |= {f"{shown[0]} {control}" for control in CONTROLS}
    if has_adapters(name):
        wanted |= {f"{case} adapter" for case in shown}
    wanted |= {"audio heard"} & {f"{case} heard" for case in shown}
    assert set(results[name]) == wanted
    assert {case: text for case, text in results[name].items() if not text.startswith("ok")} == {}


def test_a_record_checked_by_engine_has_a_model_in_the_zoo() -> None:
    recipes = load_recipes()
    checked = [family.family for family in Registry.bundled().values() if family.checked == "engine"]
    assert set(checked) <= set(recipes)
