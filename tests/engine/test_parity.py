"""`vlmtui parity` with both real engines: the bundled model is alike, and a broken copy is named at its stage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from vlmtui.paths import bundled

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
STAGES = ["prompt text", "token ids", "image tokens", "pixels", "next token", "answer"]


@pytest.fixture
def vlmtui(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path / "home", monkeypatch, capsys)


def test_the_bundled_model_computes_the_same_in_both_engines(vlmtui: CommandLine) -> None:
    ran = vlmtui("parity", "shapes", "--json")
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
    ran = vlmtui("parity", str(copy), "--reference", "shapes", "--case", "image", "--json")
    assert ran.code == 1, ran.err
    (result,) = json.loads(ran.out)["results"]
    assert result["first_difference"] == "pixels"
    (found,) = [one for one in result["stages"] if one["stage"] == "pixels"]
    assert found["step"] == "normalisation" and found["largest"] > 0.5


@pytest.mark.parametrize(
    "words", [["--image", "a.png"], ["--tolerance", "-1"], ["--max-tokens", "0"], ["--case", "nothing"]]
)
def test_incompatible_options_exit_with_2(vlmtui: CommandLine, words: list[str]) -> None:
    ran = vlmtui("parity", "shapes", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("vlmtui: ")


def test_a_transformers_model_has_no_second_engine(vlmtui: CommandLine) -> None:
    ran = vlmtui("parity", "chameleon")
    assert ran.code == 2
    assert "runs in Transformers itself" in ran.err
