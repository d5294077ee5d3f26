"""`vlmtui check` with real engines: the bundled model is alike in both and sees, and broken copies are named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from vlmtui.paths import bundled

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
STAGES = ["prompt text", "token ids", "image tokens", "pixels", "log-probabilities", "answer"]
THREE = ("--case", "text", "--case", "image", "--case", "images")


@pytest.fixture
def vlmtui(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path / "home", monkeypatch, capsys)


def test_the_bundled_model_computes_the_same_in_both_engines(vlmtui: CommandLine) -> None:
    ran = vlmtui("check", "--on", "transformers:shapes", "--on", "shapes", *THREE, "--json")
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert [one["fingerprint"]["engine"] for one in report["engines"]] == ["Transformers", "vLLM"]
    assert [one["case"] for one in report["results"]] == ["text chat", "image chat", "images chat"]
    for case in report["results"]:
        assert [one["stage"] for one in case["stages"]] == STAGES
        assert {one["outcome"] for one in case["stages"]} == {"same"}
    assert "3 compared: 3 the same, 0 differ, 0 failed." in ran.err


def test_a_processor_with_mean_and_deviation_swapped_is_named(vlmtui: CommandLine, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundled("shapes"), copy)
    files = [one for one in copy.glob("*processor_config.json") if "image_mean" in one.read_text()]
    assert files
    for file in files:
        settings = json.loads(file.read_text())
        own = settings.get("image_processor", settings)
        own["image_mean"], own["image_std"] = own["image_std"], own["image_mean"]
        file.write_text(json.dumps(settings))
    ran = vlmtui("check", "--on", "transformers:shapes", "--on", str(copy), "--case", "image", "--json")
    assert ran.code == 1, ran.err
    (result,) = json.loads(ran.out)["results"]
    assert result["first_difference"] == "pixels"
    (found,) = [one for one in result["stages"] if one["stage"] == "pixels"]
    assert found["step"] == "normalisation" and found["largest"] > 0.5


def test_the_bundled_model_sees(vlmtui: CommandLine, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ran = vlmtui("check", "--on", "shapes", "--html", str(page))
    assert ran.code == 0, ran.out + ran.err
    assert "It sees." in ran.out and "shapes: uses the images in 8 of 8 items" in ran.out
    rows = [row.split() for row in ran.out.splitlines()]
    for row in (["448×448", "36", "36", "right"], ["8000×8000", "36", "36", "right"], ["1×2000", "?", "?", "refused"]):
        assert row in rows
    assert "Images of difficult sizes" in page.read_text(encoding="utf-8")


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
    ran = vlmtui("check", "--on", str(copy), "--case", "text", "--json")
    assert ran.code == 1, ran.out
    assert json.loads(ran.out)["sees"] is False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Nothing to check"),
        (("--on", "shapes", "--image", "a.png"), "--image needs --question"),
        (("--on", "shapes", "--case", "nothing"), "has no conversation"),
        (("--on", "shapes", "--on", "shapes"), "must all be different"),
        (("--on", "shapes", "--set", "warmth=1"), "warmth"),
        (("record", "x"), "needs a folder and a model"),
    ],
)
def test_bad_usage_exits_with_2(vlmtui: CommandLine, words: tuple[str, ...], said: str) -> None:
    ran = vlmtui("check", *words)
    assert (ran.code, ran.out) == (2, "") and said in ran.err
