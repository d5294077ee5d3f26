"""The switches of a batch that need an engine of their own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hosts import patient_host
from vlmtui.paths import Paths

pytestmark = [pytest.mark.engine]


@pytest.fixture
def folder(short_path: Path) -> Iterator[Path]:
    """Folders of a worker of its own, which is ended with the test."""
    yield short_path

    async def end() -> None:
        host = patient_host(Paths.below(short_path))
        for worker in await host.find_all():
            await host.stop(worker.endpoint)

    asyncio.run(end())


def run_apart(folder: Path, output: Path, *arguments: str) -> list[str]:
    """Run the command with data folders and a worker of its own. Return the answers."""
    names = {name: value for name, value in os.environ.items() if not name.startswith("VLMTUI_")}
    ran = subprocess.run(
        [sys.executable, "-m", "vlmtui", "batch", "-o", str(output), *arguments],
        check=False,
        env={**names, "VLMTUI_DATA_DIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line)["answer"] for line in output.read_text().splitlines()]


def engine_arguments_of(folder: Path) -> dict[str, object]:
    """Return what the worker in this folder was asked to load with."""

    async def arguments() -> dict[str, object]:
        (status,) = await patient_host(Paths.below(folder)).running()
        return status.spec.engine_args

    return asyncio.run(arguments())


def test_disable_mm_processor_cache(folder: Path, tmp_path: Path) -> None:
    """The engine is loaded without the cache, and answers the same."""
    switches = ("--disable-mm-processor-cache", "--time-generate", "--prompt", "What is in this image?")
    answers = run_apart(folder, tmp_path / "out.jsonl", "--num-prompts", "4", *switches)
    assert answers == ["A red circle in the center."] * 4
    assert engine_arguments_of(folder)["mm_processor_cache_gb"] == 0


def test_tensor_parallel_size(folder: Path, tmp_path: Path) -> None:
    """The engine is loaded with it. A CPU computes as one all the same, as records ask for several GPUs, too."""
    switches = ("--tensor-parallel-size", "2", "--prompt", "What is in this image?")
    answers = run_apart(folder, tmp_path / "out.jsonl", "--num-prompts", "2", *switches)
    assert answers == ["A red circle in the center."] * 2
    assert engine_arguments_of(folder)["tensor_parallel_size"] == 2
