"""`vlmtui doctor --model`: the bundled model sees, and does not with shuffled vision weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from vlmtui.paths import bundled

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture
def vlmtui(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path / "home", monkeypatch, capsys)


def test_the_bundled_model_sees(vlmtui: CommandLine) -> None:
    ran = vlmtui("doctor", "--model", "shapes", "--json")
    report = json.loads(ran.out)
    assert report["sees"] and report["ok"], report
    assert ran.code == 0 and "This checkpoint sees." in ran.err
    outcomes = {one["skill"]: one["outcome"] for one in report["results"]}
    assert (outcomes["what"], outcomes["read"]) == ("right", "not trained")


def test_shuffled_vision_weights_do_not_see(vlmtui: CommandLine, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    copy = tmp_path / "copy"
    shutil.copytree(bundled("shapes"), copy)
    tensors = load_file(copy / "model.safetensors")
    name = next(one for one in tensors if one.endswith("patch_embed.proj.weight"))
    order = torch.randperm(tensors[name].numel(), generator=torch.Generator().manual_seed(0))
    tensors[name] = tensors[name].flatten()[order].reshape(tensors[name].shape).contiguous()
    save_file(tensors, copy / "model.safetensors", {"format": "pt"})
    ran = vlmtui("doctor", "--model", str(copy), "--json")
    assert ran.code == 1, ran.out
    assert json.loads(ran.out)["sees"] is False and "does not see" in ran.err
