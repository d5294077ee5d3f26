"""The switches of a batch that need an engine of their own."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hosts import patient_host
from vlmtui.cli.batch import _prepared
from vlmtui.cli.parser import make_parser
from vlmtui.paths import Paths

pytestmark = [pytest.mark.engine]


@pytest.fixture
def folder(short_path: Path) -> Iterator[Path]:
    """Folders of a worker of its own, which is ended with the test."""
    yield short_path

    async def end() -> None:
        host = patient_host(Paths.below(short_path))
        for worker in await host.workers.find_all():
            await host.workers.stop(worker.endpoint)

    asyncio.run(end())


def test_disable_mm_processor_cache(folder: Path, tmp_path: Path) -> None:
    """The engine is loaded without the cache, and answers the same; by identifier nothing can be found then."""
    output = tmp_path / "out.jsonl"
    names = {name: value for name, value in os.environ.items() if not name.startswith("VLMTUI_")}
    command = [sys.executable, "-m", "vlmtui", "batch", "-o", str(output), "--num-prompts", "4", "--time-generate"]
    ran = subprocess.run(
        [*command, "--disable-mm-processor-cache", "--prompt", "What is in this image?"],
        check=False,
        env={**names, "VLMTUI_DATA_DIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    answers = [json.loads(line)["answer"] for line in output.read_text().splitlines()]
    assert answers == ["A red circle in the center."] * 4

    async def arguments() -> dict[str, object]:
        (status,) = await patient_host(Paths.below(folder)).running()
        return status.spec.engine_args

    assert asyncio.run(arguments())["mm_processor_cache_gb"] == 0


def test_tensor_parallel_size_is_the_engine_argument(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLMTUI_DATA_DIR", str(folder))
    parsed: argparse.Namespace = make_parser().parse_args(
        ["batch", "-o", "x", "--num-prompts", "1", "--tensor-parallel-size", "2"]
    )
    assert _prepared(parsed, None).model.spec.engine_args["tensor_parallel_size"] == 2
