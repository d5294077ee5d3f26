"""Sounds on the real engine: a tiny model of Qwen2.5-Omni's architecture in `ask`, `batch` and plain mode."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

import vlmtui.worker
from tests.support.batch_command import BatchCommand
from tests.support.hosts import patient_host
from tests.support.sounds import write_tone, write_with_pictures
from tests.support.terminal import search_paths
from vlmtui.paths import Paths, sample_image

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900), pytest.mark.xdist_group("hearing")]

ROOT = Path(__file__).parents[2]
RECORD = """\
family = "tiny_omni"
title = "Tiny Omni"
extends = "qwen2_5_omni"
models = ["{folder}"]
patterns = []
parameters_b = 0.001

[engine_args]
load_format = "dummy"
dtype = "float32"
max_model_len = 2048
max_num_seqs = 2
seed = 0
"""
TOKENS_A_SECOND = 25


@pytest.fixture(scope="module")
def home() -> Iterator[Paths]:
    """Folders with a tiny model that hears, as a record of the user's own; its worker ends with the module."""
    with tempfile.TemporaryDirectory(prefix="vlmtui-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        paths, model = Paths.below(Path(folder)), Path(folder) / "model"
        site = Path(vlmtui.worker.__file__).parent / "site"
        make = f"from tests.zoo.kit import make_checkpoint, Path; make_checkpoint('qwen2_5_omni', Path({str(model)!r}))"
        path = os.pathsep.join((str(site), str(ROOT / "src"), str(ROOT)))
        subprocess.run([sys.executable, "-c", make], env=os.environ | {"PYTHONPATH": path}, check=True)
        records = paths.config / "families"
        records.mkdir(parents=True)
        (records / "tiny_omni.toml").write_text(RECORD.format(folder=model))
        yield paths
        asyncio.run(_end(paths))


async def _end(paths: Paths) -> None:
    host = patient_host(paths)
    for worker in await host.find_all():
        await host.stop(worker.endpoint)


@pytest.fixture
def sounds(tmp_path: Path) -> dict[str, Path]:
    """Sounds of one and two seconds, and a video of one with an audio track."""
    return {
        "short": write_tone(tmp_path / "short.wav", 1.0),
        "long": write_tone(tmp_path / "long.wav", 2.0),
        "clip": write_with_pictures(tmp_path / "clip.mp4", 1.0),
    }


@pytest.mark.parametrize("mode", ["chat", "raw"])
def test_a_batch_hears(home: Paths, tmp_path: Path, sounds: dict[str, Path], mode: str) -> None:
    batch = BatchCommand(tmp_path, home)
    items = [
        {"id": "short", "audios": ["short.wav"], "prompt": "What is it?"},
        {"id": "long", "audios": ["long.wav"], "prompt": "What is it?"},
        {"id": "track", "audios": ["clip.mp4"], "prompt": "What is it?"},
        {"id": "both", "audios": ["short.wav", "long.wav"], "images": [str(sample_image())], "prompt": "Which?"},
        {"id": "broken", "audios": ["in.jsonl"], "prompt": "What is it?"},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    summary = batch("in.jsonl", "-m", "tiny_omni", "--mode", mode, "--max-tokens", "3", "--include-prompt", code=1)
    assert (summary["answered"], summary["failed"]) == (4, 1)
    found = {line["id"]: line for line in batch.lines()}
    assert "in.jsonl" in json.dumps(found["broken"]["error"])
    heard = {name: line["usage"]["audio_tokens"] for name, line in found.items() if name != "broken"}
    a = TOKENS_A_SECOND
    assert heard["short"] == a and heard["long"] == 2 * a and heard["both"] == 3 * a
    assert abs(heard["track"] - a) <= 1, "a coded track is some milliseconds longer"
    assert found["both"]["usage"]["image_tokens"] > 0
    for name, count in heard.items():
        assert found[name]["prompt"].count("<|AUDIO|>") == count
        assert "<|audio_bos|><|AUDIO|>" in found[name]["prompt"] and "<|im_start|>user" in found[name]["prompt"]
    assert batch("in.jsonl", "-m", "tiny_omni", "--mode", mode, "--max-tokens", "3", code=1)["answered_before"] == 4


def test_ask_hears_in_both_modes(home: Paths, tmp_path: Path, sounds: dict[str, Path]) -> None:
    names = {name: value for name, value in os.environ.items() if not name.startswith("VLMTUI_")}
    environment = {**names, "VLMTUI_DATA_DIR": str(home.data.parent)}
    command = [
        sys.executable,
        "-m",
        "vlmtui",
        "ask",
        "What is it?",
        "--model",
        "tiny_omni",
        "--audio",
        str(sounds["short"]),
    ]
    command += ["--mode", "both", "--json", "--max-tokens", "3"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert [found[mode]["usage"]["audio_tokens"] for mode in ("chat", "raw")] == [TOKENS_A_SECOND] * 2
    assert found["diff"]["prompts_identical"] is True


def test_plain_mode_hears(home: Paths, tmp_path: Path, sounds: dict[str, Path]) -> None:
    env = {"HOME": str(tmp_path), **search_paths(), "TERM": "dumb", "LANG": "C.UTF-8"}
    env["VLMTUI_DATA_DIR"] = str(home.data.parent)
    command = ["-m", "vlmtui", "--model", "tiny_omni"]
    process: pexpect.spawn[bytes] = pexpect.spawn(
        sys.executable, command, env=env, cwd=str(tmp_path), timeout=300, dimensions=(24, 80)
    )
    process.delaybeforesend = None

    def say(line: str, *texts: str) -> None:
        process.send(line.encode() + b"\r")
        for text in texts:
            process.expect_exact(text.encode())

    try:
        process.expect_exact(b"model is ready: vLLM")
        process.expect_exact(b"\r\n> ")
        say("/attach long.wav", "long.wav, 2.0 s", "[Audio #1]> ")
        say("/attach clip.mp4", "[Audio #1][Video #2]> ")
        say("/attach clip.mp4#sound", "48 kHz", "[Audio #1][Video #2][Audio #3]> ")
        say("/detach 2", "Removed [Video #2]", "[Audio #1][Audio #2]> ")
        say("/set max_tokens 3", "[Audio #1][Audio #2]> ")
        say("what is it?", "audio)", "\r\n> ")
        say("/quit")
        process.expect(pexpect.EOF)
        process.close()
        assert process.exitstatus == 0
    finally:
        process.close(force=True)
