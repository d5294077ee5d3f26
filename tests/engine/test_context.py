"""A model whose own context is smaller than its record wishes loads with its own, and says so; a context that is fitted
to the memory is the model's own, or as much of it as the KV cache holds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.asker import Asker
from tests.support.hosts import patient_host
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import FITTED, EngineReady, read_backend
from vlmtui.paths import Paths, bundled_model
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve, with_engine_args

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.mark.parametrize("backend", ["vllm", "transformers"])
async def test_a_model_with_a_smaller_context_loads_with_its_own(short_path: Path, backend: str) -> None:
    folder = short_path / "small"
    shutil.copytree(bundled_model(), folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = 512
    (folder / "config.json").write_text(json.dumps(config))
    model = resolve(Registry.bundled(), str(folder), read_backend(backend))
    assert model.spec.engine_args["max_model_len"] == 4096
    host = patient_host(Paths.below(short_path))
    client = await host.open(model.spec, client="tests", keep_alive_s=0)
    ready = [event async for event in client.load()][-1]
    assert isinstance(ready, EngineReady), ready
    assert ready.info.max_model_len == 512
    assert ready.info.notes == ("The model's own context is 512 tokens; 4,096 were asked for.",)
    assert (await Asker(client, model)(user_turn("Hello"))).text
    await client.shutdown()


@pytest.mark.parametrize(
    ("backend", "blocks", "own"), [("vllm", None, True), ("vllm", 9, False), ("transformers", None, True)]
)
async def test_a_fitted_context(short_path: Path, backend: str, blocks: int | None, own: bool) -> None:
    given = [f"max_model_len={FITTED}"] + ([f"num_gpu_blocks_override={blocks}"] if blocks else [])
    model = with_engine_args(resolve(Registry.bundled(), "shapes", read_backend(backend)), given)
    context = json.loads((bundled_model() / "config.json").read_text())["text_config"]["max_position_embeddings"]
    host = patient_host(Paths.below(short_path))
    client = await host.open(model.spec, client="tests", keep_alive_s=0)
    ready = [event async for event in client.load()][-1]
    assert isinstance(ready, EngineReady), ready
    assert ready.info.max_model_len == context if own else 100 < ready.info.max_model_len < context
    assert (await Asker(client, model)(user_turn("Hello"))).text
    await client.shutdown()
