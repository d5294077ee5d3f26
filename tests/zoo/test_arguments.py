"""Arguments of the processor change how many tokens images take, in the real engine; `python -m tests.zoo.arguments`
tries more families."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import vlmtui.worker
from tests.zoo.arguments import SETTINGS
from tests.zoo.kit import load_recipes
from vlmtui.registry.loader import Registry

FAMILIES = (
    "qwen2_vl", "internvl_chat", "gemma3", "idefics3", "phi4_mm", "NVLM_D", "lfm2_vl",
)  # fmt: skip


@pytest.mark.timeout(1600)
def test_arguments_change_the_tokens_of_images(tmp_path: Path) -> None:
    site = Path(vlmtui.worker.__file__).parent / "site"
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    file = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.zoo.arguments", *FAMILIES, "--keep", str(tmp_path / "zoo"), "--json", str(file)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    found = json.loads(file.read_text())
    assert found.keys() == set(FAMILIES)
    for name, results in found.items():
        settings = {f"{setting} {mode}" for setting, _, _ in SETTINGS[name] for mode in ("chat", "raw")}
        assert settings <= results.keys()
    # The record's own argument for several images: of a picture of five tiles, and its thumbnail.
    assert found["internvl_chat"]["several chat"].startswith("ok [20, 20] as [20], not [24]")


def test_each_setting_is_an_argument_of_its_record() -> None:
    for name, settings in SETTINGS.items():
        assert name in load_recipes()
        for setting, base, _ in settings:
            assert {one.partition("=")[0] for one in (setting, base) if one} <= Registry.bundled()[
                name
            ].processor.keys()
