"""Faults planted between `vlmtui check` and a real `vllm serve`: each is named at its stage, and a sound server is the
same every time."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.support.faulty_proxy import FAULTS, FaultyProxy, proxy
from tests.support.vllm_server import VllmServer, free_port
from vlmtui.domain.engine import LoadSpec
from vlmtui.engine.interface import Engine
from vlmtui.engine.local.client import WorkerClient
from vlmtui.inspection.stages import CheckedSide, Stage
from vlmtui.paths import Paths
from vlmtui.registry.match import Model
from vlmtui.session.check.cases import CheckCase, built_in_cases
from vlmtui.session.check.run import CheckResult, run_cases
from vlmtui.session.check.sides import sides_by_engine
from vlmtui.worker.backends.remote.engine import connect_to_server

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]
SOUND_RUNS = int(os.environ.get("VLMTUI_TEST_SOUND_RUNS", "3"))
"""How often a sound server is checked."""
CASES = ("text", "image", "images")
STAGES = {
    "a template with a system message": {Stage.TEXT, Stage.TOKENS},
    "a template without its generation prompt": {Stage.TEXT, Stage.TOKENS},
    "pictures dropped": {Stage.TEXT, Stage.TOKENS, Stage.PLACES},
    "two pictures swapped": {Stage.PLACES},
    "pictures of half the size": {Stage.PLACES},
    "red and blue exchanged": {Stage.LOGPROBS},
    "another normalisation": {Stage.LOGPROBS},
    "another end of the answer": {Stage.ANSWER},
    "a placeholder one short": {Stage.PLACES},
    "noise on the logits": {Stage.LOGPROBS},
}
"""The stages that may be named first. A server that tells its prompt's text names the text."""


async def checked(
    server: FaultyProxy, base: list[CheckedSide], cases: list[CheckCase], folder: Path
) -> list[CheckResult]:
    """Return the comparisons of a server's results with the base's."""
    given: dict[str, object] = {"url": server.url, "wait_s": 600}
    spec = LoadSpec(model="shapes", name="shapes", backend="remote", engine_args=given, typed=tuple(given))
    engine = await connect_to_server(spec, lambda step: None)

    async def of_base(_cases: object, _answers: object) -> AsyncIterator[CheckedSide]:
        for side in base:
            yield side

    async def of_server(cases: Sequence[CheckCase], answers: Sequence[tuple[int, ...]]) -> AsyncIterator[CheckedSide]:
        for side in await sides_by_engine(cast(Engine, engine), cases, folder, answers):
            yield side

    found: list[CheckResult] = []
    try:
        await run_cases(cases, {"here": of_base, "server": of_server}, found)
    finally:
        await engine.shutdown()
    return found


async def test_each_fault_is_named_at_its_stage_and_a_sound_server_has_none(
    engine: WorkerClient, shapes: Model, engine_paths: Paths, tmp_path: Path
) -> None:
    cases = built_in_cases(shapes, CASES, ("chat",), engine_paths.media)
    base = await sides_by_engine(engine, cases, tmp_path / "base")
    config = json.loads((Path(shapes.spec.model) / "config.json").read_text())
    with tempfile.TemporaryDirectory(prefix="vlmtui-", dir="/tmp") as folder:
        port = free_port()
        vllm = VllmServer(shapes.spec.model, Path(folder), ["--port", str(port), "--trust-request-mm-kwargs"])
        try:
            vllm.wait_until_ready(f"http://127.0.0.1:{port}")
            with proxy(port, config["image_token_id"]) as server:
                for _ in range(SOUND_RUNS):
                    found = await checked(server, base, cases, tmp_path / "sound")
                    assert [(one.case, one.first, one.error) for one in found if one.first or one.error] == []
                named = {}
                for fault in FAULTS:
                    server.fault = fault
                    results = await checked(server, base, cases, tmp_path / "faulty")
                    parted = [one.first for one in results if one.first is not None]
                    first = min(parted, key=lambda one: list(Stage).index(one.stage), default=None)
                    errors = "; ".join(one.error for one in results)
                    named[fault] = (first.stage, first.message) if first is not None else (None, errors)
                    print(fault, *named[fault])
        finally:
            vllm.end()
    assert set(named) == set(STAGES)
    assert {fault: found for fault, found in named.items() if found[0] not in STAGES[fault]} == {}
