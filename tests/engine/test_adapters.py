"""LoRA adapters of single requests in real vLLM and in Transformers: what they change, and that both do it alike."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from tests.support.adapters import write_adapter
from tests.support.asker import Asker
from tests.support.command_line import CommandLine
from tests.support.hosts import patient_host
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import BackendChoice, EngineReady
from vlmtui.domain.generation import Failed
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.engine.local.client import WorkerClient
from vlmtui.media.stage import stage
from vlmtui.paths import Paths, bundled
from vlmtui.registry.match import Model, with_backend
from vlmtui.session.fan_out import FanOut, parse_plan, verdict
from vlmtui.session.generation import make_request

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("adapters")]


@pytest.fixture
async def able(short_path: Path, shapes: Model) -> AsyncIterator[tuple[WorkerClient, Model]]:
    """A worker of its own with the bundled model, loaded so that it takes adapters."""
    arguments = {**shapes.spec.engine_args, "enable_lora": True, "max_lora_rank": 8, "max_loras": 2}
    model = msgspec.structs.replace(shapes, spec=msgspec.structs.replace(shapes.spec, engine_args=arguments))
    host = patient_host(Paths.below(short_path))
    client = await host.open(model.spec, client="tests", keep_alive_s=None)
    events = [event async for event in client.load()]
    assert isinstance(events[-1], EngineReady), events[-1]
    yield client, model
    await client.close()
    for worker in await host.find_all():
        await host.stop(worker.endpoint)


@pytest.fixture
async def in_transformers(short_path: Path, shapes: Model) -> AsyncIterator[tuple[WorkerClient, Model]]:
    """The same in Transformers, loaded as for any question."""
    if importlib.util.find_spec("peft") is None:
        pytest.skip("the engine's environment is older than the lock")
    model = with_backend(shapes, BackendChoice("transformers"))
    host = patient_host(Paths.below(short_path / "other"))
    client = await host.open(model.spec, client="tests", keep_alive_s=None)
    events = [event async for event in client.load()]
    assert isinstance(events[-1], EngineReady), events[-1]
    yield client, model
    await client.close()
    for worker in await host.find_all():
        await host.stop(worker.endpoint)


@pytest.mark.timeout(600)
async def test_an_adapter_gives_the_same_answers_in_both_engines(
    able: tuple[WorkerClient, Model], in_transformers: tuple[WorkerClient, Model], tmp_path: Path
) -> None:
    picture = stage(bundled("samples") / "circle.png", tmp_path / "media")
    strong = write_adapter(tmp_path / "strong", strength=0.1)
    wrong = write_adapter(tmp_path / "wrong", strength=0.1)
    (wrong / "adapter_model.safetensors").write_bytes(b"nothing")

    async def scores(engine: WorkerClient, model: Model, folder: Path | None) -> list[float]:
        turn = user_turn("What is in this image?", [picture])
        request = make_request(model.family, [turn], Sampling(max_tokens=8, temperature=0), logprobs=1)
        said = await Asker(engine, model).run(msgspec.structs.replace(request, adapter=str(folder or "")))
        assert said.failure is None, said.failure
        return [one.token_id for one in said.logprobs] + [one.logprob for one in said.logprobs]

    found = []
    for folder in (strong, None, strong):
        theirs, ours = [await scores(*side, folder) for side in (able, in_transformers)]
        assert ours == pytest.approx(theirs, abs=1e-2)
        found.append(ours)
    assert found[0] == pytest.approx(found[2], abs=1e-4)
    assert found[0] != pytest.approx(found[1], abs=1e-1)
    idle = write_adapter(tmp_path / "idle", strength=0.0)
    shutil.copytree(strong, tmp_path / "kept")
    for source, expected in ((idle, found[1]), (tmp_path / "kept", found[0])) * 2:  # more often than a CPU has slots
        shutil.copytree(source, strong, dirs_exist_ok=True)
        for side in (able, in_transformers):
            assert await scores(*side, strong) == pytest.approx(expected, abs=1e-2)
    engine, model = in_transformers
    request = make_request(model.family, [user_turn("Hello")], Sampling(max_tokens=2))
    failed = await Asker(engine, model).run(msgspec.structs.replace(request, adapter=str(wrong)))
    assert failed.failure is not None
    assert failed.failure.message == "Can't load the LoRA adapter 'wrong'."
    assert await scores(engine, model, strong) == pytest.approx(found[0], abs=1e-4)


@pytest.mark.timeout(600)
async def test_a_fan_out_over_adapters_shows_their_effect(able: tuple[WorkerClient, Model], tmp_path: Path) -> None:
    engine, model = able
    strong = write_adapter(tmp_path / "strong", strength=0.3)
    idle = write_adapter(tmp_path / "idle", strength=0.0)
    picture = stage(bundled("samples") / "circle.png", tmp_path / "media")
    turn = user_turn("What is in this image?", [picture])
    answers = []
    for folder in (strong, idle):
        fan_out = FanOut(
            parse_plan(f"adapter=none,{folder}"), model.family, [turn], Sampling(max_tokens=12, temperature=0), engine
        )
        await fan_out.lanes.run()
        assert [lane.answer.failure for lane in fan_out.lanes] == [None, None]
        without, with_it = (lane.answer for lane in fan_out.lanes)
        assert without.text.startswith("A red circle")
        answers.append((without.token_ids, with_it.token_ids, verdict(fan_out.plan, await fan_out.scores())))
    (before, changed, told), (again, same, idle_told) = answers
    assert before != changed
    assert told.startswith("The adapter changes the model: with it this answer is ")
    assert again == same == before
    assert idle_told == "The adapter changes nothing here: every token of the answer is as likely without it."


async def test_a_model_loaded_without_lora_says_so(engine: Engine, shapes: Model, tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "strong", strength=0.3)
    request = make_request(shapes.family, [user_turn("Hello")], Sampling(max_tokens=2))
    request = msgspec.structs.replace(request, adapter=str(folder))
    async with aclosing(engine.generate(request)) as events:
        found = [event async for event in events]
    assert isinstance(found[-1], Failed)
    assert found[-1].failure.message == "The model was loaded without LoRA."


@pytest.mark.timeout(900)
def test_replay_repeats_an_adapters_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    vlmtui = CommandLine(tmp_path / "home", monkeypatch, capsys)
    strong = write_adapter(tmp_path / "strong", strength=0.3)
    kept, without = tmp_path / "kept.json", tmp_path / "without.json"
    question = ("ask", "What is in this image?", "--image", str(bundled("samples") / "circle.png"))
    more = ("--max-tokens", "12", "--keep-alive", "0", "--export")
    assert vlmtui(*question, "--adapter", str(strong), *more, str(kept)).code == 0
    assert vlmtui(*question, *more, str(without)).code == 0
    said = [json.loads(one.read_text())["sides"][0] for one in (kept, without)]
    assert said[0]["adapter"] == str(strong) and said[1]["adapter"] == ""
    assert said[0]["answer"] != said[1]["answer"]
    ran = vlmtui("check", str(kept), str(without), "--adapter", str(strong), "--json")
    assert ran.code == 0, ran.out + ran.err
    results = json.loads(ran.out)["results"]
    assert [(one["same"], one["answer"]) for one in results] == [(True, one["answer"]) for one in said]
