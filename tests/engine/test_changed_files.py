"""A model whose files change under its living engine: real vLLM never answers with the earlier ones unnoticed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from vlmtui.paths import bundled

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

QUESTION = "What is in this image?"
ANSWER = "A red circle in the center."


@pytest.fixture
def vlmtui(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    monkeypatch.setenv("VLMTUI_DATA_DIR", str(short_path / "home"))
    vlmtui = CommandLine(short_path / "home", monkeypatch, capsys)
    yield vlmtui
    vlmtui("stop", "--all")


def test_a_checkpoint_and_a_template_are_replaced(vlmtui: CommandLine, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    model, picture = tmp_path / "mine", str(bundled("samples") / "circle.png")
    shutil.copytree(bundled("shapes"), model)
    output = tmp_path / "out.jsonl"
    ask = ("ask", QUESTION, "--image", picture, "--model", str(model), "--max-tokens", "8", "--keep-alive", "forever")
    given = ("--image", picture, "--prompt", QUESTION, "--model", str(model), "--set", "max_tokens=8")
    batch = ("batch", *given, "--include-prompt", "-o", str(output))

    def lines() -> list[dict[str, str]]:
        return [json.loads(line) for line in output.read_text().splitlines()]

    assert vlmtui(*ask).out.strip() == ANSWER
    assert vlmtui(*batch).code == 0
    assert [line["answer"] for line in lines()] == [ANSWER]
    shutil.copytree(bundled("shapes"), model, dirs_exist_ok=True)
    assert vlmtui.json(*batch)["answered_before"] == 1

    weights = load_file(model / "model.safetensors")
    save_file({name: torch.zeros_like(one) for name, one in weights.items()}, model / "model.safetensors")
    refused = vlmtui(*batch)
    assert refused.code == 1
    assert "since it was loaded: model.safetensors.\n" in refused.err and "--reload" in refused.err
    assert [line["answer"] for line in lines()] == [ANSWER]
    again = vlmtui(*ask)
    assert again.code == 0 and again.out.strip() != ANSWER
    assert "since it was loaded: model.safetensors. It is loaded again." in again.err
    assert vlmtui.json(*batch)["changed"] == 1
    assert [line["answer"].strip() for line in lines()] == [again.out.strip()]

    template = model / "chat_template.jinja"
    template.write_text("A new beginning. " + template.read_text())
    assert vlmtui(*batch).code == 1
    assert vlmtui.json(*batch, "--reload")["changed"] == 1
    assert [line["prompt"].startswith("A new beginning.") for line in lines()] == [True]
    assert [one["keep_alive_s"] for one in vlmtui.json("ps")] == [None]
