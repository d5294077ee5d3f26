"""The chat templates of all tiny models are sound, with the exceptions that have a reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import vlmtui.worker
from tests.zoo.kit import load_recipes

_NO_BOS = "the model's own template writes no BOS, and vLLM adds none to a chat prompt: a fault upstream"
_FIRST = "the model's own template writes pictures before the text, wherever they stand: a fault upstream"
_EXAMPLE = "the record's raw prompt is that of vLLM's example, which differs from the model's own template"
_TEMPLATE = "the template that the tiny model was given; whether the published one does the same was not looked at"
_TINY = "the tiny model's generation config does not name the token"
_MISTRAL = "Mistral's format has no Jinja template, and Transformers does not load its tokenizer"
EXCEPTIONS: dict[str, dict[str, str]] = {
    "aria": {"stop_missing": _TINY},
    "ernie45_vl": {"stop_missing": _TINY, "record_differs": _EXAMPLE},
    "gemma4": {"stop_missing": _TINY},
    "gemma4_e": {"stop_missing": _TINY},
    "gemma4_unified": {"stop_missing": _TINY},
    "kimi_k25": {"stop_missing": _TINY, "record_differs": _EXAMPLE},
    "kimi_vl": {"stop_missing": _TINY, "record_differs": _EXAMPLE},
    "minimax_m3": {"stop_missing": _TINY},
    "phi4_mm": {"stop_missing": _TINY},
    "granite_vision": {"turn_not_closed": _TEMPLATE},
    "hyperclovax_seed_vision": {"placeholder_missing": _TEMPLATE},
    "tarsier": {"bos_missing": _NO_BOS, "placeholder_moved": _FIRST, "white_space": _EXAMPLE},
    "molmo": {
        "turn_not_closed": "Molmo's own template closes no turn: a fault upstream",
        "record_differs": _EXAMPLE,
    },
    "llava": {"bos_missing": _NO_BOS, "placeholder_moved": _FIRST, "white_space": _EXAMPLE},
    "llava-next": {"bos_missing": _NO_BOS, "placeholder_moved": _FIRST, "white_space": _EXAMPLE},
    "llava-next-video": {"bos_missing": _NO_BOS},
    "llava-onevision": {"placeholder_moved": _FIRST, "white_space": _EXAMPLE},
    "paddleocr_vl": {"placeholder_moved": _FIRST},
    "phi3_v": {"bos_missing": _NO_BOS},
    "pixtral": {"no_template": _MISTRAL, "tokenizer_broken": _MISTRAL},
    "molmo2": {
        "placeholder_moved": "Molmo2's template writes all pictures at the front, those of later turns too",
        "prefix_changes": "for the same reason: the beginning changes with each further picture",
    },
    **{
        name: {"record_differs": _EXAMPLE}
        for name in (
            "bee", "command_a_vision", "dots_ocr", "glm4_1v", "glm4_5v", "glm4v", "glm_ocr", "qwen3_5",
            "qwen3_5_moe", "stepvl",
        )
    },
    **{name: {"white_space": _EXAMPLE} for name in ("bagel", "rvl", "step3")},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_lint_finds_no_fault_in_the_tiny_models(tmp_path: Path) -> None:
    site = Path(vlmtui.worker.__file__).parent / "site"
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    file = tmp_path / "kinds.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.zoo.lint_trial", str(tmp_path / "models"), str(file)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert file.exists(), done.stderr[-2000:]
    found: dict[str, list[str]] = json.loads(file.read_text())
    assert found.keys() == load_recipes().keys()
    assert {name: kinds for name, kinds in found.items() if kinds} == {
        name: sorted(reasons) for name, reasons in EXCEPTIONS.items()
    }
