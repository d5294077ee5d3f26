"""The same tiny weights in vLLM, in vlmtui's own classes, and in Transformers: the same tokens and log-probabilities.

`python -m tests.zoo.parity` compares more families.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vlmtui.worker


def run(module: str, *arguments: str) -> str:
    site = Path(vlmtui.worker.__file__).parent / "site"
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.timeout(1300)
def test_own_classes_equal_transformers(tmp_path: Path) -> None:
    """Tarsier's row ends, and the names of Tarsier2's weights."""
    said = run("tests.zoo.own_classes", "tarsier", "tarsier2", "--keep", str(tmp_path))
    assert len(re.findall(r"\bok\b", said)) == 2


@pytest.mark.timeout(1300)
def test_families_give_the_same_tokens_in_both_engines(tmp_path: Path) -> None:
    said = run("tests.zoo.parity", "qwen2_5_vl", "llava", "idefics3", "--keep", str(tmp_path))
    assert "3 of 3 families alike" in said


@pytest.mark.timeout(1300)
def test_planted_faults_are_found_at_their_stage(tmp_path: Path) -> None:
    assert "7 of 7 faults named at their stage" in run("tests.zoo.faults", "--keep", str(tmp_path))


@pytest.mark.timeout(600)
def test_llama_vision_gives_the_numbers_of_transformers_4(tmp_path: Path) -> None:
    said = run("tests.zoo.mllama_numbers", "--keep", str(tmp_path))
    assert "ok" in said
